//! Checkpoints of running ranks: setup at launch, orders, and their status.

#[cfg(test)]
mod tests;

use crate::AttemptKey;
use lattice_quorum_types::{
    UnixMillis,
    checkpoint::{
        CheckpointMode, CheckpointOutcome, DEFAULT_MAX_DEFERRAL_MS, DEFAULT_MAX_DEFERRALS,
        InvalidCheckpoint, check_directory,
    },
    rpc::{Role, Rpc},
};
use serde::{Deserialize, Serialize};

/// Requests a checkpoint of a rank, and returns its status. A repeat with the same number changes nothing, whatever its
/// other fields, so control also uses it to follow the progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteCheckpoint {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Fencing epoch of the caller's lease, of the same sequence as in [`Launch`](crate::Launch).
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

/// Order to a job to write one checkpoint. Each rank has its own folder, see [`CheckpointOrder::folder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointOrder {
    /// Number of the checkpoint, from 1. A number is used once per allocation, over all its attempts.
    pub number: u32,
    /// Directory for the checkpoints of the allocation: an absolute path or, for modes that do not answer with files, a
    /// URL.
    pub directory: String,
    /// Timeout, milliseconds. Deferral time does not count.
    pub timeout_ms: u64,
    /// Extension of the timeout, milliseconds. A job gets it once, if it is not done by the timeout but [is
    /// answering](CheckpointOrder::is_answering).
    pub extension_ms: u64,
    /// Number of times that the job may defer the checkpoint.
    pub most_deferrals: u32,
    /// Total time by which the job may defer the checkpoint, milliseconds.
    pub most_deferral_ms: u64,
}

impl CheckpointOrder {
    /// Creates an order with the default extension, half of the timeout, and the default deferrals.
    pub fn new(number: u32, directory: impl Into<String>, timeout_ms: u64) -> Self {
        Self {
            number,
            directory: directory.into(),
            timeout_ms,
            extension_ms: timeout_ms / 2,
            most_deferrals: DEFAULT_MAX_DEFERRALS,
            most_deferral_ms: DEFAULT_MAX_DEFERRAL_MS,
        }
    }

    /// Folder for a rank's part of the checkpoint.
    pub fn folder(&self, rank: u32) -> String {
        folder(&self.directory, self.number, rank)
    }

    /// Checks whether a job with its last sign of life at `heard_at` is slow but alive: that time is at most a quarter
    /// of the timeout ago.
    pub fn is_answering(&self, heard_at: UnixMillis, now: UnixMillis) -> bool {
        now.since(heard_at) <= self.timeout_ms / 4
    }

    /// Checks that the order is valid for `mode`.
    pub fn check(&self, mode: CheckpointMode) -> Result<(), InvalidCheckpoint> {
        if self.number == 0 {
            return Err(InvalidCheckpoint::Number);
        }
        if self.timeout_ms == 0 {
            return Err(InvalidCheckpoint::Timeout);
        }
        check_directory(&self.directory, mode)
    }
}

/// `<directory>/<number>/rank-<rank>`.
fn folder(directory: &str, number: u32, rank: u32) -> String {
    let directory = directory.trim_end_matches('/');
    format!("{directory}/{number}/rank-{rank}")
}

/// Checkpoint setup of a rank, applied at launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSetup {
    /// Mode of later checkpoint orders.
    pub mode: CheckpointMode,
    /// Directory for the checkpoints.
    pub directory: String,
    /// Checkpoint to resume from; `None`: the job starts from the beginning.
    pub restore: Option<Restore>,
}

impl CheckpointSetup {
    /// Checks that the setup is valid.
    pub fn check(&self) -> Result<(), InvalidCheckpoint> {
        check_directory(&self.directory, self.mode)
    }
}

/// A checkpoint to resume from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// Number of the checkpoint.
    pub number: u32,
    /// Directory of the checkpoint, as in its order.
    pub directory: String,
}

impl Restore {
    /// Folder of a rank's part of the checkpoint.
    pub fn folder(&self, rank: u32) -> String {
        folder(&self.directory, self.number, rank)
    }
}

/// Status of a rank's part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointStatus {
    /// The job has received the order, or will receive it as soon as it runs, and has not answered yet.
    Asked {
        /// Request time, by the node's clock.
        at: UnixMillis,
    },
    /// The job has deferred the checkpoint.
    Deferred {
        /// Time of the next request, by the node's clock.
        until: UnixMillis,
        /// Number of deferrals.
        times: u32,
    },
    /// The job has started to write.
    Writing {
        /// Time of the job's last sign of life, by the node's clock.
        heard_at: UnixMillis,
    },
    /// The part has ended, and its result is on the node's disk.
    Ended(CheckpointOutcome),
    /// The attempt has ended or was never on this node, and it received no order with this number. No process is left
    /// that could receive it.
    Gone,
}
