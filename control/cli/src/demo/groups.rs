//! Conformance groups in the results of the demo.

use lattice_api::conformance::GroupView;
use serde::Serialize;

/// Nodes that share the digest of one conformance class, or their fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupLine {
    /// Class, or `all` for the whole fingerprint.
    pub class: String,
    /// Digest, blake3, hex.
    pub digest: String,
    /// Nodes, as a hostlist.
    pub nodes: String,
}

impl From<GroupView> for GroupLine {
    fn from(group: GroupView) -> Self {
        Self {
            class: group.class,
            digest: group.digest,
            nodes: group.nodes,
        }
    }
}
