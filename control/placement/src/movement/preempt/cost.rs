//! What it costs to take work off its nodes, and what it is worth, both in GPU-seconds. A node without GPUs,
//! or of which none are known, counts as one.

use super::{Input, Work};
use crate::{
    factors,
    queue::UNBOUNDED_WALLTIME_MS,
    view::{PendingView, RunningView},
};
use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::{Deserialize, Serialize};

/// Part of the walltime up to which work counts as just begun.
const JUST_BEGUN: f64 = 0.1;
/// Part of the walltime from which on work counts as nearly done.
const NEARLY_DONE: f64 = 0.9;
/// What counts in between of the GPU-seconds that work has had: there a delay is an annoyance, not a loss. It
/// tells who has just begun from who has run for a day, and makes nobody cost more than his lost work.
const UNDER_WAY: f64 = 0.01;

/// Whether work can be saved when it has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Saves {
    /// It has no checkpoint mode: what it did since it began is lost.
    Never,
    /// It has one, but not now: the storage is out, or it would not be done within the timeout. What it did
    /// since the last checkpoint is lost.
    NotNow,
    /// It writes a checkpoint before it goes.
    In {
        /// How long that takes, milliseconds.
        write_ms: u64,
    },
}

/// What one victim costs, GPU-seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Its GPUs write a checkpoint.
    pub checkpoint: f64,
    /// What it has computed and will compute again.
    pub recompute: f64,
    /// What it would have been worth to let it end.
    pub completion: f64,
}

impl Cost {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.checkpoint + self.recompute + self.completion
    }

    /// What it costs to take `work` off nodes with so many `gpus` now.
    ///
    /// Who writes a checkpoint loses the time for that and no work, so nothing is recomputed. Who cannot loses
    /// what it has done in this attempt since the last one; time for which it was off its nodes is no loss.
    /// On top comes what has been put into it, which bears fruit only at its end: nothing in the first tenth of
    /// its walltime, all of it in the last, a hundredth in between; nothing of work that has no end. An attempt
    /// that has not started yet has done nothing and writes nothing.
    pub(in crate::movement) fn of(
        work: &Work,
        running: &RunningView,
        gpus: u64,
        now: UnixMillis,
    ) -> Self {
        let gpu_s = |ms: u64| ms as f64 / 1000.0 * gpus as f64;
        let since = work
            .checkpointed_at
            .map_or(work.since, |at| at.max(work.since));
        let recompute = match work.saves {
            _ if work.state == AllocationState::Starting => 0,
            Saves::In { .. } => 0,
            Saves::NotNow => now.since(since),
            Saves::Never => now.since(work.since),
        };
        Self {
            checkpoint: gpu_s(work.saved_after_ms()),
            recompute: gpu_s(recompute),
            completion: gpu_s(had_ms(work, running, now)) * completion(work, running, now),
        }
    }
}

/// How long it has run, as far as its walltime counts it; where that is not known, in this attempt too. The
/// view has the walltime that was left when the attempt began.
fn had_ms(work: &Work, running: &RunningView, now: UnixMillis) -> u64 {
    let in_this = match (running.walltime_ms, running.ends_at) {
        (Some(left), Some(end)) => left.saturating_sub(end.since(now)),
        _ => now.since(work.since),
    };
    work.ran_before_ms.saturating_add(in_this)
}

/// How much of what was put into it is lost on those who wait for its end, 0 to 1.
fn completion(work: &Work, running: &RunningView, now: UnixMillis) -> f64 {
    let Some(left) = running.walltime_ms else {
        return 0.0;
    };
    let walltime = work.ran_before_ms.saturating_add(left).max(1);
    let used = had_ms(work, running, now) as f64 / walltime as f64;
    match used {
        _ if used < JUST_BEGUN => 0.0,
        _ if used > NEARLY_DONE => 1.0,
        _ => UNDER_WAY,
    }
}

/// What it is worth that a job starts now, GPU-seconds.
///
/// What it gains are the GPU-seconds that it will have had by the time at which it would have started, at most
/// all that it asks for: `work_ms` of `gpus`. One of them is worth one that work of the next lower class
/// loses, two of the class below that, and so on (`distance`): a class is a statement of how much more its work
/// matters, and preemption goes further down more easily. Who has waited is worth more, by the wait time factor
/// of the solver's score: (1 + ln(1 + wait / reference)). So nothing waits for ever for what is cheap, and
/// nothing large is broken off for what is small.
pub fn value(work_ms: u64, gpus: f64, distance: u8, wait_factor: f64) -> f64 {
    work_ms as f64 / 1000.0 * gpus * f64::from(distance) * (1.0 + wait_factor)
}

/// What the value of a job depends on, but for whom it is weighed against.
pub(super) struct Prospect {
    work_ms: u64,
    gpus: f64,
    class: u8,
    wait_factor: f64,
}

impl Prospect {
    /// `gpus_per_node`: the mean of the nodes that fit.
    pub(super) fn new(input: &Input<'_>, job: &PendingView, gpus_per_node: f64) -> Self {
        let asked = job.walltime_ms.unwrap_or(UNBOUNDED_WALLTIME_MS);
        let sooner = input.planned_start.map(|at| at.since(input.now));
        let wait = input.now.since(job.eligible_at);
        Self {
            work_ms: sooner.map_or(asked, |sooner| sooner.min(asked)),
            gpus: f64::from(job.nodes) * gpus_per_node,
            class: job.class,
            wait_factor: factors::wait_time(wait, input.solver.reference_wait_ms),
        }
    }

    /// Against victims of which the highest counts as that class.
    pub(super) fn value_over(&self, class: u8) -> f64 {
        let distance = self.class.saturating_sub(class);
        value(self.work_ms, self.gpus, distance, self.wait_factor)
    }
}
