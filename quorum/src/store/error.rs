//! Errors of opening a data directory.

use lattice_quorum_types::VoterId;
use std::{io, path::PathBuf};

/// Reason why a data directory cannot be opened or restored. A failed opening leaves log entries, snapshots and the
/// segments that they name unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory, or a file in it, has another format.
    #[error(
        "{} has format {found}; this version of Lattice reads format {supported}. Nothing was \
         changed. Start the version that wrote it; or, while the other members are up and have a \
         leader, move the data directory away and start again: this member is then brought up to \
         date and votes only afterwards",
        .path.display()
    )]
    OtherFormat {
        /// Path of the directory or file.
        path: PathBuf,
        /// Format of the directory or file.
        found: u32,
        /// Format that this version reads.
        supported: u32,
    },
    /// The directory belongs to another member.
    #[error(
        "data directory {} belongs to voter {found} of cluster {found_cluster:?}, not to voter \
         {voter} of {cluster:?}; correct `data_dir`, `id` or `cluster`",
        .path.display()
    )]
    OtherOwner {
        /// Path of the directory.
        path: PathBuf,
        /// Cluster in the marker.
        found_cluster: String,
        /// Voter in the marker.
        found: VoterId,
        /// Configured cluster.
        cluster: String,
        /// Configured voter.
        voter: VoterId,
    },
    /// Another process uses the directory.
    #[error("data directory {} is in use by another process", .path.display())]
    InUse {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A file is missing, truncated or damaged.
    #[error(
        "{} is damaged: {reason}. This member must not start with it: restore the file from a \
         backup of this member; or, while the other members are up and have a leader, move the \
         data directory away and start again: this member is then brought up to date and votes \
         only afterwards. The other members are not affected",
        .path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Reason in words.
        reason: String,
    },
    /// A restore into the directory was interrupted.
    #[error(
        "a restore into {} was interrupted; empty the directory and restore again",
        .path.display()
    )]
    Unfinished {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The directory is not empty.
    #[error(
        "{} is not empty; a backup can be restored only into an empty data directory; move the \
         existing files away",
        .path.display()
    )]
    NotEmpty {
        /// Path of the directory.
        path: PathBuf,
    },
    /// An operation failed in the operating system.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
    pub(crate) fn damaged(path: impl Into<PathBuf>, reason: impl ToString) -> Self {
        Self::Damaged {
            path: path.into(),
            reason: reason.to_string(),
        }
    }
}
