//! Exchange that proves possession of a CA key that the join token names.
//!
//! A server needs the proof when its own certificate is from an authority newer than the token. Quorum members hold the
//! key of the older authority as long as that authority is trusted. A member signs keying material that TLS exports
//! from this one session. The proof is therefore useless in any other session: it cannot be forwarded, stored, or used
//! after the authority is retired. The proof contains nothing confidential, whereas the trust bundle would disclose the
//! revoked identities.

use crate::{
    CaKeyProof, Enroller, EnrolmentSession, MeshConfig, Pin,
    encoding::{decode, encode},
    rpc::frame::{
        Fault, PROVE, ReadFault, Status, fault_bytes, frame_bytes, read_body, read_frame,
        request_bytes,
    },
};
use quinn::{Connection, RecvStream};

/// Longest request, bytes: sixteen pins are 513 bytes.
const MAX_REQUEST_BYTES: usize = 1 << 10;
/// Longest answer, bytes: a certificate of about 500 bytes, and a signature.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// Reason why a server did not receive the secret.
pub(crate) enum CaProofFault {
    /// The connection was lost.
    Lost(String),
    /// The server proved possession of none of the pinned keys.
    NoProof,
}

impl From<String> for CaProofFault {
    fn from(reason: String) -> Self {
        Self::Lost(reason)
    }
}

/// Requests a proof from the server that it holds the key of one of `pins`.
pub(crate) async fn request_proof(
    connection: &Connection,
    pins: &[Pin],
    config: &MeshConfig,
) -> Result<(), CaProofFault> {
    let session = EnrolmentSession::of(connection)?;
    let opened = connection.open_bi().await;
    let (mut send, mut recv) = opened.map_err(|e| e.to_string())?;
    let request = request_bytes(PROVE, &encode(&pins)?);
    let sent = send.write_all(&request).await;
    sent.map_err(|e| e.to_string())?;
    let _ = send.finish();
    let proof: Option<CaKeyProof> = match read_frame(&mut recv, MAX_ANSWER_BYTES).await {
        Ok((Status::Item, payload)) => decode(&payload)?,
        // For example, the server does not implement the request.
        Ok(_) | Err(ReadFault::Bad(_)) => None,
        Err(ReadFault::Lost(reason)) => return Err(CaProofFault::Lost(reason)),
    };
    let holds = |proof: CaKeyProof| proof.is_valid(&session, pins, config.clock.now());
    match proof.is_some_and(holds) {
        true => Ok(()),
        false => Err(CaProofFault::NoProof),
    }
}

/// Answers [`request_proof`]; returns the encoded frame.
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
        let session = EnrolmentSession::of(connection).map_err(failed)?;
        encode(&enroller.prove(&pins, &session)).map_err(failed)
    };
    match proof.await {
        Ok(payload) => frame_bytes(Status::Item, &payload),
        Err(fault) => fault_bytes(&fault),
    }
}
