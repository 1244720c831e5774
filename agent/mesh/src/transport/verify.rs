//! Certificate verification in handshakes: a chain to the trusted roots, exactly one SPIFFE URI of this cluster's trust
//! domain, a key for signatures, and no revocation. DNS names are not used.

use crate::{
    Pin, Role,
    pki::{
        certificate::CertificateFields,
        chain::{chain_to, is_unknown_authority},
    },
    trust::in_force::{DistrustReason, TrustStore},
};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls13_signature},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Rejection reason for the local log; the peer only receives the alert.
#[derive(thiserror::Error)]
#[error("{0}")]
struct RejectionReason(String);

/// rustls prints the inner error of `OtherError` in its `Debug` form only.
impl fmt::Debug for RejectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn rejected(reason: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(
        RejectionReason(reason),
    ))))
}

/// Converts a rejection into a TLS error. Revocation has an alert of its own, which the error texts of both sides
/// explain.
fn refused(trust: &TrustStore, distrust: DistrustReason) -> Error {
    match distrust {
        DistrustReason::Revoked { ref identity, .. } => {
            if let Some(suppressed) = trust.revoked_peers.admit(identity) {
                tracing::info!(reason = %distrust, suppressed, "mesh handshake refused");
            }
            Error::InvalidCertificate(CertificateError::Revoked)
        }
        DistrustReason::Other(reason) => rejected(reason),
    }
}

macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.2 is not supported".to_owned()))
        }
        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, cert, dss, algorithms)
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

/// Verifies the servers that this process dials, against the trust in force at that moment.
pub(crate) struct MeshServers {
    pub(crate) trust: Arc<TrustStore>,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl fmt::Debug for MeshServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeshServers")
    }
}

impl ServerCertVerifier for MeshServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let trust = self.trust.load();
        let judged = chain_to(&trust.roots, end_entity, intermediates, now, &self.provider);
        self.trust.notify_unknown_authority(judged)?;
        trust
            .admit(end_entity)
            .map_err(|distrust| refused(&self.trust, distrust))?;
        Ok(ServerCertVerified::assertion())
    }
    signatures!();
}

/// Verifies the clients that dial this process, against the trust in force at that moment. A client without a
/// certificate passes TLS only where enrolment is offered, and is then served nothing else.
pub(crate) struct MeshClients {
    pub(crate) trust: Arc<TrustStore>,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) offers_enrolment: bool,
}

impl fmt::Debug for MeshClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeshClients")
    }
}

impl ClientCertVerifier for MeshClients {
    fn client_auth_mandatory(&self) -> bool {
        !self.offers_enrolment
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let trust = self.trust.load();
        let clients = &trust.clients;
        let judged = clients.verify_client_cert(end_entity, intermediates, now);
        let verified = self.trust.notify_unknown_authority(judged)?;
        trust
            .admit(end_entity)
            .map_err(|distrust| refused(&self.trust, distrust))?;
        Ok(verified)
    }
    signatures!();
}

/// Accepts any server certificate: the trust bundle that the server returns is verified by its own signatures.
pub(crate) struct AnyServer {
    pub(crate) provider: Arc<CryptoProvider>,
}

impl fmt::Debug for AnyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyServer")
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    signatures!();
}

/// Verifies the quorum member that an unenrolled process dials. The server must be a quorum member of an authority with
/// one of the token's pins: an agent's certificate must not suffice to collect tokens.
///
/// A server with a certificate from another authority is accepted, but marked as unproven. Before it receives the
/// secret, it must prove that it holds the key of a pinned authority (`mesh.prove`).
pub(crate) struct PinnedServer {
    pub(crate) pins: Vec<Pin>,
    pub(crate) unproven: Arc<AtomicBool>,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl fmt::Debug for PinnedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PinnedServer")
    }
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut roots = RootCertStore::empty();
        for shown in intermediates {
            if self.pins.contains(&Pin::of(shown)) {
                roots.add(shown.clone().into_owned())?;
            }
        }
        match chain_to(&roots, end_entity, intermediates, now, &self.provider) {
            Ok(()) => {}
            Err(error) if is_unknown_authority(&error) => {
                self.unproven.store(true, Ordering::SeqCst);
            }
            Err(error) => return Err(error),
        }
        let identity = CertificateFields::read(end_entity)
            .and_then(CertificateFields::identity)
            .map_err(rejected)?;
        if identity.role() != Role::Quorum {
            return Err(rejected(format!("{identity} is not a quorum member")));
        }
        Ok(ServerCertVerified::assertion())
    }
    signatures!();
}
