//! Cost of preempting a job and value of starting one, in GPU-seconds. A node without GPUs, or with an unknown number,
//! counts as one GPU.

use super::{HolderFacts, Input};
use crate::{
    priority::factors,
    view::{PendingView, RunningView},
    walltime::UNBOUNDED_WALLTIME_MS,
};
use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::{Deserialize, Serialize};

/// Part of the walltime below which a job counts as just begun.
const JUST_BEGUN: f64 = 0.1;
/// Part of the walltime above which a job counts as nearly done.
const NEARLY_DONE: f64 = 0.9;
/// Weight of the GPU-seconds used so far if the used part of the walltime is between [`JUST_BEGUN`] and
/// [`NEARLY_DONE`]. A delay is then an inconvenience, not a loss. The weight makes a job that has run for a day cost
/// more than one that has just begun, and stays small against lost progress.
const UNDER_WAY_WEIGHT: f64 = 0.01;

/// Whether a job can be checkpointed before preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointAbility {
    /// No checkpoint mode: all progress of this attempt is lost.
    Never,
    /// A checkpoint mode, but not now: the storage is unavailable, or the timeout is too short. Progress since the last
    /// checkpoint is lost.
    NotNow,
    /// The job writes a checkpoint first.
    In {
        /// Time for writing the checkpoint, milliseconds.
        write_ms: u64,
    },
}

/// Cost of preempting one victim, GPU-seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// GPU time for writing a checkpoint.
    pub checkpoint: f64,
    /// Progress that must be computed again.
    pub recompute: f64,
    /// Value of letting the job run to its end, which preemption delays.
    pub completion: f64,
}

impl Cost {
    /// Sum of all terms.
    pub fn total(&self) -> f64 {
        self.checkpoint + self.recompute + self.completion
    }

    /// Cost of preempting `work` from nodes with `gpus` GPUs now.
    ///
    /// A job that writes a checkpoint loses the writing time and no progress. A job that cannot write one now loses the
    /// progress of this attempt since its last checkpoint. A job without a checkpoint mode loses all progress of this
    /// attempt. Time that the job spends without nodes is not counted.
    ///
    /// The completion term weighs the GPU time used so far, which pays off only at the end of the job. The weight is 0
    /// in the first tenth of the job's walltime, 1 in the last and a hundredth in between. It is 0 without a walltime.
    /// An attempt that has not begun to run has no progress and writes nothing.
    pub(in crate::movement) fn of(
        work: &HolderFacts,
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
            CheckpointAbility::In { .. } => 0,
            CheckpointAbility::NotNow => now.since(since),
            CheckpointAbility::Never => now.since(work.since),
        };
        Self {
            checkpoint: gpu_s(work.checkpoint_time_ms()),
            recompute: gpu_s(recompute),
            completion: gpu_s(run_time_ms(work, running, now)) * completion(work, running, now),
        }
    }
}

/// Run time so far that counts against the walltime, milliseconds. `running.walltime_ms` is the walltime that was left
/// when the attempt began. Without a walltime, all time since the start of the attempt counts.
fn run_time_ms(work: &HolderFacts, running: &RunningView, now: UnixMillis) -> u64 {
    let in_this = match (running.walltime_ms, running.ends_at) {
        (Some(left), Some(end)) => left.saturating_sub(end.since(now)),
        _ => now.since(work.since),
    };
    work.ran_before_ms.saturating_add(in_this)
}

/// Weight of the used GPU time in the completion term of the cost, 0 to 1; see [`Cost::of`].
fn completion(work: &HolderFacts, running: &RunningView, now: UnixMillis) -> f64 {
    let Some(left) = running.walltime_ms else {
        return 0.0;
    };
    let walltime = work.ran_before_ms.saturating_add(left).max(1);
    let used = run_time_ms(work, running, now) as f64 / walltime as f64;
    match used {
        _ if used < JUST_BEGUN => 0.0,
        _ if used > NEARLY_DONE => 1.0,
        _ => UNDER_WAY_WEIGHT,
    }
}

/// Value of starting a job now, GPU-seconds.
///
/// The gain is the GPU time that the job uses before the time at which it would start without preemption, at most its
/// walltime: `work_ms` on `gpus`. The gain is multiplied by `distance`, the number of classes between the job and the
/// highest class among the victims. Victims of a much lower class may thus cost more. The value grows with the wait, by
/// the wait time factor of the solver's score: 1 + ln(1 + wait / reference). Therefore no job waits for ever for cheap
/// victims, and no large job is preempted for a small one.
pub fn value(work_ms: u64, gpus: f64, distance: u8, wait_factor: f64) -> f64 {
    work_ms as f64 / 1000.0 * gpus * f64::from(distance) * (1.0 + wait_factor)
}

/// Terms of a job's value that do not depend on the victims.
pub(super) struct JobValue {
    work_ms: u64,
    gpus: f64,
    class: u8,
    wait_factor: f64,
}

impl JobValue {
    /// Terms for `job`; `gpus_per_node` is the mean over the nodes that fit.
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

    /// Value of starting the job if `class` is the highest class that a victim counts as.
    pub(super) fn value_over(&self, class: u8) -> f64 {
        let distance = self.class.saturating_sub(class);
        value(self.work_ms, self.gpus, distance, self.wait_factor)
    }
}
