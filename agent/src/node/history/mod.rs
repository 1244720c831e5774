//! The node's own history, changes and what else happened: kept over restarts, told by number, never in the way of anything.
//!
//! [`lattice_hwprobe::history`] decides what is entered. Here it is written down
//! ([`journal`]), by a task of its own: whoever publishes something only leaves it here. Where the
//! disk refuses, entries wait in memory, up to a bound, and [`Status`] says so.

mod contents;
mod journal;
mod line;
mod page;
mod reopen;

pub use journal::Limits;

use bytes::Bytes;
use journal::{Journal, Segment, record};
use lattice_hwprobe::history::{History, Line, Record};
use lattice_hwprobe::{Class, Digest};
use parking_lot::{Mutex, MutexGuard};
use reopen::Resume;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Between two tries at a disk that refused.
const RETRY: Duration = Duration::from_secs(5);
/// Between two looks whether there is room: a full disk is said before something is lost by it.
const LOOK: Duration = Duration::from_secs(60);
/// Less room than this is none: an entry and its preimage take up to some 100 KiB.
const ROOM_BYTES: u64 = 256 << 10;
/// Entries and events kept in memory, so that who asks for the newest does not wait for the disk.
const RECENT: usize = 256;
/// How long the agent's end waits for the disk.
const FLUSH: Duration = Duration::from_secs(2);
/// How long who asks waits for their turn at the disk.
const TURN: Duration = Duration::from_secs(5);

/// What everybody may know of the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Names the journal.
    pub journal: u64,
    /// The last entry or event on the disk; 0 before the first.
    pub last: u64,
    /// Why entries cannot be written, if so.
    pub fault: Option<String>,
    /// Whether a part of it was found changed.
    pub damaged: bool,
}

/// Where it is kept, and what is injected.
#[derive(Debug, Clone)]
pub struct HistorySettings {
    /// Its folder; made with the first entry.
    pub folder: PathBuf,
    /// Its bounds.
    pub limits: Limits,
    /// Random: the name of a journal that begins.
    pub new_id: u64,
}

/// The history as it was found, to go on from.
#[derive(Debug)]
pub struct Restored {
    /// Where every class stands.
    pub history: History,
    /// The preimages of what is published, as far as they are kept.
    pub preimages: Vec<(Class, Digest, Bytes)>,
    /// The newest of what was written, oldest first.
    pub newest: Vec<Record>,
}

/// A handle; they all mean the same history.
#[derive(Debug, Clone)]
pub struct NodeHistory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    limits: Limits,
    new_id: u64,
    state: Mutex<State>,
    /// Who goes on from a journal that could not be read at the start.
    resume: OnceLock<Resume>,
    /// Taken by whoever writes; held for as long as the disk takes. `None`: what is on the disk
    /// could not be read yet, and nothing is added to it.
    journal: tokio::sync::Mutex<Option<Journal>>,
    wake: Notify,
    status: watch::Sender<Status>,
    /// One reader of the disk at a time: a disk that hangs must not take every thread.
    reading: Arc<Semaphore>,
}

/// Never held over anything that waits.
#[derive(Debug, Default)]
struct State {
    /// Whether there is a journal to go on from.
    is_open: bool,
    waiting: VecDeque<Waiting>,
    /// Preimages of what was published before: the next write finds out whether one was lost.
    again: Vec<(Digest, Bytes)>,
    /// Lines that were dropped since the last write, which its checkpoint must have. Without a
    /// journal nothing is made of them.
    dropped: Vec<Line>,
    /// How many were, events as well, since something was written.
    lost: u64,
    recent: VecDeque<Record>,
    segments: Vec<Segment>,
    first_kept: u64,
    /// As in [`Status`], which is told when a write is over: by then what was written waits no more.
    journal: u64,
    last: u64,
}

#[derive(Debug, Clone)]
struct Waiting {
    line: Line,
    preimage: Option<(Digest, Bytes)>,
}

