//! Start and end of a rank.

use crate::{AttemptKey, AttemptStatus, CheckpointSetup, attempt_names};
use lattice_quorum_types::{
    AllocationName, NameLookup, NodeId, Revision,
    progress::ArrayElement,
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
    /// Job name, if the request had one.
    pub name: Option<String>,
    /// Place of the allocation in a job array.
    pub element: Option<ArrayElement>,
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
    /// Other attempts keep jobs away from the node.
    #[error("{}", by.text(attempts, &AllocationName::of_id))]
    Blocked {
        /// State of these attempts.
        by: BlockedBy,
        /// The attempts.
        attempts: Vec<AttemptKey>,
    },
}

/// State of attempts that keep jobs away from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockedBy {
    /// Their processes are running, and the node has no record of them.
    Orphans,
    /// Their epilog or wipe has not completed since the node rebooted.
    Finishing,
}

impl BlockedBy {
    fn text(self, attempts: &[AttemptKey], name: NameLookup<'_>) -> String {
        let names = attempt_names(attempts, name);
        match self {
            Self::Orphans => {
                format!("processes of attempts without a record are running: {names}")
            }
            Self::Finishing => format!(
                "the node has rebooted, and the epilog or wipe of {names} has not completed"
            ),
        }
    }
}

impl LaunchRefused {
    /// Reason in words; `name`: names of the allocations that it mentions.
    #[must_use]
    pub fn text(&self, name: NameLookup<'_>) -> String {
        match self {
            Self::Blocked { by, attempts } => by.text(attempts, name),
            other => other.to_string(),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use lattice_quorum_types::AllocationId;

    #[test]
    fn refused_launch_names_elements() {
        let key = |allocation| AttemptKey {
            allocation: AllocationId(allocation),
            attempt: 2,
        };
        let element = ArrayElement {
            array: AllocationId(3),
            index: 50,
        };
        let name = |id: AllocationId| AllocationName::new(id, (id.0 == 8).then_some(element));
        let refused = |by| LaunchRefused::Blocked {
            by,
            attempts: vec![key(7), key(8)],
        };
        assert_eq!(
            refused(BlockedBy::Orphans).text(&name),
            "processes of attempts without a record are running: allocation 7 attempt 2, allocation 3_50 attempt 2"
        );
        assert_eq!(
            refused(BlockedBy::Finishing).text(&name),
            "the node has rebooted, and the epilog or wipe of allocation 7 attempt 2, allocation 3_50 attempt 2 has \
             not completed"
        );
        let stale = LaunchRefused::StaleEpoch {
            given: 1,
            current: 2,
        };
        assert_eq!(stale.text(&name), stale.to_string());
    }
}
