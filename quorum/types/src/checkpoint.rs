//! Job checkpoints: orders to running processes, and their results.

#[cfg(test)]
mod tests;

use crate::UnixMillis;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Longest directory, bytes. Paths below it must fit into the 4 KiB limit of a path.
pub const MAX_DIRECTORY_BYTES: usize = 1024;
/// Default timeout of a checkpoint, milliseconds.
pub const TIMEOUT_MS: u64 = 600_000;
/// Longest timeout, and longest extension, of a checkpoint, milliseconds: one day.
pub const MAX_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// Default for the number of times that a job may defer a checkpoint.
pub const MOST_DEFERRALS: u32 = 3;
/// Default for the total time by which a job may defer a checkpoint, milliseconds.
pub const MOST_DEFERRAL_MS: u64 = 300_000;

/// Checkpoint mode: the way in which a job receives checkpoint orders and answers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointMode {
    /// SIGUSR1 to the job's first process. The job answers with files in the checkpoint's folder.
    Signal,
    /// Numbers in a small file that the job maps into its memory.
    SharedMemory,
    /// gRPC over a separate socket.
    Callback,
}

impl CheckpointMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Signal, Self::SharedMemory, Self::Callback];

    /// Lower-case name as printed and as in `LATTICE_CHECKPOINT_MODE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::SharedMemory => "shared_memory",
            Self::Callback => "callback",
        }
    }
}

impl fmt::Display for CheckpointMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that is not a checkpoint mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a valid checkpoint mode; use signal, shared_memory or callback")]
pub struct InvalidMode {
    /// Text as given.
    pub given: String,
}

impl FromStr for CheckpointMode {
    type Err = InvalidMode;
    fn from_str(given: &str) -> Result<Self, InvalidMode> {
        let found = Self::ALL.into_iter().find(|mode| mode.as_str() == given);
        found.ok_or_else(|| InvalidMode {
            given: given.to_owned(),
        })
    }
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
            most_deferrals: MOST_DEFERRALS,
            most_deferral_ms: MOST_DEFERRAL_MS,
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

/// Checks whether checkpoints go to an object store instead of a file system.
pub fn is_url(directory: &str) -> bool {
    !directory.starts_with('/') && directory.contains("://")
}

/// Checks that jobs in `mode` can write checkpoints to a directory.
pub fn check_directory(directory: &str, mode: CheckpointMode) -> Result<(), InvalidCheckpoint> {
    let wrong = |reason| {
        Err(InvalidCheckpoint::Directory {
            directory: directory.to_owned(),
            reason,
        })
    };
    if directory.len() > MAX_DIRECTORY_BYTES {
        return wrong("it must have 1024 bytes at most");
    }
    if directory.chars().any(char::is_control) {
        return wrong("it contains a control character");
    }
    if is_url(directory) {
        return match mode {
            CheckpointMode::Signal => wrong(
                "mode signal answers with files, so it must be an absolute path; use shared_memory or \
                 callback for a URL",
            ),
            CheckpointMode::SharedMemory | CheckpointMode::Callback => Ok(()),
        };
    }
    if !directory.starts_with('/') {
        return wrong("it must be an absolute path");
    }
    if directory.split('/').any(|part| part == "..") {
        return wrong("it must not contain `..`");
    }
    Ok(())
}

/// Reasons why a checkpoint order or a checkpoint setup is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheckpoint {
    /// The number is 0; numbers start at 1.
    #[error("number: must be at least 1")]
    Number,
    /// The timeout is 0.
    #[error("timeout_ms: must be at least 1")]
    Timeout,
    /// The directory is invalid.
    #[error("directory {directory:?}: {reason}")]
    Directory {
        /// Directory as given.
        directory: String,
        /// Description of the error.
        reason: &'static str,
    },
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

/// Final result of a rank's part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointOutcome {
    /// The part is complete.
    Written {
        /// Time at which the agent saw the completion, by the node's clock.
        at: UnixMillis,
        /// Total size of the regular files in the rank's folder, or the size that the job reported, bytes. `None` if
        /// not known.
        bytes: Option<u64>,
        /// Duration since the request, milliseconds.
        took_ms: u64,
    },
    /// The part is incomplete and will not be completed.
    Failed {
        /// Time at which the agent detected the failure, by the node's clock.
        at: UnixMillis,
        /// Kind of the failure.
        cause: CheckpointFailure,
        /// Description of the failure.
        reason: String,
    },
}

impl CheckpointOutcome {
    /// Checks whether a job can resume from it.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Written { .. })
    }
}

/// Kind of a checkpoint failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointFailure {
    /// The job did not answer in time.
    Unresponsive,
    /// The job answered but did not finish in time.
    TooSlow,
    /// The job reported that it cannot write the checkpoint.
    Declined,
    /// The job ended first.
    JobEnded,
    /// The folder cannot be created or used, or its file system does not respond.
    Storage,
}

impl CheckpointFailure {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Unresponsive,
        Self::TooSlow,
        Self::Declined,
        Self::JobEnded,
        Self::Storage,
    ];

    /// Lower-case name as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unresponsive => "unresponsive",
            Self::TooSlow => "too_slow",
            Self::Declined => "declined",
            Self::JobEnded => "job_ended",
            Self::Storage => "storage",
        }
    }
}

impl fmt::Display for CheckpointFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
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
