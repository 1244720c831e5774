//! The log as openraft sees it: recent entries in memory, all of them in redb.

use super::{
    OpenError, row,
    writer::{self, COMMITTED, LOG, Lazy, META, PURGED, VOTE, Write, read_meta},
};
use crate::types::{Entry, LogId, StorageError, Types, Vote};
use lattice_quorum_types::VoterId;
use openraft::{
    AnyError, LogState, RaftLogId, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use redb::{Database, ReadableDatabase};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
};
use tokio::sync::oneshot;

/// Entries kept in memory, bytes of their encoding: what followers that keep up are served from.
const CACHE_BYTES: usize = 32 << 20;
/// Most bytes of entries in one replication request; one entry at least.
const MAX_READ_BYTES: usize = 2 << 20;

struct Cached {
    entry: Entry,
    bytes: usize,
    /// Which append wrote it; it may leave the cache once that one is on disk.
    seq: u64,
}

#[derive(Default)]
struct Index {
    cache: BTreeMap<u64, Cached>,
    cached_bytes: usize,
    /// Appends handed to the writer.
    appends: u64,
    /// Appends known to be on disk.
    flushed: u64,
    last: Option<LogId>,
    purged: Option<LogId>,
    vote: Option<Vote>,
    committed: Option<LogId>,
}

impl Index {
    fn insert(&mut self, entry: Entry, bytes: usize, seq: u64) {
        self.last = Some(entry.log_id);
        let cached = Cached { entry, bytes, seq };
        self.cached_bytes += bytes;
        if let Some(old) = self.cache.insert(cached.entry.log_id.index, cached) {
            self.cached_bytes -= old.bytes;
        }
    }
    /// Drops the oldest entries that are on disk, down to the bound.
    fn shrink(&mut self) {
        while self.cached_bytes > CACHE_BYTES && self.cache.len() > 1 {
            match self.cache.first_entry() {
                Some(first) if first.get().seq <= self.flushed => {
                    self.cached_bytes -= first.remove().bytes;
                }
                _ => return,
            }
        }
    }
    fn drop_outside(&mut self, keep: impl Fn(u64) -> bool) {
        let mut dropped = 0;
        self.cache.retain(|index, cached| {
            let kept = keep(*index);
            dropped += if kept { 0 } else { cached.bytes };
            kept
        });
        self.cached_bytes -= dropped;
    }
}

/// Log, vote and commit point of one member. Clones share it.
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
}

