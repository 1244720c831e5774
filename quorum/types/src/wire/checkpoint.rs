//! Between control and agents: work that can write checkpoints.

use super::AttemptKey;
use crate::checkpoint::{CheckpointOrder, CheckpointStatus};
use crate::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Has a rank write a checkpoint, or says where that stands: a repeat with the same number changes
/// nothing, whatever else it says, so this is also how it is followed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteCheckpoint {
    /// Which attempt.
    pub key: AttemptKey,
    /// Fencing epoch of the asker's lease, of the same row as that of [`Launch`](super::Launch).
    pub epoch: u64,
    /// What is wanted.
    pub order: CheckpointOrder,
}
impl Rpc for WriteCheckpoint {
    const METHOD: &'static str = "agent.checkpoint";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<CheckpointStatus, CheckpointRefused>;
}

/// Why an agent does not ask for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CheckpointRefused {
    /// A newer dispatcher has spoken.
    #[error("epoch {given} is over; {current} was seen")]
    StaleEpoch {
        /// As given.
        given: u64,
        /// Highest seen.
        current: u64,
    },
    /// A later one was asked for.
    #[error("checkpoint {given} is over; {current} was asked for")]
    StaleNumber {
        /// As given.
        given: u32,
        /// Highest asked for.
        current: u32,
    },
    /// The one before has not ended.
    #[error("checkpoint {current} is still being written; ask for {given} when it has ended")]
    InProgress {
        /// As given.
        given: u32,
        /// The one before.
        current: u32,
    },
    /// The rank was launched without a way to ask it.
    #[error("this rank was launched without a checkpoint mode: it cannot be asked")]
    NotPrepared,
    /// The order cannot be carried out.
    #[error("{reason}")]
    Invalid {
        /// The field, and what is wrong with it.
        reason: String,
    },
    /// The order could not be recorded, or what is recorded cannot be read.
    #[error("the order could not be recorded: {reason}")]
    JournalFailed {
        /// Why.
        reason: String,
    },
}
