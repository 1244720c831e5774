//! Messages between control and agents about checkpoints.

use super::AttemptKey;
use crate::checkpoint::{CheckpointOrder, CheckpointStatus};
use crate::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Requests a checkpoint of a rank, and returns its status. A repeat with the same number changes nothing, whatever its
/// other fields, so control also uses it to follow the progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteCheckpoint {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Fencing epoch of the caller's lease, of the same sequence as in [`Launch`](super::Launch).
    pub epoch: u64,
    /// The checkpoint order.
    pub order: CheckpointOrder,
}
impl Rpc for WriteCheckpoint {
    const METHOD: &'static str = "agent.checkpoint";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<CheckpointStatus, CheckpointRefused>;
}

/// Reasons why an agent refuses a checkpoint order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CheckpointRefused {
    /// A dispatcher with a newer epoch has already called the agent.
    #[error("stale lease epoch {given}; current is {current}")]
    StaleEpoch {
        /// Epoch of the request.
        given: u64,
        /// Highest epoch that the agent has received.
        current: u64,
    },
    /// A later checkpoint was ordered.
    #[error("stale checkpoint {given}; current is {current}")]
    StaleNumber {
        /// Number in the request.
        given: u32,
        /// Highest ordered number.
        current: u32,
    },
    /// The previous checkpoint has not ended.
    #[error("checkpoint {current} is still being written; request {given} when it has ended")]
    InProgress {
        /// Number in the request.
        given: u32,
        /// Number of the previous checkpoint.
        current: u32,
    },
    /// The rank was launched without a checkpoint mode.
    #[error("this rank was launched without a checkpoint mode: it cannot write checkpoints")]
    NotPrepared,
    /// The order is invalid.
    #[error("{reason}")]
    Invalid {
        /// The field, and the error in it.
        reason: String,
    },
    /// The order could not be recorded, or the recorded order cannot be read.
    #[error("the order could not be recorded: {reason}")]
    JournalFailed {
        /// Description of the error.
        reason: String,
    },
}