struct Shared {
    index: Arc<Mutex<Index>>,
    database: Arc<Database>,
    lazy: Lazy,
    queue: Mutex<Option<mpsc::Sender<Write>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The writer ends when nobody can write any more; the file is free once it has.
        lock(&self.queue).take();
        if let Some(writer) = lock(&self.writer).take() {
            let _ = writer.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogStore {
    /// Opens or creates the log, reads and verifies all of it, and starts the writer.
    pub(super) fn open(path: &Path, voter: VoterId) -> Result<Self, OpenError> {
        let database = open_database(path)?;
        let mut index = load(&database).map_err(|reason| OpenError::damaged(path, reason))?;
        index.vote = index.vote.map(|vote| without_leadership(vote, voter));
        let (queue, writes) = mpsc::channel();
        let (index, database) = (Arc::new(Mutex::new(index)), Arc::new(database));
        let lazy = Lazy::default();
        let writer = std::thread::Builder::new()
            .name("quorum-log".to_owned())
            .spawn({
                let (index, database, lazy) = (index.clone(), database.clone(), lazy.clone());
                move || {
                    writer::run(&database, &writes, &lazy, |seq| {
                        let mut index = lock(&index);
                        index.flushed = index.flushed.max(seq);
                        index.shrink();
                    });
                }
            });
        let writer = writer.map_err(OpenError::io(path))?;
        let (queue, writer) = (Mutex::new(Some(queue)), Mutex::new(Some(writer)));
        Ok(Self {
            shared: Arc::new(Shared {
                index,
                database,
                lazy,
                queue,
                writer,
            }),
        })
    }

    /// Last entry, on disk or on its way there.
    pub fn last(&self) -> Option<LogId> {
        lock(&self.shared.index).last
    }

    /// Last entry that was purged.
    pub(super) fn purged_index(&self) -> Option<u64> {
        lock(&self.shared.index).purged.map(|id| id.index)
    }

    /// Whether everything up to the commit point is in the log or in a snapshot up to `snapshot`.
    pub(super) fn reaches_commit_point(&self, snapshot: Option<LogId>) -> bool {
        let index = lock(&self.shared.index);
        index.committed <= index.last.max(snapshot)
    }

    /// Writes what is left and ends the writer. Later writes fail.
    pub async fn close(&self) -> io::Result<()> {
        let closed = self.write(|done| Write::Close { done }).await;
        lock(&self.shared.queue).take();
        closed
    }

    fn send(&self, write: Write) -> io::Result<()> {
        let closed = || io::Error::other("the log is closed");
        let queue = lock(&self.shared.queue);
        queue
            .as_ref()
            .ok_or_else(closed)?
            .send(write)
            .map_err(|_| closed())
    }

    async fn write(
        &self,
        make: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Write,
    ) -> io::Result<()> {
        let (done, waiting) = oneshot::channel();
        self.send(make(done))?;
        waiting
            .await
            .map_err(|_| io::Error::other("the log is closed"))?
    }

    fn read(&self, start: u64, end: u64, max_bytes: usize) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let first_cached = {
            let index = lock(&self.shared.index);
            let first = index.purged.map_or(0, |id| id.index + 1).max(start);
            let end = index.last.map_or(0, |id| id.index + 1).min(end);
            if first >= end {
                return Ok(entries);
            }
            let cached_from = index
                .cache
                .first_key_value()
                .map_or(end, |(i, _)| *i)
                .min(end);
            if cached_from <= first {
                for (_, cached) in index.cache.range(first..end) {
                    bytes += cached.bytes;
                    if bytes > max_bytes && !entries.is_empty() {
                        break;
                    }
                    entries.push(cached.entry.clone());
                }
                return Ok(entries);
            }
            first
        };
        // Older than the cache: from disk, and at once to the end, so that the answer has no gap.
        self.read_disk(first_cached, end, max_bytes)
    }

    fn read_disk(&self, start: u64, end: u64, max_bytes: usize) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let read = || -> Result<_, redb::Error> {
            Ok(self.shared.database.begin_read()?.open_table(LOG)?)
        };
        let table = read().map_err(|e| e.to_string())?;
        for item in table.range(start..end).map_err(|e| e.to_string())? {
            let (index, row) = item.map_err(|e| e.to_string())?;
            bytes += row.value().len();
            if bytes > max_bytes && !entries.is_empty() {
                return Ok(entries);
            }
            entries.push(row::decode(index.value(), row.value())?);
        }
        // The newest may be in memory only.
        let next = entries.last().map_or(start, |e: &Entry| e.log_id.index + 1);
        let index = lock(&self.shared.index);
        for (expected, (i, cached)) in (next..).zip(index.cache.range(next..end.max(next))) {
            bytes += cached.bytes;
            if *i != expected || bytes > max_bytes && !entries.is_empty() {
                break;
            }
            entries.push(cached.entry.clone());
        }
        Ok(entries)
    }
}

/// Whether the error speaks of what is in the file, and not of reading it.
fn is_content(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof)
}

/// A member that led when it ended does not begin as the leader of the same term. openraft would
/// let it, and would take the commit point on disk, which may be an old one, for all that was
/// committed: its reads could miss what had been acknowledged. It stands for election instead;
/// the leader of a new term reads nothing before an entry of that term is committed.
fn without_leadership(vote: Vote, voter: VoterId) -> Vote {
    if vote.leader_id.node_id == voter {
        Vote::new(vote.leader_id.term, voter)
    } else {
        vote
    }
}

