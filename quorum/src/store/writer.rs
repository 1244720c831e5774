//! Log writer: the only thread that writes the log. It commits its queue in one durable transaction and then completes
//! all waiting writes, so that a burst costs one fsync.

use super::row;
use crate::raft::types::{LogId, Types, Vote};
use openraft::storage::LogFlushed;
use parking_lot::Mutex;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::{io, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub(super) const VOTE: &str = "vote";
pub(super) const COMMITTED: &str = "committed";
pub(super) const PURGED: &str = "purged";

/// Maximum number of queued writes in one commit.
const MAX_GROUP_WRITES: usize = 1024;

pub(super) enum Write {
    Append {
        rows: Vec<(u64, Vec<u8>)>,
        seq: u64,
        flushed: LogFlushed<Types>,
    },
    Vote {
        vote: Vote,
        done: oneshot::Sender<io::Result<()>>,
    },
    Truncate {
        since: u64,
        done: oneshot::Sender<io::Result<()>>,
    },
    Purge {
        upto: LogId,
    },
    Close {
        done: oneshot::Sender<io::Result<()>>,
    },
}

/// Raft commit point to store in the next transaction; it causes no transaction of its own. If the newest commit point
/// is lost, a restarted member only waits until the leader sends the commit point again.
#[derive(Clone, Default)]
pub(super) struct PendingCommitPoint(Arc<Mutex<Option<LogId>>>);

impl PendingCommitPoint {
    pub(super) fn set(&self, committed: Option<LogId>) {
        *self.0.lock() = committed;
    }
    fn take(&self) -> Option<LogId> {
        self.0.lock().take()
    }
}

/// Commits the queued writes.
pub(super) struct Writer {
    database: Arc<Database>,
    lazy: PendingCommitPoint,
    flushed_upto: Box<dyn Fn(u64) + Send>,
    /// Error after which nothing can be written.
    broken: Option<String>,
}

impl Writer {
    pub(super) fn new(
        database: Arc<Database>,
        lazy: PendingCommitPoint,
        flushed_upto: impl Fn(u64) + Send + 'static,
    ) -> Self {
        Self {
            database,
            lazy,
            flushed_upto: Box::new(flushed_upto),
            broken: None,
        }
    }

    /// Runs on a thread of its own, until closed or until the queue has no senders.
    pub(super) fn run(mut self, mut queue: mpsc::UnboundedReceiver<Write>) {
        while let Some(first) = queue.blocking_recv() {
            let group = gather(first, &mut queue);
            if self.write(group) {
                return;
            }
        }
        self.store_commit_point();
    }

    /// As [`Writer::run`], as a task; waits before each commit for the duration that `pause` returns.
    pub(super) async fn run_inline(
        mut self,
        mut queue: mpsc::UnboundedReceiver<Write>,
        pause: Arc<dyn Fn() -> Duration + Send + Sync>,
    ) {
        while let Some(first) = queue.recv().await {
            let group = gather(first, &mut queue);
            tokio::time::sleep(pause()).await;
            if self.write(group) {
                return;
            }
        }
        self.store_commit_point();
    }

    /// Performs one durable commit and completes its writes. Returns whether the log was closed.
    fn write(&mut self, group: Vec<Write>) -> bool {
        let result = match &self.broken {
            None => commit(&self.database, &group, self.lazy.take()).map_err(|e| e.to_string()),
            Some(reason) => Err(reason.clone()),
        };
        if let (Err(reason), None) = (&result, &self.broken) {
            tracing::error!(%reason, "log write failed; this member stops");
            // The amount of data on disk is unknown: nothing may be written after it.
            self.broken = Some(reason.clone());
        }
        let mut closed = false;
        for write in group {
            let answer = || result.clone().map_err(io::Error::other);
            match write {
                Write::Append { seq, flushed, .. } => {
                    if result.is_ok() {
                        (self.flushed_upto)(seq);
                    }
                    flushed.log_io_completed(answer());
                }
                Write::Vote { done, .. } | Write::Truncate { done, .. } => {
                    let _ = done.send(answer());
                }
                Write::Purge { .. } => {}
                Write::Close { done } => {
                    closed = true;
                    let _ = done.send(answer());
                }
            }
        }
        closed
    }

    /// Tries once to store the commit point, after the queue closed without [`Write::Close`].
    fn store_commit_point(&self) {
        if self.broken.is_none()
            && let Some(committed) = self.lazy.take()
        {
            let _ = commit(&self.database, &[], Some(committed));
        }
    }
}

fn gather(first: Write, queue: &mut mpsc::UnboundedReceiver<Write>) -> Vec<Write> {
    let mut group = vec![first];
    while group.len() < MAX_GROUP_WRITES
        && let Ok(next) = queue.try_recv()
    {
        group.push(next);
    }
    group
}

fn commit(
    database: &Database,
    group: &[Write],
    committed: Option<LogId>,
) -> Result<(), redb::Error> {
    let corrupted = |reason: String| redb::Error::Corrupted(reason);
    let mut transaction = database.begin_write()?;
    transaction
        .set_durability(Durability::Immediate)
        .map_err(|e| corrupted(e.to_string()))?;
    {
        let mut log = transaction.open_table(LOG)?;
        let mut meta = transaction.open_table(META)?;
        for write in group {
            match write {
                Write::Append { rows, .. } => {
                    for (index, row) in rows {
                        log.insert(index, row.as_slice())?;
                    }
                }
                Write::Vote { vote, .. } => {
                    let row = row::encode(0, vote).map_err(corrupted)?;
                    meta.insert(VOTE, row.as_slice())?;
                }
                Write::Truncate { since, .. } => log.retain_in::<u64, _>(since.., |_, _| false)?,
                Write::Purge { upto } => {
                    let row = row::encode(0, upto).map_err(corrupted)?;
                    meta.insert(PURGED, row.as_slice())?;
                    log.retain_in::<u64, _>(..=upto.index, |_, _| false)?;
                }
                Write::Close { .. } => {}
            }
        }
        if let Some(committed) = committed {
            let row = row::encode(0, &committed).map_err(corrupted)?;
            meta.insert(COMMITTED, row.as_slice())?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Reads one record of the meta table.
pub(super) fn read_meta<T: serde::de::DeserializeOwned>(
    database: &Database,
    name: &str,
) -> Result<Option<T>, String> {
    let read = || -> Result<Option<Vec<u8>>, redb::Error> {
        let table = database.begin_read()?.open_table(META)?;
        Ok(table.get(name)?.map(|guard| guard.value().to_vec()))
    };
    let row = read().map_err(|e| e.to_string())?;
    row.map(|row| row::decode(0, &row).map_err(|e| format!("{name}: {e}")))
        .transpose()
}
