//! Start and end of a rank.

use crate::{AttemptKey, AttemptStatus, CheckpointSetup};
use lattice_quorum_types::{
    NodeId, Revision,
    rpc::{Role, Rpc},
    spec::Workload,
};
use serde::{Deserialize, Serialize};

/// Starts one rank. The agent answers a repeat with the existing status and refuses lower epochs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Fencing epoch of the dispatcher's lease.
    pub epoch: u64,
    /// Revision of the assignment.
    pub revision: Revision,
    /// User that submitted the allocation.
    pub user: String,
    /// Project, as text for the environment.
    pub project: String,
    /// Nodes of the allocation in rank order, without those that it releases.
    pub nodes: Vec<NodeId>,
    /// Rank number on this node.
    pub rank: u32,
    /// Program to run.
    pub workload: Workload,
    /// Longest run time, milliseconds; `None`: unbounded.
    pub walltime_ms: Option<u64>,
    /// Boot id of the node at assignment; `None`: not known. The agent does not start the rank under another boot id.
    pub boot: Option<String>,
    /// Whether the allocation is sensitive. Its traces are wiped before the node is released.
    pub sensitive: bool,
    /// Number of GPUs for the rank, which the agent selects; 0: all GPUs of the node.
    pub gpus: u32,
    /// Checkpoint setup of the rank; `None`: the rank writes no checkpoints.
    pub checkpoint: Option<CheckpointSetup>,
}
impl Rpc for Launch {
    const METHOD: &'static str = "agent.launch";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<AttemptStatus, LaunchRefused>;
}

/// Reasons why an agent does not start or end a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LaunchRefused {
    /// A dispatcher with a newer epoch has already called the agent.
    #[error("stale lease epoch {given}; current is {current}")]
    StaleEpoch {
        /// Epoch of the request.
        given: u64,
        /// Highest epoch that the agent has received.
        current: u64,
    },
    /// The agent may not run processes of this user.
    #[error("this agent does not run jobs of {user}: {reason}")]
    UserNotAllowed {
        /// The user.
        user: String,
        /// Description of the reason.
        reason: String,
    },
    /// The journal could not be written.
    #[error("the attempt could not be recorded: {reason}")]
    JournalFailed {
        /// Description of the error.
        reason: String,
    },
    /// The node has rebooted since the assignment, so no process of the rank is left.
    #[error("node has rebooted since assignment (boot id {current}, expected {expected})")]
    OtherBoot {
        /// Boot id at assignment.
        expected: String,
        /// Present boot id.
        current: String,
    },
}

/// Ends one rank: SIGTERM, grace period, SIGKILL. An unknown attempt is recorded as stopped, so that a late launch has
/// no effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Terminate {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Fencing epoch of the dispatcher's lease.
    pub epoch: u64,
}
impl Rpc for Terminate {
    const METHOD: &'static str = "agent.terminate";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<AttemptStatus, LaunchRefused>;
}
