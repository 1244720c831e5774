//! Node history: inventory changes and other events, numbered and kept across restarts. The disk may delay the start of
//! the agent and, for two seconds at most, the stop, but never a publication.
//!
//! [`lattice_conformance::history`] determines the entries. Publishers only queue entries here, and a separate task
//! writes them to the disk ([`journal`]). While the disk fails, entries wait in memory up to a limit, and
//! [`HistoryStatus`] reports the fault.

mod journal;
mod line;
mod page;
mod preimage_files;
mod reopen;

pub use journal::Limits;

use bytes::Bytes;
use journal::{Journal, Segment, record};
use lattice_conformance::{
    Class, Digest,
    history::{History, HistoryRecord, Line},
};
use parking_lot::{Mutex, MutexGuard};
use reopen::Resume;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Pause between two writes to a disk that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of disk space checks: a full disk is reported before an entry is lost.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum free space, bytes: an entry and its preimage take up to about 100 KiB.
const MIN_FREE_BYTES: u64 = 256 << 10;
/// Number of records kept in memory, so that requests for the newest do not wait for the disk.
const RECENT: usize = 256;
/// Longest wait for the disk when the agent stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait of a request for its turn at the disk.
const READ_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// Public status of the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryStatus {
    /// Id of the journal.
    pub journal: u64,
    /// Number of the last entry or event on disk; 0 before the first.
    pub last: u64,
    /// Reason that entries cannot be written, if there is one.
    pub fault: Option<String>,
    /// Whether a part of the journal was found altered.
    pub damaged: bool,
}

/// Settings of the history.
#[derive(Debug, Clone)]
pub struct HistorySettings {
    /// Folder of the journal; created with the first entry.
    pub folder: PathBuf,
    /// Limits of the journal.
    pub limits: Limits,
    /// Random id for a new journal.
    pub new_id: u64,
}

/// Restored state of the history.
#[derive(Debug)]
pub struct RestoredHistory {
    /// State of each class.
    pub history: History,
    /// Available preimages of the published classes.
    pub preimages: Vec<(Class, Digest, Bytes)>,
    /// Newest records on disk, oldest first.
    pub newest: Vec<HistoryRecord>,
}

/// Handle on the history. Clones share the state.
#[derive(Debug, Clone)]
pub struct NodeHistory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    limits: Limits,
    new_id: u64,
    state: Mutex<State>,
    /// Continuation for a journal that could not be read at the start.
    resume: OnceLock<Resume>,
    /// Locked by the writer for as long as the disk takes. `None`: the content of the disk is not readable yet, and
    /// nothing is appended.
    journal: tokio::sync::Mutex<Option<Journal>>,
    wake: Notify,
    status: watch::Sender<HistoryStatus>,
    /// Permits one reader of the disk at a time: a hung disk must not block every thread.
    reading: Arc<Semaphore>,
}

/// State in memory, never locked across an await or a blocking call.
#[derive(Debug, Default)]
struct State {
    /// Whether a journal has been read, from which the numbers continue.
    is_open: bool,
    waiting: VecDeque<QueuedLine>,
    /// Preimages of earlier publications: the next write restores those that are missing on disk.
    to_restore: Vec<(Digest, Bytes)>,
    /// Lines dropped since the last write, which the next checkpoint must include. Empty while no journal is open.
    dropped: Vec<Line>,
    /// Number of lines, events included, dropped since the last write.
    lost: u64,
    recent: VecDeque<HistoryRecord>,
    segments: Vec<Segment>,
    first_kept: u64,
    /// Journal id and last number on disk, which change under the same lock as `waiting`, so that a line is either
    /// queued or counted here. [`HistoryStatus`] follows after the write.
    journal: u64,
    last: u64,
}

#[derive(Debug, Clone)]
struct QueuedLine {
    line: Line,
    preimage: Option<(Digest, Bytes)>,
}

