//! What commands are made of.

use crate::{
    AllocationId, NodeId, ProjectPath, UnixMillis, allocation::RankExit, cidr::Cidr,
    course::RankCheckpoint, limit::LimitPatch, rpc::Role,
};
use serde::{Deserialize, Serialize};

/// A limit change for one project; several are judged together on the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitChange {
    /// Which project.
    pub path: ProjectPath,
    /// What changes.
    pub patch: LimitPatch,
}

/// A node with the version the proposer saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedNode {
    /// The node.
    pub node: NodeId,
    /// [`crate::node::Node::version`] it was planned on.
    pub version: u64,
    /// The boot it was last seen under, by a direct read. What is assigned under one boot never
    /// starts under another. `None`: not known.
    pub boot: Option<String>,
}

/// What an agent tells of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankReport {
    /// Its process runs since then.
    Started {
        /// By the node's clock.
        at: UnixMillis,
    },
    /// Every process of it is gone.
    Ended {
        /// By the node's clock.
        at: UnixMillis,
        /// How.
        exit: RankExit,
        /// What is wrong with the node itself (a site's hook failed there): it is drained with
        /// this reason as it is given back.
        fault: Option<String>,
    },
    /// What became of its part of a checkpoint.
    Checkpoint {
        /// By the node's word.
        of: RankCheckpoint,
    },
}

/// A certificate that is about to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// When it was issued, whole seconds.
    pub issued_at: UnixMillis,
    /// Last moment it holds.
    pub expires_at: UnixMillis,
}

impl IssuedCertificate {
    /// The first moment at which the next one of its name may be issued as its renewal: after a
    /// minute, or an eighth of a shorter life. Each renewal is a command that all members keep.
    pub fn renewable_from(self) -> UnixMillis {
        let life = self.expires_at.since(self.issued_at);
        self.issued_at.after((life / 8).min(60_000))
    }
}

/// A join token as it is stored: its secret's hash and what it permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenGrant {
    /// blake3 of the secret part, lower-case hex.
    pub hash: String,
    /// The role it enrols.
    pub role: Role,
    /// Names it may enrol; `None` any.
    pub names: Option<Vec<NodeId>>,
    /// Networks (`10.1.0.0/16`) it may be used from, as a quorum member sees the address; empty
    /// means any.
    pub cidrs: Vec<Cidr>,
    /// How often it may be used.
    pub uses: u32,
    /// Whether it may take a name that is enrolled already.
    pub replace: bool,
    /// Until when.
    pub expires_at: UnixMillis,
}

/// Who makes room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// Which allocation.
    pub id: AllocationId,
    /// Its attempt, as the plan saw it.
    pub attempt: u32,
    /// The checkpoint it writes before. `None`: it writes none.
    pub checkpoint: Option<CheckpointAsked>,
}

/// A checkpoint that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointAsked {
    /// Where to.
    pub directory: String,
    /// How long it may take, milliseconds.
    pub timeout_ms: u64,
}
