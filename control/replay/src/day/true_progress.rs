//! True progress of the simulated jobs: contents of checkpoints, and lost work of each attempt. Control has no access
//! to this progress.

use super::{job_behavior::JobBehavior, machine::Process};
use lattice_agent_rpc::{AttemptKey, CheckpointStatus};
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis};
use std::collections::{BTreeMap, BTreeSet};

/// Progress of every allocation that was ever launched.
#[derive(Debug, Default)]
pub(super) struct TrueProgress {
    pub(super) jobs: BTreeMap<AllocationId, JobProgress>,
    /// Nodes that failed, each with the attempt that lost a rank there. The node failed while it held the rank, or
    /// before the rank was assigned.
    pub(super) lost: BTreeSet<(NodeId, AttemptKey)>,
    /// Allocations that users cancelled.
    pub(super) cancelled: BTreeSet<AllocationId>,
}

/// Progress of one allocation.
#[derive(Debug)]
pub(super) struct JobProgress {
    pub(super) nature: JobBehavior,
    /// Checkpoints by number, complete or not.
    pub(super) contents: BTreeMap<u32, CheckpointContent>,
    /// Number of the last checkpoint with accepted reports of all ranks; 0: none.
    pub(super) usable: u32,
    pub(super) attempt: Attempt,
    /// Whether the job finished by itself.
    pub(super) is_done: bool,
    /// Whether a rank was stopped because its walltime was over.
    pub(super) is_overdue: bool,
    /// Run time of ended attempts that is not in the checkpoint from which the job resumed, milliseconds.
    pub(super) lost_ms: u64,
}

/// Contents of one checkpoint.
#[derive(Debug, Default)]
pub(super) struct CheckpointContent {
    /// Run time of the job in the checkpoint, milliseconds.
    pub(super) ran_ms: u64,
    /// Number of successive checkpoints up to this one.
    pub(super) writes: u64,
    /// Ranks with a request for this checkpoint.
    pub(super) asked: BTreeSet<u32>,
    /// Ranks that have their part on storage.
    pub(super) written: BTreeSet<u32>,
    /// Ranks with an accepted report of a written part.
    pub(super) reported: BTreeSet<u32>,
    /// Number of all ranks.
    pub(super) ranks: usize,
}

impl CheckpointContent {
    /// Whether a job can resume from the checkpoint.
    pub(super) fn is_complete(&self) -> bool {
        self.written.len() == self.ranks
    }
}

/// The current attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) ranks: usize,
    /// Run time in the checkpoint from which the attempt resumed, milliseconds.
    pub(super) base_ms: u64,
    /// Number of successive checkpoints before the attempt.
    pub(super) writes: u64,
    pub(super) started: BTreeSet<u32>,
    /// Time since when all ranks run.
    pub(super) began_at: Option<UnixMillis>,
    /// Whether a rank is gone, so that the attempt cannot finish by itself.
    pub(super) is_broken: bool,
    /// Run time when the first process was gone, including `base_ms`, milliseconds.
    pub(super) ran_in_all_ms: u64,
}

impl Attempt {
    /// Run time of the job up to `now`, including `base_ms`, milliseconds.
    pub(super) fn ran_ms(&self, now: UnixMillis) -> u64 {
        self.base_ms + self.began_at.map_or(0, |began| now.since(began))
    }
}

impl JobProgress {
    pub(super) fn new(nature: JobBehavior) -> Self {
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

impl TrueProgress {
    /// Records the end of a process: a part that it has written counts, and its attempt cannot finish by itself any
    /// more.
    pub(super) fn process_ended(
        &mut self,
        key: AttemptKey,
        process: &Process,
        outage: (UnixMillis, UnixMillis),
        now: UnixMillis,
    ) {
        self.note_write(key, process, outage, now);
        let Some(work) = self.jobs.get_mut(&key.allocation) else {
            return;
        };
        let attempt = &mut work.attempt;
        if attempt.number == key.attempt && !attempt.is_broken {
            attempt.is_broken = true;
            attempt.ran_in_all_ms = attempt.ran_ms(now);
        }
    }

    /// Records the rank of the process as having its part on storage, if that part is written at `now`.
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
        let work = self.jobs.get_mut(&key.allocation);
        let content = work.and_then(|work| work.contents.get_mut(&write.order.number));
        if let Some(content) = content.filter(|_| is_written) {
            content.written.insert(process.rank);
        }
    }
}
