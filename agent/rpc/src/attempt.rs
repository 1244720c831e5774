//! Attempts of allocations on a node: their keys and their status.

use lattice_quorum_types::{
    AllocationId,
    command::RankReport,
    rpc::{Role, Rpc},
};
use serde::{Deserialize, Serialize};

/// Identifies one attempt of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// Number of the allocation.
    pub allocation: AllocationId,
    /// Number of the attempt.
    pub attempt: u32,
}

/// Status of an attempt on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStatus {
    /// The attempt.
    pub key: AttemptKey,
    /// Last report; `None`: the attempt is recorded, but its process has not been seen yet.
    pub report: Option<RankReport>,
}

/// Lists the recorded attempts without an acknowledged end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListAttempts;
impl Rpc for ListAttempts {
    const METHOD: &'static str = "agent.attempts";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Vec<AttemptStatus>;
}
