//! How the server of an enrolment shows that it is of a token's cluster when its own certificate
//! is of an authority that came after the token: by the key of one that the token names.
//!
//! Quorum members hold that key as long as the authority is trusted. They sign what TLS exports of
//! this one session, so the proof is of no use in another one, now or later: it cannot be handed
//! on, kept, or outlive the authority's retirement. Nothing that strangers are not to know is in
//! it, as the bundle would tell them who was revoked.

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

/// As RFC 8446 wants labels to begin.
const LABEL: &[u8] = b"EXPORTER-lattice-enrolment-office";
/// Longest request: sixteen pins are 513 bytes.
const MAX_REQUEST_BYTES: usize = 1 << 10;
/// Longest answer: a certificate of about 500 bytes, and a signature.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// One session between a stranger and who enrols it: the same at both ends, and nowhere else.
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

    /// What is signed of it.
    pub(crate) fn message(&self) -> Vec<u8> {
        message(Kind::Office, &[&self.0])
    }
}

/// That who signed holds an authority's key; see [`crate::Authority::prove`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfficeProof {
    /// The authority's certificate, DER.
    pub certificate: Vec<u8>,
    /// Of the session, by its key: ECDSA P-256 with SHA-256, ASN.1.
    pub signature: Vec<u8>,
}

impl OfficeProof {
    /// Whether it is of this session, by one of these authorities, which has not ended.
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

/// Why a server was left without a word.
pub(crate) enum Unproven {
    /// The connection broke.
    Lost(String),
    /// It holds no key that it should.
    NoProof,
}

impl From<String> for Unproven {
    fn from(reason: String) -> Self {
        Self::Lost(reason)
    }
}

/// Asks the server of this connection to show that it holds the key of one of `pins`.
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
        // It does not know the question, for one.
        Ok(_) | Err(ReadFault::Bad(_)) => None,
        Err(ReadFault::Lost(reason)) => return Err(Unproven::Lost(reason)),
    };
    let holds = |proof: OfficeProof| proof.holds(&session, pins, config);
    match proof.is_some_and(holds) {
        true => Ok(()),
        false => Err(Unproven::NoProof),
    }
}

/// Answers [`demand`], as a frame.
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
