//! Data directory that starts with the state of a backup instead of a founding.

use super::{
    LogStore, OpenError, SnapshotDir, log::LOG_FILE, marker::write_marker, snapshot::SNAPSHOTS,
};
use crate::{
    platform::{Files, Platform},
    raft::types::{SnapshotMeta, Vote},
};
use lattice_quorum_state::{SealedSegment, SegmentId, Segments};
use lattice_quorum_types::{VoterId, membership::Incarnation};
use openraft::storage::RaftLogStorage as _;
use std::path::Path;

/// File that exists while a restore is in progress: an interrupted restore is not opened.
const UNFINISHED: &str = "RESTORING";

/// Initial content of a restored directory.
pub struct RestoredContent<'a> {
    /// Incarnation of the restored cluster.
    pub incarnation: Incarnation,
    /// Vote, with the term in which this member continues.
    pub vote: Vote,
    /// Snapshot metadata; the log starts after the entries that it covers.
    pub meta: SnapshotMeta,
    /// Encoded state.
    pub state: Vec<u8>,
    /// Segments sealed since the backup.
    pub sealed: Vec<SealedSegment>,
    /// Other segments that the state names.
    pub segments: Vec<SegmentId>,
    /// Source of the other segments.
    pub source: &'a (dyn Segments + Sync),
}

/// Checks that no restore into this directory was interrupted.
pub(super) fn check_finished(files: &dyn Files, path: &Path) -> Result<(), OpenError> {
    let unfinished = path.join(UNFINISHED);
    match files.length(&unfinished) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(OpenError::Unfinished {
            path: path.to_owned(),
        }),
        Err(source) => Err(OpenError::Io {
            path: unfinished,
            source,
        }),
    }
}

/// Creates the directory. The file `RESTORING` is removed last, so that an interrupted restore is never opened.
pub(super) async fn create_restored(
    platform: &Platform,
    path: &Path,
    cluster: &str,
    voter: VoterId,
    data: RestoredContent<'_>,
) -> Result<(), OpenError> {
    let files = &*platform.files;
    files.make_folder(path).map_err(OpenError::io(path))?;
    let found = files.list(path).map_err(OpenError::io(path))?;
    check_finished(files, path)?;
    if !found.is_empty() {
        return Err(OpenError::NotEmpty {
            path: path.to_owned(),
        });
    }
    let unfinished = path.join(UNFINISHED);
    let text: &[u8] = b"A restore into this directory was interrupted. Empty the directory and \
                        restore again.\n";
    files
        .replace(&unfinished, &[text])
        .map_err(OpenError::io(&unfinished))?;
    let snapshots = path.join(SNAPSHOTS);
    let stored = SnapshotDir::open(platform, &snapshots, None)?;
    let segments = stored.segments();
    for id in &data.segments {
        let bytes = data.source.read(id);
        let bytes = bytes.map_err(|fault| OpenError::damaged(path, fault))?;
        segments.put(id, &bytes).map_err(OpenError::io(path))?;
    }
    segments.add(data.sealed);
    segments.make_durable().map_err(OpenError::io(path))?;
    stored
        .store(&data.meta, &data.state)
        .map_err(OpenError::io(&snapshots))?;
    let log_path = path.join(LOG_FILE);
    let mut log = LogStore::open(platform, &log_path, voter)?;
    let failed = |error: openraft::StorageError<VoterId>| OpenError::damaged(&log_path, error);
    log.save_vote(&data.vote).await.map_err(failed)?;
    if let Some(last) = data.meta.last_log_id {
        log.purge(last).await.map_err(failed)?;
        log.save_committed(Some(last)).await.map_err(failed)?;
    }
    log.close().await.map_err(OpenError::io(&log_path))?;
    drop(log);
    write_marker(files, path, cluster, voter, (data.incarnation, false))?;
    files
        .remove(&unfinished)
        .map_err(OpenError::io(&unfinished))
}
