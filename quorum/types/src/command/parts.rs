//! Parts of commands.

use crate::{
    AllocationId, NodeId, ProjectPath, UnixMillis, allocation::RankExit, attestation::Proof,
    cidr::Cidr, limit::LimitPatch, progress::RankCheckpoint, rpc::Role,
};
use serde::{Deserialize, Serialize};

/// A limit change for one project. Several changes are checked together on the resulting tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitChange {
    /// Project to change.
    pub path: ProjectPath,
    /// Changes to the limits.
    pub patch: LimitPatch,
}

/// A node with the version that the proposer read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedNode {
    /// Name of the node.
    pub node: NodeId,
    /// [`crate::node::Node::version`] that the plan is based on.
    pub version: u64,
    /// Boot id from the last direct read of the node. A rank that is assigned under one boot never starts under
    /// another. `None`: not known.
    pub boot: Option<String>,
}

/// A node for an assignment of sensitive allocations, or for a node claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttestedNode {
    /// Node and version that the plan is based on.
    pub expected: ExpectedNode,
    /// Attestation of the node, with signature and conformance results.
    pub proof: Proof,
}

/// An agent's report about one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankReport {
    /// The rank's process has started.
    Started {
        /// Start time, by the node's clock.
        at: UnixMillis,
    },
    /// Every process of the rank is gone.
    Ended {
        /// End time, by the node's clock.
        at: UnixMillis,
        /// Exit of the rank.
        exit: RankExit,
        /// Fault of the node itself, such as a failed site hook. The node is drained with this reason when it is
        /// released.
        fault: Option<String>,
    },
    /// Result of the rank's part of a checkpoint.
    Checkpoint {
        /// Checkpoint number and result, as the node reports them.
        of: RankCheckpoint,
    },
}

/// Validity of a certificate that is about to be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// Issue time, in whole seconds.
    pub issued_at: UnixMillis,
    /// Expiry time: the last moment at which the certificate is valid.
    pub expires_at: UnixMillis,
}

impl IssuedCertificate {
    /// Earliest time at which renewal can issue the next certificate of the same name. It is one minute after this
    /// issue, or an eighth of the lifetime if that is shorter. The bound exists because every renewal is a command that
    /// all members store.
    pub fn renewable_from(self) -> UnixMillis {
        let life = self.expires_at.since(self.issued_at);
        self.issued_at.after((life / 8).min(60_000))
    }
}

/// A stored join token: the hash of its secret and its permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenGrant {
    /// blake3 of the secret part, lower-case hex.
    pub hash: String,
    /// Role that the token enrols.
    pub role: Role,
    /// Names that the token may enrol; `None`: any name.
    pub names: Option<Vec<NodeId>>,
    /// Networks (`10.1.0.0/16`) that the token may be used from, by the source address that a quorum member sees.
    /// Empty: any network.
    pub cidrs: Vec<Cidr>,
    /// Number of permitted uses.
    pub uses: u32,
    /// Whether the token may replace the holder of an enrolled name.
    pub replace: bool,
    /// Expiry time.
    pub expires_at: UnixMillis,
}

/// An allocation to preempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// The victim.
    pub id: AllocationId,
    /// Attempt of the victim that the plan is based on.
    pub attempt: u32,
    /// Checkpoint that the victim writes first; `None`: none.
    pub checkpoint: Option<RequestedCheckpoint>,
}

/// A requested checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedCheckpoint {
    /// Directory of the checkpoint.
    pub directory: String,
    /// Timeout, milliseconds.
    pub timeout_ms: u64,
}
