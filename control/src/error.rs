//! Why something asked of the core has no answer.

use lattice_mesh::CallError;
use lattice_quorum_types::{AllocationId, NodeId, Refusal, wire::Unavailable};

/// A command that was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// It was judged and refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The quorum did not answer with a result.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A node that could not be asked, or could not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    /// No such node is registered or gossips.
    #[error("unknown node \"{node}\"; `lattice node list` shows the nodes there are")]
    UnknownNode {
        /// As asked for.
        node: NodeId,
    },
    /// It is registered, but its agent has not been seen since this control started.
    #[error("the agent of node {node} has not been seen; check that it runs and gossips")]
    NotSeen {
        /// The node.
        node: NodeId,
    },
    /// The call failed.
    #[error("node {node}: {source}")]
    Call {
        /// The node.
        node: NodeId,
        /// How.
        source: CallError,
    },
    /// The agent answered that it cannot, or what cannot be read.
    #[error("node {node}: {reason}")]
    Refused {
        /// The node.
        node: NodeId,
        /// In its words.
        reason: String,
    },
}

impl AgentError {
    /// What went wrong, without whom it is about.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::UnknownNode { .. } => "there is no such node".to_owned(),
            Self::NotSeen { .. } => "its agent has not been seen".to_owned(),
            Self::Call { source, .. } => source.to_string(),
            Self::Refused { reason, .. } => reason.clone(),
        }
    }

    /// Whether the answer was longer than any honest one.
    pub(crate) const fn is_too_long(&self) -> bool {
        let Self::Call { source, .. } = self else {
            return false;
        };
        matches!(source, CallError::TooLarge { .. })
    }
}

/// Output that cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// No such allocation.
    #[error("unknown allocation {id}; `lattice status` shows the allocations there are")]
    UnknownAllocation {
        /// As asked for.
        id: AllocationId,
    },
    /// It has had no nodes yet.
    #[error("allocation {id} has not started yet, so there is no output")]
    NotStarted {
        /// The allocation.
        id: AllocationId,
    },
    /// It has fewer ranks.
    #[error("allocation {id} has {ranks} ranks, counted from 0; there is no rank {rank}")]
    NoSuchRank {
        /// The allocation.
        id: AllocationId,
        /// As asked for.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// The quorum did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The node did not answer.
    #[error(transparent)]
    Agent(#[from] AgentError),
}
