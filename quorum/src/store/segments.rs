//! Segments of the append-only tables: files `segments/<table>-<number>-<blake3>.seg`. The files are equal on all
//! members, so a lost file can be copied from another member.
//!
//! A newly sealed segment is held in memory, and read from there, until it is on disk. Until a snapshot names the
//! segment, its loss is harmless: the log seals it again. A snapshot is written only after every segment that it names.

use super::OpenError;
use crate::platform::{Files, Platform};
use bytes::Bytes;
use lattice_quorum_state::{SealedSegment, Segment, SegmentFault, SegmentId, Segments, State};
use lattice_quorum_types::membership::SegmentCounts;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

const EXTENSION: &str = "seg";
/// Bytes that may wait for the disk. Above this limit [`SegmentDir::write_behind`] waits.
const MAX_UNWRITTEN_BYTES: usize = 64 << 20;
/// Advice when no other member has the segment.
const NO_OTHERS: &str = "no other member is known to have it: restore it from a copy of this \
                         directory, or restore the cluster from a backup";

/// Segments of one member. Clones share one directory.
#[derive(Debug, Clone)]
pub struct SegmentDir {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    platform: Platform,
    path: PathBuf,
    /// Segments that may not be on disk yet.
    waiting: Mutex<BTreeMap<SegmentId, Bytes>>,
    /// Allows one writer at a time.
    writing: Mutex<()>,
    /// Whether a task is scheduled to write the waiting segments.
    is_due: AtomicBool,
    /// Whether the directory is closed; no waiting segment is written any more.
    is_closed: AtomicBool,
    /// Segments missing or truncated when the directory was opened, and not fetched since.
    missing: Mutex<BTreeSet<SegmentId>>,
    /// Number of checks since the start in which the scrubber found a segment intact.
    checked: AtomicU64,
    /// Number of segments fetched from other members since the start, because they were missing or damaged.
    replaced: AtomicU64,
}

impl SegmentDir {
    /// Checks that every segment that the state names is present, and removes all other files: the log seals those
    /// segments again. The content of a file is verified at each read. A missing segment is fetched later if other
    /// members exist; otherwise it is an error.
    pub(super) fn open(
        ground: &Platform,
        path: &Path,
        state: Option<&State>,
        has_others: bool,
    ) -> Result<Self, OpenError> {
        let files = &*ground.files;
        files.make_folder(path).map_err(OpenError::io(path))?;
        let dir = SegmentDir {
            shared: Arc::new(Shared {
                platform: ground.clone(),
                path: path.to_owned(),
                waiting: Mutex::default(),
                writing: Mutex::default(),
                is_due: AtomicBool::new(false),
                is_closed: AtomicBool::new(false),
                missing: Mutex::default(),
                checked: AtomicU64::new(0),
                replaced: AtomicU64::new(0),
            }),
        };
        let mut named = BTreeSet::new();
        if let Some(state) = state {
            for segment in state.segments() {
                let file = dir.file(&segment.id);
                if let Some(reason) = dir.absence_reason(segment)? {
                    if !has_others {
                        return Err(OpenError::damaged(file, format!("{reason}; {NO_OTHERS}")));
                    }
                    tracing::error!(
                        file = %file.display(), %reason,
                        "segment missing or damaged; its records cannot be read until another \
                         member sends it"
                    );
                    dir.shared.missing.lock().insert(segment.id);
                }
                named.insert(file);
            }
        }
        for file in files.list(path).map_err(OpenError::io(path))? {
            if !named.contains(&file) {
                tracing::info!(file = %file.display(), "unreferenced segment file removed");
                ignore_missing(files.remove(&file)).map_err(OpenError::io(&file))?;
            }
        }
        Ok(dir)
    }

    fn file(&self, id: &SegmentId) -> PathBuf {
        self.shared.path.join(format!("{id}.{EXTENSION}"))
    }

    fn files(&self) -> &dyn Files {
        &*self.shared.platform.files
    }

    /// Returns the reason why a segment is not present, from its file length alone.
    fn absence_reason(&self, segment: &Segment) -> Result<Option<String>, OpenError> {
        if self.shared.waiting.lock().contains_key(&segment.id) {
            return Ok(None);
        }
        let file = self.file(&segment.id);
        let found = self.files().length(&file).map_err(OpenError::io(&file))?;
        Ok(match found {
            Some(bytes) if bytes == segment.bytes => None,
            Some(bytes) => Some(format!("it has {bytes} bytes, expected {}", segment.bytes)),
            None => Some("it is missing".to_owned()),
        })
    }

    /// Returns whether a segment is present, from its file length alone.
    pub fn is_present(&self, segment: &Segment) -> bool {
        matches!(self.absence_reason(segment), Ok(None))
    }

