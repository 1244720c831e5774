//! What work has really done, by the processes themselves: what a checkpoint holds, and what is lost with an
//! attempt. Nobody who decides sees it.

use super::{machine::Process, nature::Nature};
use lattice_quorum_types::{
    AllocationId, NodeId, UnixMillis, checkpoint::CheckpointStatus, wire::AttemptKey,
};
use std::collections::{BTreeMap, BTreeSet};

/// Of all work that was ever launched.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) works: BTreeMap<AllocationId, Work>,
    /// Attempts of which a rank was on a node when that went, or was given one that had gone.
    pub(super) lost: BTreeSet<(NodeId, AttemptKey)>,
    /// What users ended.
    pub(super) cancelled: BTreeSet<AllocationId>,
}

/// One allocation.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) nature: Nature,
    /// Its checkpoints by number, whole or not.
    pub(super) contents: BTreeMap<u32, Content>,
    /// The last checkpoint of which every rank's word was taken; 0: none.
    pub(super) usable: u32,
    pub(super) attempt: Attempt,
    /// It came to its own end.
    pub(super) is_done: bool,
    /// A rank was ended because its time was over.
    pub(super) is_overdue: bool,
    /// How long attempts ran whose work is lost, milliseconds.
    pub(super) lost_ms: u64,
}

/// What is in one checkpoint.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// How long the work in it had run, milliseconds.
    pub(super) ran_ms: u64,
    /// How many checkpoints it took to get there, with this one.
    pub(super) writes: u64,
    /// Ranks that were asked for it.
    pub(super) asked: BTreeSet<u32>,
    /// Ranks whose part is on the disk.
    pub(super) wrote: BTreeSet<u32>,
    /// Ranks of which the quorum took the word that it is.
    pub(super) counted: BTreeSet<u32>,
    /// Ranks there are.
    pub(super) ranks: usize,
}

impl Content {
    /// Whether work can go on from it.
    pub(super) fn is_whole(&self) -> bool {
        self.wrote.len() == self.ranks
    }
}

/// The present attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) ranks: usize,
    /// How long the work had run that it goes on from, milliseconds.
    pub(super) base_ms: u64,
    /// In how many checkpoints, one after the other, it was saved so far.
    pub(super) writes: u64,
    pub(super) started: BTreeSet<u32>,
    /// Since when all of them run.
    pub(super) began_at: Option<UnixMillis>,
    /// A rank of it is gone: it comes to no end of its own.
    pub(super) is_broken: bool,
    /// How long its work had run when its first process was gone, with what it went on from, milliseconds.
    pub(super) ran_in_all_ms: u64,
}

impl Attempt {
    /// How long the work has run by now, with what it went on from, milliseconds.
    pub(super) fn ran_ms(&self, now: UnixMillis) -> u64 {
        self.base_ms + self.began_at.map_or(0, |began| now.since(began))
    }
}

impl Work {
    pub(super) fn new(nature: Nature) -> Self {
        Self {
            nature,
            contents: BTreeMap::new(),
            usable: 0,
            attempt: Attempt::default(),
            is_done: false,
            is_overdue: false,
            lost_ms: 0,
        }
    }
}

impl Truth {
    /// A process is gone: what it had written is written, and its attempt comes to no end of its own.
    pub(super) fn leaves(
        &mut self,
        key: AttemptKey,
        process: &Process,
        outage: (UnixMillis, UnixMillis),
        now: UnixMillis,
    ) {
        self.note_write(key, process, outage, now);
        let Some(work) = self.works.get_mut(&key.allocation) else {
            return;
        };
        let attempt = &mut work.attempt;
        if attempt.number == key.attempt && !attempt.is_broken {
            attempt.is_broken = true;
            attempt.ran_in_all_ms = attempt.ran_ms(now);
        }
    }

    /// Takes down whether a rank's part is on the disk by now.
    pub(super) fn note_write(
        &mut self,
        key: AttemptKey,
        process: &Process,
        outage: (UnixMillis, UnixMillis),
        now: UnixMillis,
    ) {
        let Some(write) = &process.write else {
            return;
        };
        let is_written = match write.status(outage, now) {
            CheckpointStatus::Ended(outcome) => outcome.is_written(),
            _ => false,
        };
        let work = self.works.get_mut(&key.allocation);
        let content = work.and_then(|work| work.contents.get_mut(&write.order.number));
        if let Some(content) = content.filter(|_| is_written) {
            content.wrote.insert(process.rank);
        }
    }
}
