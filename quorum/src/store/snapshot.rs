//! Snapshot files: `[magic][format u16][blake3][meta length u32][meta][state]`, with the digest over everything after
//! it. The newest two are kept.

use super::{OpenError, SegmentDir};
use crate::{
    platform::{Files, Platform},
    raft::types::{LogId, SnapshotMeta},
};
use bytes::Bytes;
use lattice_quorum_state::{RestoreError, State};
use parking_lot::Mutex;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const MAGIC: &[u8; 8] = b"LATSNAP\n";
/// Format of the frame around the state.
const FORMAT: u16 = 1;
const HEADER_BYTES: usize = 8 + 2 + 32;
/// Number of snapshots kept. The older one serves when the newest turns out to be damaged.
const MAX_SNAPSHOTS: usize = 2;
const EXTENSION: &str = "snap";
/// Folder of the snapshots in the data directory.
pub(super) const SNAPSHOTS: &str = "snapshots";
/// Folder of the segments, next to that of the snapshots.
const SEGMENTS: &str = "segments";

/// Content of a snapshot file.
#[derive(Debug, Clone)]
pub struct SnapshotContent {
    /// Metadata: the log entries that the snapshot covers, and the membership.
    pub meta: SnapshotMeta,
    /// Encoded state.
    pub state: Bytes,
}

/// Snapshots of one member. Clones share one directory.
#[derive(Debug, Clone)]
pub struct SnapshotDir {
    platform: Platform,
    path: PathBuf,
    current: Arc<Mutex<Option<(PathBuf, SnapshotMeta)>>>,
    /// Snapshot read when the directory was opened, until it is taken.
    opened: Arc<Mutex<Option<(SnapshotMeta, State)>>>,
    segments: SegmentDir,
}

enum SnapshotFault {
    OtherFormat { found: u32, supported: u32 },
    Damaged(String),
}

impl SnapshotDir {
    /// Finds the newest usable snapshot. A snapshot that ends before `purged` is unusable: the log no longer has the
    /// entries after it.
    pub(super) fn open(
        ground: &Platform,
        path: &Path,
        purged: Option<u64>,
    ) -> Result<Self, OpenError> {
        let storage = &*ground.files;
        storage.make_folder(path).map_err(OpenError::io(path))?;
        let mut damaged: Option<OpenError> = None;
        let (mut current, mut opened) = (None, None);
        for file in files(storage, path).map_err(OpenError::io(path))? {
            let bytes = storage.read(&file).map_err(OpenError::io(&file))?;
            match decode_frame(bytes.into()).and_then(restore) {
                Ok((meta, state)) => {
                    let index = meta.last_log_id.map(|id| id.index);
                    if index >= purged {
                        current = Some((file, meta.clone()));
                        opened = Some((meta, state));
                    }
                    break;
                }
                Err(SnapshotFault::OtherFormat { found, supported }) => {
                    return Err(OpenError::OtherFormat {
                        path: file,
                        found,
                        supported,
                    });
                }
                Err(SnapshotFault::Damaged(reason)) => {
                    tracing::error!(file = %file.display(), %reason, "snapshot damaged");
                    damaged.get_or_insert_with(|| OpenError::damaged(file, reason));
                }
            }
        }
        if current.is_none() && purged.is_some() {
            let missing =
                || OpenError::damaged(path, "the snapshot that the log begins with is missing");
            return Err(damaged.unwrap_or_else(missing));
        }
        let members = |(meta, _): &(SnapshotMeta, State)| meta.last_membership.nodes().count();
        let has_others = opened.as_ref().is_some_and(|opened| members(opened) > 1);
        let named = opened.as_ref().map(|(_, state): &(_, State)| state);
        let folder = path.with_file_name(SEGMENTS);
        let segments = SegmentDir::open(ground, &folder, named, has_others)?;
        // A crash during a write leaves a temporary file. The next snapshot has another name and does not replace it.
        for left in storage.list(path).map_err(OpenError::io(path))? {
            if !is_snapshot(&left) {
                tracing::info!(file = %left.display(), "file removed: it is not a snapshot");
                storage.remove(&left).map_err(OpenError::io(&left))?;
            }
        }
        Ok(Self {
            platform: ground.clone(),
            path: path.to_owned(),
            segments,
            current: Arc::new(Mutex::new(current)),
            opened: Arc::new(Mutex::new(opened)),
        })
    }

    /// File system, executor and simulation hooks of the member.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Directory of the segments that the snapshots name.
    pub fn segments(&self) -> &SegmentDir {
        &self.segments
    }

