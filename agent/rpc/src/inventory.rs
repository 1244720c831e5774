//! Inventory of a node, and the preimages of its published digests.

use bytes::Bytes;
use lattice_quorum_types::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Requests the node's complete inventory (JSON of `lattice-conformance`'s `Inventory`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetInventory {
    /// Whether to probe again instead of returning the last reading.
    pub fresh: bool,
    /// Requesting person or program. The node's history attributes changes found by a fresh read to this name. `None`:
    /// the read counts as a routine check.
    pub by: Option<String>,
}
impl Rpc for GetInventory {
    const METHOD: &'static str = "agent.inventory";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<Bytes, String>;
}

/// Requests the preimage with this blake3 digest. The peer returns it if it belongs to the peer's published records or
/// history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetPreimage {
    /// The digest, 32 bytes.
    pub digest: [u8; 32],
}
impl Rpc for GetPreimage {
    const METHOD: &'static str = "agent.preimage";
    const CALLERS: &'static [Role] = &[Role::Control, Role::Agent];
    type Reply = Option<Bytes>;
}
