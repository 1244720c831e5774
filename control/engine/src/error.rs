//! Errors of requests to the core.

use lattice_mesh::CallError;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationName, NodeId, Refusal, wire::Unavailable,
};

/// Failure of a command. After [`Unavailable::OutcomeUnknown`] the command may still be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The quorum refused the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The quorum did not answer with a result.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A call to a node's agent that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    /// The node is not registered and does not gossip.
    #[error("unknown node \"{node}\"; `lattice node list` shows all nodes")]
    UnknownNode {
        /// Requested node.
        node: NodeId,
    },
    /// The node is registered, but its agent has not been seen since this control started.
    #[error("the agent of node {node} has not been seen; check that it runs and gossips")]
    NotSeen {
        /// Requested node.
        node: NodeId,
    },
    /// The call failed.
    #[error("node {node}: {source}")]
    Call {
        /// Requested node.
        node: NodeId,
        /// Transport or protocol error.
        source: CallError,
    },
    /// The agent returned an error, or a reply that cannot be parsed.
    #[error("node {node}: {reason}")]
    Refused {
        /// Requested node.
        node: NodeId,
        /// Reason from the agent's reply, or why the reply is invalid.
        reason: String,
    },
}

impl AgentError {
    /// Error text without the node name.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::UnknownNode { .. } => "there is no such node".to_owned(),
            Self::NotSeen { .. } => "its agent has not been seen".to_owned(),
            Self::Call { source, .. } => source.to_string(),
            Self::Refused { reason, .. } => reason.clone(),
        }
    }

    /// Whether the reply exceeded the size limit, which no correct reply does.
    pub(crate) const fn is_too_long(&self) -> bool {
        let Self::Call { source, .. } = self else {
            return false;
        };
        matches!(source, CallError::TooLarge { .. })
    }
}

/// Reason why an allocation without ranks has no output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoOutputReason {
    /// The allocation waits.
    #[error("it has not started yet")]
    NotYet,
    /// The allocation ended while it waited.
    #[error("it ended without a start")]
    Never,
    /// The allocation is an array.
    #[error("it is an array, and each element has its own output; name an element, such as 12_7")]
    Array,
}

impl NoOutputReason {
    /// Returns the reason for an allocation without ranks.
    pub(crate) fn of(allocation: &Allocation) -> Self {
        match allocation.spec.terms.array {
            Some(_) => Self::Array,
            None if allocation.state.is_terminal() => Self::Never,
            None => Self::NotYet,
        }
    }
}

/// Failure to read the output of a rank.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The allocation does not exist.
    #[error("unknown allocation {id}; `lattice status --all` shows all allocations")]
    UnknownAllocation {
        /// Requested allocation.
        id: AllocationId,
    },
    /// The allocation has no ranks.
    #[error("allocation {allocation} has no output: {why}")]
    NotStarted {
        /// Requested allocation.
        allocation: AllocationName,
        /// Reason.
        why: NoOutputReason,
    },
    /// The allocation has fewer ranks than the requested rank needs.
    #[error(
        "rank {rank} does not exist; allocation {allocation} has {ranks} ranks, numbered from 0"
    )]
    NoSuchRank {
        /// Requested allocation.
        allocation: AllocationName,
        /// Requested rank, starting at 0.
        rank: u32,
        /// Number of ranks of the allocation.
        ranks: u32,
    },
    /// The quorum did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The call to the agent of the rank's node failed.
    #[error(transparent)]
    Agent(#[from] AgentError),
}
