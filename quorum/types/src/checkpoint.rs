//! Checkpoints: how work is told to write one, and what becomes of it.

#[cfg(test)]
mod tests;

use crate::UnixMillis;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Longest directory, bytes. What is below it must fit into the 4 KiB that a path may have.
pub const MAX_DIRECTORY_BYTES: usize = 1024;
/// How long work may take to write a checkpoint unless somebody says otherwise, milliseconds.
pub const TIMEOUT_MS: u64 = 600_000;
/// Longest time that one may be given at once, milliseconds: a day.
pub const MAX_TIMEOUT_MS: u64 = 24 * 3_600_000;
/// How often work may put one off.
pub const MOST_DEFERRALS: u32 = 3;
/// How long work may put one off in all, milliseconds.
pub const MOST_DEFERRAL_MS: u64 = 300_000;

/// How work is told to write a checkpoint, and how it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointMode {
    /// SIGUSR1 to its first process; it answers with files in the checkpoint's folder.
    Signal,
    /// Numbers in a small file that it maps into its memory.
    SharedMemory,
    /// gRPC over a socket of its own.
    Callback,
}

impl CheckpointMode {
    /// All of them.
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

/// A text is no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no checkpoint mode; one of signal, shared_memory, callback")]
pub struct InvalidMode {
    /// As given.
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

/// Tells work to write one checkpoint. Each rank has a folder of its own for it, see
/// [`CheckpointOrder::folder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointOrder {
    /// From 1; of one allocation, in all its attempts, none is used twice.
    pub number: u32,
    /// Where checkpoints of this allocation go: an absolute path or, for modes in which work does not
    /// answer with files, a URL.
    pub directory: String,
    /// How long it may take, milliseconds; time for which it was put off does not count.
    pub timeout_ms: u64,
    /// More time that work gets once which is not done by then and [is
    /// answering](CheckpointOrder::is_answering), milliseconds.
    pub extension_ms: u64,
    /// How often work may put it off.
    pub most_deferrals: u32,
    /// How long it may put it off in all, milliseconds.
    pub most_deferral_ms: u64,
}

impl CheckpointOrder {
    /// With the usual extension, half of the timeout, and the usual deferrals.
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

    /// Where a rank's part of it goes.
    pub fn folder(&self, rank: u32) -> String {
        folder(&self.directory, self.number, rank)
    }

    /// Whether work that was last heard of at `heard_at` is slow but alive: that is at most a quarter of
    /// the timeout ago.
    pub fn is_answering(&self, heard_at: UnixMillis, now: UnixMillis) -> bool {
        now.since(heard_at) <= self.timeout_ms / 4
    }

    /// Whether `mode` can carry it out.
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

/// Whether checkpoints go to an object store and not to a filesystem.
pub fn is_url(directory: &str) -> bool {
    !directory.starts_with('/') && directory.contains("://")
}

/// Whether checkpoints of work in `mode` can go there.
pub fn check_directory(directory: &str, mode: CheckpointMode) -> Result<(), InvalidCheckpoint> {
    let wrong = |reason| {
        Err(InvalidCheckpoint::Directory {
            directory: directory.to_owned(),
            reason,
        })
    };
    if directory.len() > MAX_DIRECTORY_BYTES {
        return wrong("it may have 1024 bytes at most");
    }
    if directory.chars().any(char::is_control) {
        return wrong("it holds a control character");
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
        return wrong("it must not hold `..`");
    }
    Ok(())
}

/// Why a checkpoint cannot be asked for, or work not be prepared for any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheckpoint {
    /// Numbers begin with 1.
    #[error("number: must be at least 1")]
    Number,
    /// Nothing is written in no time.
    #[error("timeout_ms: must be at least 1")]
    Timeout,
    /// It is no place for it.
    #[error("directory {directory:?}: {reason}")]
    Directory {
        /// As given.
        directory: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// How a rank is prepared for checkpoints when it is launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSetup {
    /// How it will be told.
    pub mode: CheckpointMode,
    /// Where its checkpoints go.
    pub directory: String,
    /// The checkpoint it goes on from; `None`: it begins at the beginning.
    pub restore: Option<Restore>,
}

impl CheckpointSetup {
    /// Whether work can be prepared so.
    pub fn check(&self) -> Result<(), InvalidCheckpoint> {
        check_directory(&self.directory, self.mode)
    }
}

/// A checkpoint that work goes on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// Its number.
    pub number: u32,
    /// As in its order.
    pub directory: String,
}

impl Restore {
    /// Where a rank's part of it is.
    pub fn folder(&self, rank: u32) -> String {
        folder(&self.directory, self.number, rank)
    }
}

/// What became of a rank's part of a checkpoint. Nothing changes it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointOutcome {
    /// It is whole.
    Written {
        /// When that was seen, by the node's clock.
        at: UnixMillis,
        /// Bytes of the regular files in the rank's folder, or as the work said; `None` where that is
        /// not known.
        bytes: Option<u64>,
        /// From being asked for on, milliseconds.
        took_ms: u64,
    },
    /// It is not, and will never be.
    Failed {
        /// When that was known, by the node's clock.
        at: UnixMillis,
        /// Of what kind.
        cause: CheckpointFailure,
        /// In words.
        reason: String,
    },
}

impl CheckpointOutcome {
    /// Whether work can go on from it.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Written { .. })
    }
}

/// Why a checkpoint came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointFailure {
    /// The work did not answer in time.
    Unresponsive,
    /// It answered, and was not done in time.
    TooSlow,
    /// It said that it cannot.
    Declined,
    /// The job ended before.
    JobEnded,
    /// Its folder cannot be made or used, or its filesystem does not answer.
    Storage,
}

impl CheckpointFailure {
    /// All of them.
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

/// Where a rank's part of a checkpoint stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointStatus {
    /// The work was told, or will be as soon as it runs; it has said nothing yet.
    Asked {
        /// Since when, by the node's clock.
        at: UnixMillis,
    },
    /// The work has put it off.
    Deferred {
        /// It is asked again then, by the node's clock.
        until: UnixMillis,
        /// How often it has.
        times: u32,
    },
    /// The work has begun.
    Writing {
        /// When it was last heard of, by the node's clock.
        heard_at: UnixMillis,
    },
    /// It has ended, and that is written down on the node.
    Ended(CheckpointOutcome),
    /// Nothing was asked of this attempt under that number, and it has ended or was never here: nothing
    /// of it runs that could be asked.
    Gone,
}
