//! Trust in BMC certificates.

use super::pin::Pin;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::path::PathBuf;
use std::sync::Arc;

/// Verification of a BMC's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The certificate is signed by an authority that the system trusts.
    System,
    /// The certificate is signed by an authority in this PEM file.
    CaFile(PathBuf),
    /// The certificate has this fingerprint: the usual case, because BMCs sign their own certificates. Dates and names
    /// in the certificate are ignored.
    Pinned(Pin),
    /// Any certificate is accepted. An attacker between client and BMC can then read the password and lift limits.
    Insecure,
}

/// Reason why the trust cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file of authorities cannot be used.
    #[error("{path}: cannot read certificate authorities")]
    CaFile {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS configuration failed.
    #[error("TLS cannot be set up")]
    Tls(#[from] Error),
}

/// Fingerprint of the last presented certificate, for errors, so that an operator can pin it.
#[derive(Clone, Debug, Default)]
pub(super) struct PresentedFingerprint(Arc<Mutex<Option<Pin>>>);

impl PresentedFingerprint {
    pub(super) fn pin(&self) -> Option<Pin> {
        *self.0.lock()
    }

    fn put(&self, pin: Pin) {
        *self.0.lock() = Some(pin);
    }
}

/// TLS configuration for this trust, and the record of the presented certificate.
pub(super) fn config(trust: &Trust) -> Result<(ClientConfig, PresentedFingerprint), TrustError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let judge = match trust {
        Trust::Pinned(pin) => CertificateCheck::Pinned(*pin),
        Trust::Insecure => CertificateCheck::AnyCertificate,
        Trust::System => {
            let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
            CertificateCheck::Authorities(Arc::new(verifier))
        }
        Trust::CaFile(path) => {
            CertificateCheck::Authorities(authorities(path, Arc::clone(&provider))?)
        }
    };
    let shown = PresentedFingerprint::default();
    let verifier = Verifier {
        judge,
        shown: shown.clone(),
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok((config, shown))
}

fn authorities(
    path: &std::path::Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TrustError> {
    let wrong = |source: Box<dyn std::error::Error + Send + Sync>| TrustError::CaFile {
        path: path.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.into()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(error.into()))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(error.into()))?;
    }
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(builder.build().map_err(|error| wrong(error.into()))?)
}

#[derive(Debug)]
enum CertificateCheck {
    Authorities(Arc<dyn ServerCertVerifier>),
    Pinned(Pin),
    AnyCertificate,
}

#[derive(Debug)]
struct Verifier {
    judge: CertificateCheck,
    shown: PresentedFingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let pin = Pin::of(certificate);
        self.shown.put(pin);
        match &self.judge {
            CertificateCheck::Authorities(verifier) => {
                verifier.verify_server_cert(certificate, intermediates, name, ocsp, now)
            }
            CertificateCheck::Pinned(pinned) if *pinned != pin => {
                let refused = CertificateError::ApplicationVerificationFailure;
                Err(Error::InvalidCertificate(refused))
            }
            CertificateCheck::Pinned(_) | CertificateCheck::AnyCertificate => {
                Ok(ServerCertVerified::assertion())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}
