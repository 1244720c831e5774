//! Certificate and key of the TLS port, replaceable while the port is open.

use arc_swap::ArcSwap;
use lattice_api::x509;
use lattice_engine::https_certificates::CertificatePeriod;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{fmt, sync::Arc};

/// Certificate and key of the TLS port.
pub struct HttpsIdentity {
    /// Certificate chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key of the leaf certificate.
    pub key: PrivateKeyDer<'static>,
}

/// Certificate and key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("https: certificate and key cannot be used: {reason}")]
pub struct HttpsIdentityError {
    /// Error text of rustls.
    pub reason: String,
}

fn unusable(reason: impl fmt::Display) -> HttpsIdentityError {
    HttpsIdentityError {
        reason: reason.to_string(),
    }
}

impl HttpsIdentity {
    /// Parses certificates and key from PEM.
    ///
    /// # Errors
    /// Returns an error for malformed PEM, or text without a key. Text without a certificate gives an empty chain,
    /// which [`Self::into_certificate`] rejects.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, HttpsIdentityError> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(unusable)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
        Ok(Self { chain, key })
    }

    /// Certificate for a port.
    ///
    /// # Errors
    /// Returns an error when there is no certificate, or the key does not belong to the certificate or has an unknown
    /// type.
    pub fn into_certificate(self) -> Result<HttpsCertificate, HttpsIdentityError> {
        let served = ServedCertificate::new(self)?;
        Ok(HttpsCertificate(Arc::new(Resolver(ArcSwap::from_pointee(
            served,
        )))))
    }

    /// Server configuration that presents this certificate; see [`HttpsCertificate::server_config`].
    ///
    /// # Errors
    /// As [`Self::into_certificate`].
    pub fn into_server_config(self) -> Result<Arc<ServerConfig>, HttpsIdentityError> {
        self.into_certificate()?.server_config()
    }
}

impl fmt::Debug for HttpsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpsIdentity({} certificates)", self.chain.len())
    }
}

/// Certificate that a port presents. Clones share it: a replacement takes effect at the next handshake of every port
/// with this certificate, and open connections continue.
#[derive(Clone)]
pub struct HttpsCertificate(Arc<Resolver>);

struct Resolver(ArcSwap<ServedCertificate>);

struct ServedCertificate {
    key: Arc<CertifiedKey>,
    period: CertificatePeriod,
}

impl ServedCertificate {
    fn new(identity: HttpsIdentity) -> Result<Self, HttpsIdentityError> {
        let key = CertifiedKey::from_der(identity.chain, identity.key, &provider());
        let key = key.map_err(unusable)?;
        let leaf = key.end_entity_cert().map_err(unusable)?;
        let fields = x509::parse_certificate(leaf).map_err(unusable)?;
        let period = CertificatePeriod {
            issued_at_ms: fields.not_before.0,
            expires_at_ms: fields.not_after.0,
        };
        Ok(Self {
            key: Arc::new(key),
            period,
        })
    }
}

impl HttpsCertificate {
    /// Validity period of the leaf certificate.
    pub fn period(&self) -> CertificatePeriod {
        self.0.0.load().period
    }

    /// Whether this chain is the one that is presented.
    pub fn presents(&self, chain: &[CertificateDer<'static>]) -> bool {
        self.0.0.load().key.cert == chain
    }

    /// Presents the certificate of `next` from now on.
    pub fn replace(&self, next: &Self) {
        self.0.0.store(next.0.0.load_full());
    }

    /// Server configuration: TLS 1.2 and 1.3, HTTP/2 (required by gRPC) and HTTP/1.1.
    ///
    /// # Errors
    /// Returns an error when TLS cannot be set up.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, HttpsIdentityError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(self.0.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().key.clone())
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resolver({:?})", self.0.load().period)
    }
}

impl fmt::Debug for HttpsCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpsCertificate({:?})", self.period())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn broken_pair_is_refused_and_good_one_replaces() {
        let (first, second) = (pair(), pair());
        let read = |chain: &str, key: &str| HttpsIdentity::from_pem(chain, key).unwrap();
        let chain = |pem: &str| read(pem, &first.1).chain;
        let served = read(&first.0, &first.1).into_certificate().unwrap();
        assert!(served.presents(&chain(&first.0)));
        for (certificate, key) in [(&second.0, &first.1), (&String::new(), &first.1)] {
            let refused = read(certificate, key).into_certificate().unwrap_err();
            assert!(!refused.reason.is_empty());
        }
        let port = served.clone();
        served.replace(&read(&second.0, &second.1).into_certificate().unwrap());
        assert!(port.presents(&chain(&second.0)) && !port.presents(&chain(&first.0)));
        assert!(served.period().expires_at_ms > served.period().issued_at_ms);
    }
}