impl NodeHistory {
    /// Reads the journal; blocks on the disk. With an unreadable journal, the node starts with an empty history, and
    /// nothing is written until the journal is readable.
    pub fn open(settings: HistorySettings) -> (Self, RestoredHistory) {
        let HistorySettings {
            folder,
            limits,
            new_id,
        } = settings;
        let (journal, records, fault) = match Journal::open(&folder, limits.clone(), new_id, RECENT)
        {
            Ok(found) => (Some(found.journal), found.records, None),
            Err(error) => {
                tracing::error!(path = %folder.display(), %error, "the history cannot be read");
                (None, VecDeque::new(), Some(error.to_string()))
            }
        };
        let restored = reopen::restore(&folder, journal.as_ref(), &records);
        let status = HistoryStatus {
            journal: journal.as_ref().map_or(new_id, |journal| journal.id),
            last: journal.as_ref().map_or(0, Journal::last),
            fault,
            damaged: journal.as_ref().is_some_and(|journal| journal.damaged > 0),
        };
        let mut state = State {
            journal: new_id,
            ..State::default()
        };
        if let Some(journal) = &journal {
            state.reset_to(journal, records);
        }
        let shared = Shared {
            folder,
            limits,
            new_id,
            state: Mutex::new(state),
            resume: OnceLock::new(),
            journal: tokio::sync::Mutex::new(journal),
            wake: Notify::new(),
            status: watch::Sender::new(status),
            reading: Arc::new(Semaphore::new(1)),
        };
        (Self(Arc::new(shared)), restored)
    }

    /// Locks the state, which is consistent between statements, so a panic elsewhere leaves it valid.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Status, with notification of changes.
    pub fn status(&self) -> watch::Receiver<HistoryStatus> {
        self.0.status.subscribe()
    }

    /// Queues `lines` for the disk, with the preimages that they publish, and preimages of earlier publications that
    /// may be missing. Does not wait.
    pub fn record(&self, lines: Vec<Line>, mut preimages: Vec<(Digest, Bytes)>) {
        if lines.is_empty() && preimages.is_empty() {
            return;
        }
        let mut state = self.state();
        for line in lines {
            let digest = match &line {
                Line::Entry(entry) => entry.to.digest(),
                Line::Checkpoint(_) | Line::Boot { .. } | Line::Event(_) | Line::Other(_) => None,
            };
            let at = preimages
                .iter()
                .position(|(found, _)| Some(*found) == digest);
            let preimage = at.map(|at| preimages.swap_remove(at));
            state.waiting.push_back(QueuedLine { line, preimage });
        }
        for one in preimages {
            let is_there = state.to_restore.iter().any(|(digest, _)| *digest == one.0);
            if !is_there && state.to_restore.len() < self.0.limits.waiting_lines {
                state.to_restore.push(one);
            }
        }
        while state.waiting.len() > self.0.limits.waiting_lines {
            // Events are dropped first: no other record depends on them.
            let is_event = |waiting: &QueuedLine| matches!(waiting.line, Line::Event(_));
            let at = state.waiting.iter().position(is_event);
            if let Some(lost) = state.waiting.remove(at.unwrap_or(0)) {
                if state.lost == 0 {
                    tracing::error!("history entries dropped: too many entries wait for the disk");
                }
                state.lost = state.lost.saturating_add(1);
                if at.is_none() && state.is_open {
                    state.dropped.push(lost.line);
                }
            }
        }
        drop(state);
        self.0.wake.notify_one();
    }

    /// Writes queued lines for as long as the agent runs.
    pub async fn run(self) {
        loop {
            self.write().await;
            let is_faulty = self.0.status.borrow().fault.is_some();
            let pause = if is_faulty {
                RETRY_INTERVAL
            } else {
                SPACE_CHECK_INTERVAL
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // While the disk fails, lines wait for the next attempt.
                () = self.0.wake.notified(), if !is_faulty => {}
            }
        }
    }