/// redb checks its own pages; what it answers with a panic is damage as well.
fn open_database(path: &Path) -> Result<Database, OpenError> {
    let open = || {
        let database = Database::builder().set_cache_size(16 << 20).create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(LOG)?;
        transaction.open_table(META)?;
        transaction.commit()?;
        Ok(database)
    };
    let opened: Result<Result<Database, redb::Error>, _> = catch_unwind(AssertUnwindSafe(open));
    match opened {
        Ok(Ok(database)) => Ok(database),
        Ok(Err(redb::Error::DatabaseAlreadyOpen)) => Err(OpenError::InUse {
            path: path.parent().unwrap_or(path).to_owned(),
        }),
        Ok(Err(redb::Error::Io(source))) if !is_content(&source) => Err(OpenError::Io {
            path: path.to_owned(),
            source,
        }),
        Ok(Err(error)) => Err(OpenError::damaged(path, error)),
        Err(_) => Err(OpenError::damaged(
            path,
            "its structure is broken (is it truncated?)",
        )),
    }
}

/// Reads everything, so that damage is found now and not in the middle of work.
fn load(database: &Database) -> Result<Index, String> {
    let mut index = Index {
        vote: read_meta(database, VOTE)?,
        committed: read_meta(database, COMMITTED)?,
        purged: read_meta(database, PURGED)?,
        ..Index::default()
    };
    index.last = index.purged;
    let read = || -> Result<_, redb::Error> { Ok(database.begin_read()?.open_table(LOG)?) };
    let table = read().map_err(|e| e.to_string())?;
    for item in table.range::<u64>(..).map_err(|e| e.to_string())? {
        let (key, row) = item.map_err(|e| e.to_string())?;
        let entry: Entry = row::decode(key.value(), row.value())?;
        let expected = index.last.map_or(0, |id| id.index + 1);
        if entry.log_id.index != expected || key.value() != expected {
            return Err(format!(
                "entry {expected} is missing, {} follows",
                key.value()
            ));
        }
        index.insert(entry, row.value().len(), 0);
        index.shrink();
    }
    Ok(index)
}

fn read_failed(reason: String) -> StorageIOError<VoterId> {
    StorageIOError::read_logs(AnyError::error(reason))
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(i) => *i,
            Bound::Excluded(i) => i.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(i) => i.saturating_add(1),
            Bound::Excluded(i) => *i,
            Bound::Unbounded => u64::MAX,
        };
        Ok(self.read(start, end, usize::MAX).map_err(read_failed)?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self.read(start, end, MAX_READ_BYTES).map_err(read_failed)?)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let index = lock(&self.shared.index);
        Ok(LogState {
            last_purged_log_id: index.purged,
            last_log_id: index.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let saved = self.write(|done| Write::Vote { vote, done }).await;
        saved.map_err(|e| StorageIOError::write_vote(AnyError::new(&e)))?;
        lock(&self.shared.index).vote = Some(vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(lock(&self.shared.index).vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        lock(&self.shared.index).committed = committed;
        self.shared.lazy.set(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(lock(&self.shared.index).committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let failed = |reason: String| StorageIOError::write_logs(AnyError::error(reason));
        let mut rows = Vec::new();
        let seq = {
            let mut index = lock(&self.shared.index);
            index.appends += 1;
            let seq = index.appends;
            for entry in entries {
                let row = row::encode(entry.log_id.index, &entry).map_err(failed)?;
                let bytes = row.len();
                rows.push((entry.log_id.index, row));
                index.insert(entry, bytes, seq);
            }
            seq
        };
        self.send(Write::Append { rows, seq, flushed })
            .map_err(|e| failed(e.to_string()))?;
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let since = log_id.index;
        // The entry before stays; its term is in the cache or on disk.
        let before = match since.checked_sub(1) {
            Some(i) => {
                let read = self.read(i, since, usize::MAX).map_err(read_failed)?;
                read.last().map(|e| *e.get_log_id())
            }
            None => None,
        };
        {
            let mut index = lock(&self.shared.index);
            index.drop_outside(|i| i < since);
            index.last = before.or(index.purged);
        }
        let done = self.write(|done| Write::Truncate { since, done }).await;
        Ok(done.map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        {
            let mut index = lock(&self.shared.index);
            index.drop_outside(|i| i > log_id.index);
            index.purged = Some(log_id);
            if index.last < index.purged {
                index.last = index.purged;
            }
        }
        // Purged entries that come back after a crash are purged again.
        let sent = self.send(Write::Purge { upto: log_id });
        Ok(sent.map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?)
    }
}
