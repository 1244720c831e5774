//! Job checkpoints: modes, directories and results. Orders to running processes are messages to agents, in
//! `lattice-agent-rpc`.

#[cfg(test)]
mod tests;

use crate::UnixMillis;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Longest directory, bytes. Paths below it must fit into the 4 KiB limit of a path.
pub const MAX_DIRECTORY_BYTES: usize = 1024;
/// Default timeout of a checkpoint, milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 600_000;
/// Longest timeout, and longest extension, of a checkpoint, milliseconds: one day.
pub const MAX_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// Default for the number of times that a job may defer a checkpoint.
pub const DEFAULT_MAX_DEFERRALS: u32 = 3;
/// Default for the total time by which a job may defer a checkpoint, milliseconds.
pub const DEFAULT_MAX_DEFERRAL_MS: u64 = 300_000;

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

/// Checks whether a checkpoint directory is a URL, for example of an object store, and not a path.
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
    /// Checks whether the part is complete, so that a job can resume from it.
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