    /// Writes queued lines when the agent stops, with a bound on the wait for the disk.
    pub async fn flush(&self) {
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.write()).await;
    }

    pub(super) async fn write(&self) {
        let this = self.clone();
        let written = tokio::task::spawn_blocking(move || this.write_blocking()).await;
        if let Err(error) = written {
            tracing::error!(%error, "writing the history panicked");
        }
    }

    fn write_blocking(&self) {
        // A write that still waits for the disk includes the new lines afterwards.
        let Ok(mut journal) = self.0.journal.try_lock() else {
            return;
        };
        if journal.is_none() {
            *journal = self.reopen();
        }
        let Some(journal) = journal.as_mut() else {
            return;
        };
        loop {
            let (batch, dropped) = {
                let mut state = self.state();
                let batch: Vec<QueuedLine> = state.waiting.iter().cloned().collect();
                (batch, std::mem::take(&mut state.dropped))
            };
            if !dropped.is_empty() {
                journal.skip(&dropped);
            }
            if batch.is_empty() {
                let restored = self.restore_lost(journal);
                return self
                    .set_status(journal, restored.and_then(|()| check_space(&self.0.folder)));
            }
            let lines: Vec<Line> = batch.iter().map(|waiting| waiting.line.clone()).collect();
            let preimages: Vec<_> = batch.into_iter().filter_map(|w| w.preimage).collect();
            if let Err(error) = journal.append(&lines, &preimages) {
                return self.set_status(journal, Err(error));
            }
            self.remove_written(journal, lines);
        }
    }

    /// Writes the preimages of earlier publications that are missing on disk because a file was damaged or removed.
    fn restore_lost(&self, journal: &mut Journal) -> std::io::Result<()> {
        let again = self.state().to_restore.clone();
        for (digest, bytes) in again {
            journal.contents.restore(digest, &bytes)?;
            self.state().to_restore.retain(|(done, _)| *done != digest);
        }
        Ok(())
    }

    /// Removes `lines`, which are on disk, from the queue; some may have been dropped meanwhile.
    fn remove_written(&self, journal: &Journal, lines: Vec<Line>) {
        let mut state = self.state();
        for line in &lines {
            if state
                .waiting
                .front()
                .is_some_and(|first| first.line == *line)
            {
                state.waiting.pop_front();
            }
        }
        state.dropped.retain(|line| !lines.contains(line));
        let lost = std::mem::take(&mut state.lost);
        if lost > 0 {
            tracing::warn!(lost, "history entries were not written");
        }
        state.update_from(journal);
        for line in lines {
            if let Some(record) = record(line) {
                state.remember(record);
            }
        }
    }

    fn set_status(&self, journal: &Journal, outcome: std::io::Result<()>) {
        let fault = outcome.err().map(|error| error.to_string());
        let waiting = self.state().waiting.len();
        self.0.status.send_if_modified(|now| {
            match (&now.fault, &fault) {
                (None, Some(error)) => {
                    tracing::error!(
                        %error, waiting,
                        "history cannot be written; entries wait in memory"
                    );
                }
                (Some(_), None) => tracing::info!("history can be written again"),
                _ => {}
            }
            let next = HistoryStatus {
                journal: journal.id,
                last: journal.last(),
                fault,
                damaged: now.damaged,
            };
            let is_news = *now != next;
            *now = next;
            is_news
        });
    }

    /// Waits for a turn at the disk; `None` if the present reader does not return in time.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = self.0.reading.clone().acquire_owned();
        tokio::time::timeout(READ_QUEUE_TIMEOUT, turn)
            .await
            .ok()?
            .ok()
    }

    /// Preimage of an earlier record; `None` also if the disk does not answer.
    pub async fn content(&self, digest: Digest) -> Option<Bytes> {
        let waits = {
            let state = self.state();
            let kept = state.waiting.iter().filter_map(|w| w.preimage.as_ref());
            let mut kept = kept.chain(&state.to_restore);
            kept.find(|(found, _)| *found == digest)
                .map(|(_, bytes)| bytes.clone())
        };
        if waits.is_some() {
            return waits;
        }
        let turn = self.turn().await?;
        let folder = self.0.folder.join("content");
        let read = tokio::task::spawn_blocking(move || {
            let read = preimage_files::read(&folder, &digest);
            drop(turn);
            read
        });
        read.await.ok()?.map(|(bytes, _)| bytes)
    }
}

impl State {
    /// Sets the state of an opened journal with its newest records.
    fn reset_to(&mut self, journal: &Journal, newest: VecDeque<HistoryRecord>) {
        self.is_open = true;
        self.update_from(journal);
        self.recent.clear();
        newest.into_iter().for_each(|record| self.remember(record));
    }

    fn update_from(&mut self, journal: &Journal) {
        self.segments.clone_from(&journal.segments);
        self.first_kept = journal.first_kept();
        self.journal = journal.id;
        self.last = journal.last();
    }

    fn remember(&mut self, record: HistoryRecord) {
        self.recent.push_back(record);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

/// Checks that the disk has space for the next entry. For a missing folder, the check applies to its nearest existing
/// parent.
fn check_space(folder: &std::path::Path) -> std::io::Result<()> {
    let mut at = folder;
    let stat = loop {
        match rustix::fs::statvfs(at) {
            Err(rustix::io::Errno::NOENT) => match at.parent() {
                Some(parent) => at = parent,
                None => return Ok(()),
            },
            found => break found?,
        }
    };
    let is_full = stat.f_bavail.saturating_mul(stat.f_frsize) < MIN_FREE_BYTES;
    // A filesystem without an inode count cannot run out of inodes.
    let no_inode = stat.f_files > 0 && stat.f_favail == 0;
    if is_full || no_inode {
        return Err(std::io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
