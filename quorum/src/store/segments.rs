//! Segments of the append-only tables: `segments/<table>-<number>-<blake3>.seg`, as they were sealed.
//! The same files on every member: one that is lost can be copied from another.
//!
//! A segment that was just sealed is kept in memory until it is on disk, and read from there. Until a
//! snapshot names it nothing is lost with it: the log makes it anew. A snapshot is written only after
//! everything that it names.

use super::OpenError;
use crate::ground::{Files, Ground};
use bytes::Bytes;
use lattice_quorum_state::{Sealed, Segment, SegmentFault, SegmentId, Segments, State};
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
/// Bytes that may wait to be written; more holds up those who make them.
const MOST_WAITING: usize = 64 << 20;
/// What to do where there is nobody to bring a segment from.
const NO_OTHERS: &str = "no other member is known that has it: bring it back from a copy of this directory, \
                         or restore the cluster from a backup";

/// The segments of one member. Clones share it.
#[derive(Debug, Clone)]
pub struct SegmentDir {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ground: Ground,
    path: PathBuf,
    /// Not known to be on disk.
    waiting: Mutex<BTreeMap<SegmentId, Bytes>>,
    /// One at a time.
    writing: Mutex<()>,
    /// Whether somebody is about to write what waits.
    is_due: AtomicBool,
    /// Nothing is written any more.
    is_closed: AtomicBool,
    /// Not there, or cut short, when the directory was opened, and not brought since.
    missing: Mutex<BTreeSet<SegmentId>>,
    /// Read of itself and found as they were, since the start.
    checked: AtomicU64,
    /// Brought from another member since the start, because what was here was missing or damaged.
    replaced: AtomicU64,
}

impl SegmentDir {
    /// Looks whether everything that the state names is there, and removes what it does not name: the
    /// log makes that anew. What is in the files is verified when they are read, each time. What is
    /// not there is brought later where there are other members to bring it from, and refused
    /// elsewhere.
    pub(super) fn open(
        ground: &Ground,
        path: &Path,
        state: Option<&State>,
        has_others: bool,
    ) -> Result<Self, OpenError> {
        let files = &*ground.files;
        files.make_folder(path).map_err(OpenError::io(path))?;
        let dir = SegmentDir {
            shared: Arc::new(Shared {
                ground: ground.clone(),
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
                if let Some(reason) = dir.wrong_with(segment)? {
                    if !has_others {
                        return Err(OpenError::damaged(file, format!("{reason}; {NO_OTHERS}")));
                    }
                    tracing::error!(
                        file = %file.display(), %reason,
                        "it is brought from another member; until then what is in it cannot be read"
                    );
                    dir.shared.missing.lock().insert(segment.id);
                }
                named.insert(file);
            }
        }
        for file in files.list(path).map_err(OpenError::io(path))? {
            if !named.contains(&file) {
                tracing::info!(file = %file.display(), "removed: no snapshot names it");
                unless_gone(files.remove(&file)).map_err(OpenError::io(&file))?;
            }
        }
        Ok(dir)
    }

    fn file(&self, id: &SegmentId) -> PathBuf {
        self.shared.path.join(format!("{id}.{EXTENSION}"))
    }

    fn files(&self) -> &dyn Files {
        &*self.shared.ground.files
    }

    /// Why it is not there, as far as that is known without reading it.
    fn wrong_with(&self, segment: &Segment) -> Result<Option<String>, OpenError> {
        if self.shared.waiting.lock().contains_key(&segment.id) {
            return Ok(None);
        }
        let file = self.file(&segment.id);
        let found = self.files().length(&file).map_err(OpenError::io(&file))?;
        Ok(match found {
            Some(bytes) if bytes == segment.bytes => None,
            Some(bytes) => Some(format!(
                "it has {bytes} bytes where {} belong",
                segment.bytes
            )),
            None => Some("it is missing".to_owned()),
        })
    }

    /// Whether it is there, as far as that is known without reading it.
    pub fn has(&self, segment: &Segment) -> bool {
        matches!(self.wrong_with(segment), Ok(None))
    }

    /// Takes over segments that were just sealed.
    pub fn add(&self, sealed: Vec<Sealed>) {
        if !sealed.is_empty() {
            let sealed = sealed.into_iter().map(|sealed| (sealed.id, sealed.bytes));
            self.shared.waiting.lock().extend(sealed);
        }
    }

    /// Puts a segment that came from elsewhere on disk, also over one that is damaged.
    pub fn put(&self, id: &SegmentId, bytes: &[u8]) -> io::Result<()> {
        if !id.names(bytes) {
            let other = format!("these are not the bytes of segment {id}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, other));
        }
        self.files().replace(&self.file(id), &[bytes])?;
        self.shared.missing.lock().remove(id);
        Ok(())
    }

    /// What was not there at the start, and was not brought since.
    pub fn missing(&self) -> Vec<SegmentId> {
        self.shared.missing.lock().iter().copied().collect()
    }

    /// Whether this one was not there at the start, and was not brought since.
    pub(crate) fn is_missing(&self, id: &SegmentId) -> bool {
        self.shared.missing.lock().contains(id)
    }

    /// Notes that one was read of itself and is as it was.
    pub(crate) fn note_checked(&self) {
        self.shared.checked.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one was brought from another member.
    pub(crate) fn note_replaced(&self) {
        self.shared.replaced.fetch_add(1, Ordering::Relaxed);
    }

    /// How they fare.
    pub(crate) fn counts(&self) -> SegmentCounts {
        SegmentCounts {
            missing: self.shared.missing.lock().len() as u64,
            checked: self.shared.checked.load(Ordering::Relaxed),
            replaced: self.shared.replaced.load(Ordering::Relaxed),
        }
    }

    /// Writes everything that waits. Afterwards what was added before is on disk.
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
            // Written before a crash, and made anew by the log since.
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

    /// Ends writing, and waits until nobody writes. What still waits is made anew by the log.
    pub async fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        let dir = self.clone();
        let waiting = move || drop(dir.shared.writing.lock());
        if let Err(error) = self.shared.ground.workers.run(waiting).await {
            tracing::warn!(%error, "nobody knows whether segments are still written");
        }
    }

    /// Has everything that waits written, by somebody else as long as it is not too much.
    pub async fn write_behind(&self) -> io::Result<()> {
        let waiting: usize = self.shared.waiting.lock().values().map(Bytes::len).sum();
        if waiting == 0 {
            return Ok(());
        }
        let (dir, workers) = (self.clone(), self.shared.ground.workers.clone());
        if waiting > MOST_WAITING {
            return workers.run(move || dir.make_durable()).await.flatten();
        }
        if !self.shared.is_due.swap(true, Ordering::AcqRel) {
            tokio::spawn(async move {
                let writer = dir.clone();
                let written = workers.run(move || {
                    // What is added from now on has to be told anew.
                    writer.shared.is_due.store(false, Ordering::Release);
                    writer.make_durable()
                });
                let written = written.await.flatten();
                let is_open = !dir.shared.is_closed.load(Ordering::Acquire);
                if let Some(error) = written.err().filter(|_| is_open) {
                    tracing::error!(
                        folder = %dir.shared.path.display(), %error,
                        "ended allocations and audit entries cannot be written; they are kept in \
                         memory and in the log, and no snapshot can be made"
                    );
                }
            });
        }
        Ok(())
    }
}

/// Whether nothing is wrong with a file that is gone already.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
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