    /// Takes over newly sealed segments.
    pub fn add(&self, sealed: Vec<SealedSegment>) {
        if !sealed.is_empty() {
            let sealed = sealed.into_iter().map(|sealed| (sealed.id, sealed.bytes));
            self.shared.waiting.lock().extend(sealed);
        }
    }

    /// Writes a segment from another source to disk, replacing a damaged one.
    pub fn put(&self, id: &SegmentId, bytes: &[u8]) -> io::Result<()> {
        if !id.names(bytes) {
            let other = format!("the bytes do not match segment {id}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, other));
        }
        self.files().replace(&self.file(id), &[bytes])?;
        self.shared.missing.lock().remove(id);
        Ok(())
    }

    /// Segments missing at the start and not fetched since.
    pub fn missing(&self) -> Vec<SegmentId> {
        self.shared.missing.lock().iter().copied().collect()
    }

    /// Returns whether a segment was missing at the start and has not been fetched since.
    pub(crate) fn is_missing(&self, id: &SegmentId) -> bool {
        self.shared.missing.lock().contains(id)
    }

    /// Counts a segment that the scrubber found intact.
    pub(crate) fn note_checked(&self) {
        self.shared.checked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a segment that was fetched from another member.
    pub(crate) fn note_replaced(&self) {
        self.shared.replaced.fetch_add(1, Ordering::Relaxed);
    }

    /// Counters of missing, checked and replaced segments.
    pub(crate) fn counts(&self) -> SegmentCounts {
        SegmentCounts {
            missing: self.shared.missing.lock().len() as u64,
            checked: self.shared.checked.load(Ordering::Relaxed),
            replaced: self.shared.replaced.load(Ordering::Relaxed),
        }
    }

    /// Writes all waiting segments. Segments added before the call are on disk afterwards.
    pub fn make_durable(&self) -> io::Result<()> {
        let _writing = self.shared.writing.lock();
        loop {
            if self.shared.is_closed.load(Ordering::Acquire) {
                return Err(io::Error::other("the data directory was closed"));
            }
            let next = self.shared.waiting.lock().first_key_value().map(copied);
            let Some((id, bytes)) = next else {
                return Ok(());
            };
            let file = self.file(&id);
            // The file may have been written before a crash, with the segment sealed again from the log.
            let is_there = match self.files().read(&file) {
                Ok(found) => id.names(&found),
                Err(_) => false,
            };
            if !is_there {
                self.files().replace(&file, &[&bytes])?;
            }
            self.shared.waiting.lock().remove(&id);
        }
    }

    /// Stops writing, and waits for the current write. The log seals waiting segments again.
    pub async fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        let dir = self.clone();
        let waiting = move || drop(dir.shared.writing.lock());
        if let Err(error) = self.shared.platform.workers.run(waiting).await {
            tracing::warn!(%error, "segment writer not confirmed stopped");
        }
    }

    /// Schedules the writing of all waiting segments. Waits for it only above the limit.
    pub async fn write_behind(&self) -> io::Result<()> {
        let waiting: usize = self.shared.waiting.lock().values().map(Bytes::len).sum();
        if waiting == 0 {
            return Ok(());
        }
        let (dir, workers) = (self.clone(), self.shared.platform.workers.clone());
        if waiting > MAX_UNWRITTEN_BYTES {
            return workers.run(move || dir.make_durable()).await.flatten();
        }
        if !self.shared.is_due.swap(true, Ordering::AcqRel) {
            tokio::spawn(async move {
                let writer = dir.clone();
                let written = workers.run(move || {
                    // Segments added from now on need a new task.
                    writer.shared.is_due.store(false, Ordering::Release);
                    writer.make_durable()
                });
                let written = written.await.flatten();
                let is_open = !dir.shared.is_closed.load(Ordering::Acquire);
                if let Some(error) = written.err().filter(|_| is_open) {
                    tracing::error!(
                        folder = %dir.shared.path.display(), %error,
                        "segments not written; ended allocations and audit entries stay in memory \
                         and in the log, and no snapshot can be made"
                    );
                }
            });
        }
        Ok(())
    }
}

/// Treats the removal of a missing file as success.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn copied((id, bytes): (&SegmentId, &Bytes)) -> (SegmentId, Bytes) {
    (*id, bytes.clone())
}

impl Segments for SegmentDir {
    fn read(&self, id: &SegmentId) -> Result<Bytes, SegmentFault> {
        if let Some(bytes) = self.shared.waiting.lock().get(id) {
            return Ok(bytes.clone());
        }
        let file = self.file(id);
        let read = self.files().read(&file).map(Bytes::from);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => id.fault("it is missing here"),
            _ => id.fault(format!("{}: {error}", file.display())),
        })
    }
}

#[cfg(test)]
mod tests;
