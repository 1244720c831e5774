//! A data directory that begins with the state of a backup instead of with a founding.

use super::{LogStore, OpenError, SnapshotDir, dir};
use crate::{
    ground::{Files, Ground},
    types::{SnapshotMeta, Vote},
};
use lattice_quorum_state::{Sealed, SegmentId, Segments};
use lattice_quorum_types::{VoterId, membership::Incarnation};
use openraft::storage::RaftLogStorage as _;
use std::path::Path;

/// Stands in a directory while it is being made: what was cut short is not opened.
const UNFINISHED: &str = "RESTORING";

/// What it begins with.
pub struct Restored<'a> {
    /// Which life of the cluster.
    pub incarnation: Incarnation,
    /// In which term this member goes on.
    pub vote: Vote,
    /// What the snapshot covers; the log begins behind it.
    pub meta: SnapshotMeta,
    /// The state's own bytes.
    pub state: Vec<u8>,
    /// Segments that it made since.
    pub sealed: Vec<Sealed>,
    /// The others that it names.
    pub segments: Vec<SegmentId>,
    /// Where those are.
    pub from: &'a (dyn Segments + Sync),
}

/// Whether a restore into this directory was cut short.
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

/// Makes the directory. Its marker comes last, so that nothing that was cut short is ever opened.
pub(super) async fn make(
    ground: &Ground,
    path: &Path,
    cluster: &str,
    voter: VoterId,
    data: Restored<'_>,
) -> Result<(), OpenError> {
    let files = &*ground.files;
    files.make_folder(path).map_err(OpenError::io(path))?;
    let found = files.list(path).map_err(OpenError::io(path))?;
    check_finished(files, path)?;
    if !found.is_empty() {
        return Err(OpenError::NotEmpty {
            path: path.to_owned(),
        });
    }
    let unfinished = path.join(UNFINISHED);
    let text: &[u8] = b"A restore was cut short here. Empty this directory and restore again.\n";
    files
        .replace(&unfinished, &[text])
        .map_err(OpenError::io(&unfinished))?;
    let snapshots = path.join(dir::SNAPSHOTS);
    let stored = SnapshotDir::open(ground, &snapshots, None)?;
    let segments = stored.segments();
    for id in &data.segments {
        let bytes = data.from.read(id);
        let bytes = bytes.map_err(|fault| OpenError::damaged(path, fault))?;
        segments.put(id, &bytes).map_err(OpenError::io(path))?;
    }
    segments.add(data.sealed);
    segments.make_durable().map_err(OpenError::io(path))?;
    stored
        .store(&data.meta, &data.state)
        .map_err(OpenError::io(&snapshots))?;
    let log_path = path.join(dir::LOG);
    let mut log = LogStore::open(ground, &log_path, voter)?;
    let failed = |error: openraft::StorageError<VoterId>| OpenError::damaged(&log_path, error);
    log.save_vote(&data.vote).await.map_err(failed)?;
    if let Some(last) = data.meta.last_log_id {
        log.purge(last).await.map_err(failed)?;
        log.save_committed(Some(last)).await.map_err(failed)?;
    }
    log.close().await.map_err(OpenError::io(&log_path))?;
    drop(log);
    dir::write_marker(files, path, cluster, voter, (data.incarnation, false))?;
    files
        .remove(&unfinished)
        .map_err(OpenError::io(&unfinished))
}
