//! Proof that the server of an enrolment session holds the key of an authority.

use super::{
    certificate::CertificateFields,
    crypto::provider,
    pin::Pin,
    signature::{Kind, is_signed, message},
};
use lattice_quorum_types::UnixMillis;
use quinn::Connection;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Exporter label; RFC 8446 requires the prefix.
const LABEL: &[u8] = b"EXPORTER-lattice-enrolment-office";

/// TLS session between an unenrolled process and the server that enrols it: 32 bytes of exported keying material, equal
/// at both ends and unique to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnrolmentSession([u8; 32]);

impl EnrolmentSession {
    /// Exports the keying material of the session of `connection`.
    pub(crate) fn of(connection: &Connection) -> Result<Self, String> {
        let mut bytes = [0; 32];
        connection
            .export_keying_material(&mut bytes, LABEL, b"")
            .map_err(|e| format!("TLS cannot export keying material: {e:?}"))?;
        Ok(Self(bytes))
    }

    /// Message that the server signs for this session.
    pub(crate) fn message(&self) -> Vec<u8> {
        message(Kind::Office, &[&self.0])
    }
}

/// Proof that the signer holds an authority's key; see [`crate::Authority::prove`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaKeyProof {
    /// Certificate of the authority, DER.
    pub certificate: Vec<u8>,
    /// Signature of the session by the authority's key: ECDSA P-256 with SHA-256, ASN.1.
    pub signature: Vec<u8>,
}

impl CaKeyProof {
    /// Checks that the proof is for this session and from an authority, unexpired at `now`, with one of `pins`.
    pub(crate) fn is_valid(
        &self,
        session: &EnrolmentSession,
        pins: &[Pin],
        now: UnixMillis,
    ) -> bool {
        let certificate = CertificateDer::from(self.certificate.as_slice());
        let Ok(authority) = CertificateFields::read(&certificate) else {
            return false;
        };
        pins.contains(&Pin::of(&certificate))
            && authority.is_ca
            && authority.not_after >= now
            && is_signed(
                &provider(),
                &authority.public_key,
                &session.message(),
                &self.signature,
            )
    }
}
