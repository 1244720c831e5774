//! Attestation of a node.

use bytes::Bytes;
use lattice_quorum_types::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Requests an [`Attestation`](lattice_quorum_types::attestation::Attestation) with a reading of that moment. The
/// answer is the postcard encoding of two values: the postcard bytes of the attestation, and the agent's signature of
/// exactly these bytes (`lattice-mesh`'s `StatementSignature`) for
/// [`Attestation::CONTEXT`](lattice_quorum_types::attestation::Attestation::CONTEXT).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetAttestation {
    /// Random nonce.
    pub nonce: [u8; 16],
}
impl Rpc for GetAttestation {
    const METHOD: &'static str = "agent.attestation";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Bytes, String>;
}
