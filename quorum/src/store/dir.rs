//! Data directory: opening its parts in an order that makes a crash harmless.

use super::{
    DirectoryIncarnation, LogStore, OpenError, RestoredContent, SnapshotDir,
    log::LOG_FILE,
    marker::{check_marker, read_marker, write_marker},
    restored,
    snapshot::SNAPSHOTS,
};
use crate::platform::Platform;
use lattice_quorum_types::{
    VoterId,
    membership::Incarnation,
    planted::{self, Bug},
};
use std::{path::Path, sync::Arc};

/// Opened data directory. Owned by one process at a time.
pub struct DataDir {
    /// Log, vote and commit point.
    pub log: LogStore,
    /// Snapshots.
    pub snapshots: SnapshotDir,
    /// Incarnation of the directory.
    pub directory_incarnation: Arc<DirectoryIncarnation>,
}

impl std::fmt::Debug for DataDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataDir")
    }
}

impl DataDir {
    /// As [`DataDir::open_on`], on the host's files.
    #[cfg(test)]
    pub fn open(path: &Path, cluster: &str, voter: VoterId) -> Result<Self, OpenError> {
        Self::open_on(&Platform::default(), path, cluster, voter)
    }

    /// Opens the directory, or creates it if it is missing or empty.
    pub fn open_on(
        platform: &Platform,
        path: &Path,
        cluster: &str,
        voter: VoterId,
    ) -> Result<Self, OpenError> {
        let files = &*platform.files;
        restored::check_finished(files, path)?;
        let (log_path, snapshots) = (path.join(LOG_FILE), path.join(SNAPSHOTS));
        let log_bytes = files.length(&log_path).unwrap_or(None);
        let marker = read_marker(files, path)?;
        let is_new = marker.is_none();
        let incarnation = marker
            .as_ref()
            .map_or(Incarnation::NONE, |marker| marker.incarnation);
        let was_blank = marker.as_ref().is_none_or(|marker| marker.blank)
            && !planted::is_planted(Bug::BlankForgotten);
        match marker {
            Some(marker) => {
                check_marker(path, &marker, cluster, voter)?;
                match log_bytes {
                    Some(0) => return Err(OpenError::damaged(log_path, "it is empty")),
                    None => return Err(OpenError::damaged(log_path, "it is missing")),
                    Some(_) => {}
                }
            }
            None => files
                .make_folder(&snapshots)
                .map_err(OpenError::io(&snapshots))?,
        }
        let log = LogStore::open(platform, &log_path, voter)?;
        let snapshots = SnapshotDir::open(platform, &snapshots, log.purged_index())?;
        if !log.reaches_commit_point(snapshots.last_log_id()) {
            let reason = "committed entries at its end are missing";
            return Err(OpenError::damaged(log_path, reason));
        }
        // The marker is written last: with a marker, a missing log file is a loss and not a new member.
        let blank = was_blank || log.last().is_none();
        if is_new {
            write_marker(files, path, cluster, voter, (incarnation, blank))?;
        }
        let (files, path) = (platform.files.clone(), path.to_owned());
        let marked = DirectoryIncarnation::new(files, path, cluster, voter, (incarnation, blank));
        Ok(Self {
            log,
            snapshots,
            directory_incarnation: Arc::new(marked),
        })
    }

    /// Creates a directory that starts with the state of a backup. The directory must be missing or empty.
    pub async fn restore(
        ground: &Platform,
        path: &Path,
        cluster: &str,
        voter: VoterId,
        data: RestoredContent<'_>,
    ) -> Result<(), OpenError> {
        restored::create_restored(ground, path, cluster, voter, data).await
    }
}
