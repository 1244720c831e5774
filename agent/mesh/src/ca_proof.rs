//! Proof of possession of a CA key that the join token names.
//!
//! A server needs the proof when its own certificate is from an authority newer than the token. Quorum members hold the
//! key of the older authority as long as that authority is trusted. A member signs keying material that TLS exports
//! from this one session. The proof is therefore useless in any other session: it cannot be forwarded, stored, or used
//! after the authority is retired. The proof contains nothing confidential, whereas the trust bundle would disclose the
//! revoked identities.

use crate::{
    Enroller, MeshConfig, Pin,
    signature::{Kind, is_signed, message},
    tls::provider,
    verify::Leaf,
    wire::{
        Fault, PROVE, ReadFault, Status, decode, encode, fault_bytes, frame_bytes, read_body,
        read_frame, request_bytes,
    },
};
use quinn::{Connection, RecvStream};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Exporter label; RFC 8446 requires the prefix.
const LABEL: &[u8] = b"EXPORTER-lattice-enrolment-office";
/// Longest request, bytes: sixteen pins are 513 bytes.
const MAX_REQUEST_BYTES: usize = 1 << 10;
/// Longest answer, bytes: a certificate of about 500 bytes, and a signature.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// TLS session between an unenrolled process and the server that enrols it: 32 bytes of exported keying material, equal
/// at both ends and unique to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfficeSession([u8; 32]);

impl OfficeSession {
    fn of(connection: &Connection) -> Result<Self, String> {
        let mut bytes = [0; 32];
        connection
            .export_keying_material(&mut bytes, LABEL, b"")
            .map_err(|e| format!("TLS exports nothing of the session: {e:?}"))?;
        Ok(Self(bytes))
    }

    /// Message that the server signs for this session.
    pub(crate) fn message(&self) -> Vec<u8> {
        message(Kind::Office, &[&self.0])
    }
}

/// Proof that the signer holds an authority's key; see [`crate::Authority::prove`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfficeProof {
    /// Certificate of the authority, DER.
    pub certificate: Vec<u8>,
    /// Signature of the session by the authority's key: ECDSA P-256 with SHA-256, ASN.1.
    pub signature: Vec<u8>,
}

impl OfficeProof {
    /// Checks that the proof is for this session and from an unexpired authority with one of `pins`.
    fn holds(&self, session: &OfficeSession, pins: &[Pin], config: &MeshConfig) -> bool {
        let certificate = CertificateDer::from(self.certificate.as_slice());
        let Ok(authority) = Leaf::read(&certificate) else {
            return false;
        };
        pins.contains(&Pin::of(&certificate))
            && authority.is_ca
            && authority.not_after >= config.clock.now()
            && is_signed(
                &provider(),
                &authority.public_key,
                &session.message(),
                &self.signature,
            )
    }
}

/// Reason why a server did not receive the secret.
pub(crate) enum Unproven {
    /// The connection was lost.
    Lost(String),
    /// The server proved possession of none of the pinned keys.
    NoProof,
}

impl From<String> for Unproven {
    fn from(reason: String) -> Self {
        Self::Lost(reason)
    }
}

/// Requests a proof from the server that it holds the key of one of `pins`.
pub(crate) async fn demand(
    connection: &Connection,
    pins: &[Pin],
    config: &MeshConfig,
) -> Result<(), Unproven> {
    let session = OfficeSession::of(connection)?;
    let opened = connection.open_bi().await;
    let (mut send, mut recv) = opened.map_err(|e| e.to_string())?;
    let request = request_bytes(PROVE, &encode(&pins)?);
    let sent = send.write_all(&request).await;
    sent.map_err(|e| e.to_string())?;
    let _ = send.finish();
    let proof: Option<OfficeProof> = match read_frame(&mut recv, MAX_ANSWER_BYTES).await {
        Ok((Status::Item, payload)) => decode(&payload)?,
        // For example, the server does not implement the request.
        Ok(_) | Err(ReadFault::Bad(_)) => None,
        Err(ReadFault::Lost(reason)) => return Err(Unproven::Lost(reason)),
    };
    let holds = |proof: OfficeProof| proof.holds(&session, pins, config);
    match proof.is_some_and(holds) {
        true => Ok(()),
        false => Err(Unproven::NoProof),
    }
}

/// Answers [`demand`]; returns the encoded frame.
pub(crate) async fn prove(
    connection: &Connection,
    recv: &mut RecvStream,
    enroller: &dyn Enroller,
) -> Vec<u8> {
    let proof = async {
        let body = read_body(recv, MAX_REQUEST_BYTES).await;
        let body = body.map_err(ReadFault::into_fault)?;
        let pins: Vec<Pin> = decode(&body).map_err(Fault::malformed)?;
        let failed = |reason| Fault::HandlerFailed { reason };
        let session = OfficeSession::of(connection).map_err(failed)?;
        encode(&enroller.prove(&pins, &session)).map_err(failed)
    };
    match proof.await {
        Ok(payload) => frame_bytes(Status::Item, &payload),
        Err(fault) => fault_bytes(&fault),
    }
}