    fn current(&self) -> parking_lot::MutexGuard<'_, Option<(PathBuf, SnapshotMeta)>> {
        self.current.lock()
    }

    /// Last entry that the newest snapshot covers.
    pub fn last_log_id(&self) -> Option<LogId> {
        self.current()
            .as_ref()
            .and_then(|(_, meta)| meta.last_log_id)
    }

    /// Takes the state that was read when the directory was opened. `None` after the first call.
    pub fn take_opened(&self) -> Option<(SnapshotMeta, State)> {
        self.opened.lock().take()
    }

    /// Loads the newest snapshot.
    pub fn load(&self) -> io::Result<Option<SnapshotContent>> {
        let Some((path, _)) = self.current().clone() else {
            return Ok(None);
        };
        match decode_frame(self.platform.files.read(&path)?.into()) {
            Ok(loaded) => Ok(Some(loaded)),
            Err(SnapshotFault::Damaged(reason)) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("snapshot {}: {reason}", path.display()),
            )),
            Err(SnapshotFault::OtherFormat { found, supported }) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "snapshot {} has format {found}; this version of Lattice reads format {supported}",
                    path.display()
                ),
            )),
        }
    }

    /// Stores a new snapshot and removes old ones. Every segment that the new snapshot names must be on disk.
    pub fn store(&self, meta: &SnapshotMeta, state: &[u8]) -> io::Result<()> {
        let encoded = postcard::to_stdvec(meta).map_err(io::Error::other)?;
        let length = u32::try_from(encoded.len())
            .map_err(io::Error::other)?
            .to_le_bytes();
        let digest = digest(&[&length, &encoded, state]);
        let (index, term) = meta
            .last_log_id
            .map_or((0, 0), |id| (id.index, id.leader_id.term));
        let path = self.path.join(format!("{index:020}-{term}.{EXTENSION}"));
        let format = FORMAT.to_le_bytes();
        let parts: [&[u8]; 6] = [MAGIC, &format, &digest, &length, &encoded, state];
        self.platform.files.replace(&path, &parts)?;
        *self.current() = Some((path, meta.clone()));
        let storage = &*self.platform.files;
        for old in files(storage, &self.path)?.into_iter().skip(MAX_SNAPSHOTS) {
            storage.remove(&old)?;
        }
        Ok(())
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// Snapshot files, newest first: names sort by index.
fn files(storage: &dyn Files, path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = storage.list(path)?;
    found.retain(|file| is_snapshot(file));
    found.sort();
    found.reverse();
    Ok(found)
}

fn is_snapshot(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == EXTENSION)
}

/// Verifies a snapshot file and returns its parts.
fn decode_frame(bytes: Bytes) -> Result<SnapshotContent, SnapshotFault> {
    let damaged = |reason: &str| SnapshotFault::Damaged(reason.to_owned());
    let (magic, rest) = bytes
        .split_first_chunk::<8>()
        .ok_or_else(|| damaged("too short"))?;
    if magic != MAGIC {
        return Err(damaged("it is not a snapshot"));
    }
    let (format, rest) = rest
        .split_first_chunk::<2>()
        .ok_or_else(|| damaged("too short"))?;
    let format = u16::from_le_bytes(*format);
    if format != FORMAT {
        let (found, supported) = (u32::from(format), u32::from(FORMAT));
        return Err(SnapshotFault::OtherFormat { found, supported });
    }
    let (sum, rest) = rest
        .split_first_chunk::<32>()
        .ok_or_else(|| damaged("too short"))?;
    if digest(&[rest]) != *sum {
        return Err(damaged("its checksum does not match"));
    }
    let (length, rest) = rest
        .split_first_chunk::<4>()
        .ok_or_else(|| damaged("too short"))?;
    let length = u32::from_le_bytes(*length) as usize;
    let meta = rest.get(..length).ok_or_else(|| damaged("too short"))?;
    let meta = postcard::from_bytes(meta).map_err(|e| damaged(&e.to_string()))?;
    let state = bytes.slice(HEADER_BYTES + 4 + length..);
    Ok(SnapshotContent { meta, state })
}

fn restore(stored: SnapshotContent) -> Result<(SnapshotMeta, State), SnapshotFault> {
    let state = State::restore(&stored.state).map_err(|e| match e {
        RestoreError::OtherFormat { found, supported } => SnapshotFault::OtherFormat {
            found: u32::from(found),
            supported: u32::from(supported),
        },
        other => SnapshotFault::Damaged(other.to_string()),
    })?;
    Ok((stored.meta, state))
}