impl NodeHistory {
    /// Reads what is there; blocks on the disk. Where it cannot be read, the node goes on without:
    /// nothing is known of before, and nothing is written until it can.
    pub fn open(settings: HistorySettings) -> (Self, Restored) {
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
        let status = Status {
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
            state.found(journal, records);
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

    /// Whole between statements, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// How it stands, whenever that changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.0.status.subscribe()
    }

    /// Leaves `lines` to be written, with the preimages of what they publish, and of what was
    /// published before where nobody has it any more. Does not wait.
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
            state.waiting.push_back(Waiting { line, preimage });
        }
        for one in preimages {
            let is_there = state.again.iter().any(|(digest, _)| *digest == one.0);
            if !is_there && state.again.len() < self.0.limits.waiting {
                state.again.push(one);
            }
        }
        while state.waiting.len() > self.0.limits.waiting {
            // Events go first: what they said is in the log, and nothing rests on them.
            let is_event = |waiting: &Waiting| matches!(waiting.line, Line::Event(_));
            let at = state.waiting.iter().position(is_event);
            if let Some(lost) = state.waiting.remove(at.unwrap_or(0)) {
                if state.lost == 0 {
                    tracing::error!("entries of the history are lost: too many wait for the disk");
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

    /// Writes what is left here, for as long as the agent runs.
    pub async fn run(self) {
        loop {
            self.write().await;
            let is_faulty = self.0.status.borrow().fault.is_some();
            let pause = if is_faulty { RETRY } else { LOOK };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // What comes while the disk refuses waits for the next try.
                () = self.0.wake.notified(), if !is_faulty => {}
            }
        }
    }

    /// Writes what is left, at the end; a disk that does not answer is not waited for long.
    pub async fn flush(&self) {
        let _ = tokio::time::timeout(FLUSH, self.write()).await;
    }

    pub(super) async fn write(&self) {
        let this = self.clone();
        let written = tokio::task::spawn_blocking(move || this.write_blocking()).await;
        if let Err(error) = written {
            tracing::error!(%error, "writing the history panicked");
        }
    }

    fn write_blocking(&self) {
        // One that still waits for the disk writes the rest when it comes back.
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
                let batch: Vec<Waiting> = state.waiting.iter().cloned().collect();
                (batch, std::mem::take(&mut state.dropped))
            };
            if !dropped.is_empty() {
                journal.skip(&dropped);
            }
            if batch.is_empty() {
                let restored = self.restore_lost(journal);
                return self.say(journal, restored.and_then(|()| room(&self.0.folder)));
            }
            let lines: Vec<Line> = batch.iter().map(|waiting| waiting.line.clone()).collect();
            let preimages: Vec<_> = batch.into_iter().filter_map(|w| w.preimage).collect();
            if let Err(error) = journal.append(&lines, &preimages) {
                return self.say(journal, Err(error));
            }
            self.written(journal, lines);
        }
    }

    /// Writes preimages of what was published before and is not there any more: one was damaged, or
    /// somebody removed it.
    fn restore_lost(&self, journal: &mut Journal) -> std::io::Result<()> {
        let again = self.state().again.clone();
        for (digest, bytes) in again {
            journal.contents.restore(digest, &bytes)?;
            self.state().again.retain(|(done, _)| *done != digest);
        }
        Ok(())
    }

    /// `lines` are on the disk: the first of those that wait, less what was dropped meanwhile.
    fn written(&self, journal: &Journal, lines: Vec<Line>) {
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
            tracing::warn!(lost, "entries of the history that were not written");
        }
        state.see(journal);
        for line in lines {
            if let Some(record) = record(line) {
                state.remember(record);
            }
        }
    }

    fn say(&self, journal: &Journal, outcome: std::io::Result<()>) {
        let fault = outcome.err().map(|error| error.to_string());
        let waiting = self.state().waiting.len();
        self.0.status.send_if_modified(|now| {
            match (&now.fault, &fault) {
                (None, Some(error)) => {
                    tracing::error!(%error, waiting, "the history cannot be written; it waits");
                }
                (Some(_), None) => tracing::info!("the history can be written again"),
                _ => {}
            }
            let next = Status {
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

    /// The next turn at the disk; `None` where whoever has it does not come back.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = self.0.reading.clone().acquire_owned();
        tokio::time::timeout(TURN, turn).await.ok()?.ok()
    }

    /// The preimage of an earlier record; `None` also where the disk does not answer.
    pub async fn content(&self, digest: Digest) -> Option<Bytes> {
        let waits = {
            let state = self.state();
            let kept = state.waiting.iter().filter_map(|w| w.preimage.as_ref());
            let mut kept = kept.chain(&state.again);
            kept.find(|(found, _)| *found == digest)
                .map(|(_, bytes)| bytes.clone())
        };
        if waits.is_some() {
            return waits;
        }
        let turn = self.turn().await?;
        let folder = self.0.folder.join("content");
        let read = tokio::task::spawn_blocking(move || {
            let read = contents::read(&folder, &digest);
            drop(turn);
            read
        });
        read.await.ok()?.map(|(bytes, _)| bytes)
    }
}

impl State {
    /// There is a journal, and this is the newest of it.
    fn found(&mut self, journal: &Journal, newest: VecDeque<Record>) {
        self.is_open = true;
        self.see(journal);
        self.recent.clear();
        newest.into_iter().for_each(|record| self.remember(record));
    }

    fn see(&mut self, journal: &Journal) {
        self.segments.clone_from(&journal.segments);
        self.first_kept = journal.first_kept();
        self.journal = journal.id;
        self.last = journal.last();
    }

    fn remember(&mut self, record: Record) {
        self.recent.push_back(record);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }
}

/// Whether there is room for the next entry. A folder that is not there yet has as much as the one
/// it will be in.
fn room(folder: &std::path::Path) -> std::io::Result<()> {
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
    let is_full = stat.f_bavail.saturating_mul(stat.f_frsize) < ROOM_BYTES;
    // Where inodes are not counted there are none to run out of.
    let no_inode = stat.f_files > 0 && stat.f_favail == 0;
    if is_full || no_inode {
        return Err(std::io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
