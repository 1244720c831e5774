//! Log store for openraft: recent entries in memory, all entries in redb.

use super::{
    OpenError,
    index::LogIndex,
    recover::{load, open_database, without_leadership},
    row,
    writer::{LOG, PendingCommitPoint, Write, Writer},
};
use crate::{
    platform::{Platform, Workers},
    raft::types::{Entry, LogId, StorageError, Types, Vote},
};
use lattice_quorum_types::VoterId;
use openraft::{
    AnyError, LogState, RaftLogId, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase};
use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    path::Path,
    sync::Arc,
    thread::JoinHandle,
};
use tokio::sync::{mpsc, oneshot};

/// Name of the log file in the data directory.
pub(super) const LOG_FILE: &str = "log.redb";
/// Maximum bytes of entries in one replication request; at least one entry.
const MAX_READ_BYTES: usize = 2 << 20;

/// Log, vote and commit point of one member. Clones share one log.
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
}

struct Shared {
    index: Arc<Mutex<LogIndex>>,
    database: Arc<Database>,
    lazy: PendingCommitPoint,
    queue: Mutex<Option<mpsc::UnboundedSender<Write>>>,
    /// Writer thread; `None` unless the executor is [`Workers::Threads`].
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The writer ends when the queue is closed; only then the file is free.
        self.queue.lock().take();
        if let Some(writer) = self.writer.lock().take() {
            let _ = writer.join();
        }
    }
}

impl LogStore {
    /// Opens or creates the log, reads and verifies all of it, and starts the writer.
    pub(super) fn open(
        platform: &Platform,
        path: &Path,
        voter: VoterId,
    ) -> Result<Self, OpenError> {
        let database = open_database(&*platform.files, path)?;
        let mut index = load(&database).map_err(|reason| OpenError::damaged(path, reason))?;
        index.vote = index.vote.map(|vote| without_leadership(vote, voter));
        let (queue, writes) = mpsc::unbounded_channel();
        let (index, database) = (Arc::new(Mutex::new(index)), Arc::new(database));
        let lazy = PendingCommitPoint::default();
        let flushed_upto = {
            let index = index.clone();
            move |seq| {
                let mut index = index.lock();
                index.flushed = index.flushed.max(seq);
                index.shrink();
            }
        };
        let writer = Writer::new(database.clone(), lazy.clone(), flushed_upto);
        let thread = match &platform.workers {
            Workers::Threads => {
                let thread = std::thread::Builder::new().name("quorum-log".to_owned());
                let thread = thread.spawn(move || writer.run(writes));
                Some(thread.map_err(OpenError::io(path))?)
            }
            Workers::Inline(pause) => {
                tokio::spawn(writer.run_inline(writes, pause.clone()));
                None
            }
        };
        let (queue, writer) = (Mutex::new(Some(queue)), Mutex::new(thread));
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

    /// Last entry, on disk or queued for the writer.
    pub fn last(&self) -> Option<LogId> {
        self.shared.index.lock().last
    }

    /// Index of the last purged entry.
    pub(super) fn purged_index(&self) -> Option<u64> {
        self.shared.index.lock().purged.map(|id| id.index)
    }

    /// Returns whether the log, or a snapshot that ends with the entry `snapshot`, reaches the commit point.
    pub(super) fn reaches_commit_point(&self, snapshot: Option<LogId>) -> bool {
        let index = self.shared.index.lock();
        index.committed <= index.last.max(snapshot)
    }

    /// Writes the queued entries and ends the writer. Later writes fail.
    pub async fn close(&self) -> io::Result<()> {
        let closed = self.write(|done| Write::Close { done }).await;
        self.shared.queue.lock().take();
        closed
    }

    fn send(&self, write: Write) -> io::Result<()> {
        let closed = || io::Error::other("the log is closed");
        let queue = self.shared.queue.lock();
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
            let index = self.shared.index.lock();
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
        // The range starts before the cache: one pass reads all of it from disk, so that the answer has no gap.
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
        // The newest entries may be in memory only.
        let next = entries.last().map_or(start, |e: &Entry| e.log_id.index + 1);
        let index = self.shared.index.lock();
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
        let index = self.shared.index.lock();
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
        self.shared.index.lock().vote = Some(vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.shared.index.lock().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.shared.index.lock().committed = committed;
        self.shared.lazy.set(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.shared.index.lock().committed)
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
            let mut index = self.shared.index.lock();
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
            let mut index = self.shared.index.lock();
            index.drop_outside(|i| i < since);
            index.last = before.or(index.purged);
        }
        let done = self.write(|done| Write::Truncate { since, done }).await;
        Ok(done.map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        {
            let mut index = self.shared.index.lock();
            index.drop_outside(|i| i > log_id.index);
            index.purged = Some(log_id);
            if index.last < index.purged {
                index.last = index.purged;
            }
        }
        // Purged entries that reappear after a crash are purged again.
        let sent = self.send(Write::Purge { upto: log_id });
        Ok(sent.map_err(|e| StorageIOError::write_logs(AnyError::new(&e)))?)
    }
}
