//! Preparation of a workload for a replay: fit to a machine's size, valid estimates, sizes in nodes, higher or lower
//! load, and randomly shifted submits.

use crate::trace::{SkipReason, UNKNOWN, Unit, Workload};
use lattice_rng::Rng;
use serde::{Deserialize, Serialize};

/// Treatment of a job that ran longer than its estimate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overrun {
    /// End the job at its estimate, as schedulers do.
    #[default]
    End,
    /// Extend the estimate to the run time.
    Extend,
}

/// Changes that [`fit`] made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitChanges {
    /// Jobs that ran longer than their estimate; either the run time was cut or the estimate was extended.
    pub overran: u64,
    /// Jobs without an estimate; the run time is used instead.
    pub without_estimate: u64,
}

impl FitChanges {
    /// Descriptions of the changes, for reports; empty if nothing was changed.
    pub fn descriptions(self) -> Vec<String> {
        let mut descriptions = Vec::new();
        if self.overran > 0 {
            descriptions.push(format!("{} jobs ran longer than requested", self.overran));
        }
        if self.without_estimate > 0 {
            descriptions.push(format!(
                "{} jobs have no estimate: their run time is used instead",
                self.without_estimate
            ));
        }
        descriptions
    }
}

/// Removes jobs larger than a machine of `size`, in [`Workload::unit`]. Cuts run times that exceed the estimate, or
/// extends the estimate.
pub fn fit(workload: &mut Workload, size: u64, overrun: Overrun) -> FitChanges {
    let mut fitted = FitChanges::default();
    let Workload { jobs, skipped, .. } = workload;
    jobs.retain_mut(|job| {
        if u64::from(job.size) > size {
            skipped.add(job.line, SkipReason::TooLarge, String::new);
            return false;
        }
        if job.estimate_ms == UNKNOWN {
            fitted.without_estimate += 1;
        } else if job.run_ms > job.estimate_ms {
            fitted.overran += 1;
            match overrun {
                Overrun::End => job.run_ms = job.estimate_ms,
                Overrun::Extend => job.estimate_ms = job.run_ms,
            }
        }
        true
    });
    fitted
}

/// Converts sizes from processors to nodes with `per_node` processors each, rounded up. Jobs that shared a node get
/// separate nodes.
pub fn count_in_nodes(workload: &mut Workload, per_node: u32) {
    if workload.unit == Unit::Nodes || per_node == 0 {
        return;
    }
    let mut rounded = 0_u64;
    for job in &mut workload.jobs {
        rounded += u64::from(!job.size.is_multiple_of(per_node));
        job.size = job.size.div_ceil(per_node);
    }
    workload.unit = Unit::Nodes;
    workload.machine = workload.machine.map(|procs| procs / u64::from(per_node));
    workload.notes.push(format!(
        "sizes were processors, {per_node} per node: {rounded} jobs were rounded up to full nodes, so the load differs \
         from the recorded load"
    ));
}

/// Divides the gaps between submits by `times`: the same jobs form a higher load, or a lower load if `times` is below
/// 1.
pub fn speed_up(workload: &mut Workload, times: f64) {
    let first = workload.jobs.first().map_or(0, |job| job.submit_ms);
    for job in &mut workload.jobs {
        let after_s = (job.submit_ms - first) as f64 / 1000.0 / times;
        job.submit_ms = first + after_s.round() as u64 * 1000;
        // Recorded waits belong to the recorded submits.
        job.waited_ms = UNKNOWN;
    }
    workload
        .notes
        .push(format!("submits arrive {times} times as fast as recorded"));
}

/// Moves each submit to an earlier or later time by up to `most_ms`, in full seconds. Differences between such replays
/// are noise (Tsafrir, Ouaknine, Feitelson, MASCOTS 2007).
pub fn jitter_submits(workload: &Workload, seed: u64, most_ms: u64) -> Workload {
    let mut rng = Rng::new(seed, "shake");
    let mut shaken = workload.clone();
    let most_s = most_ms / 1000;
    for job in &mut shaken.jobs {
        let moved_ms = rng.range(0, 2 * most_s + 1) * 1000;
        job.submit_ms = job
            .submit_ms
            .saturating_add(moved_ms)
            .saturating_sub(most_s * 1000);
    }
    shaken.jobs.sort_by_key(|job| (job.submit_ms, job.line));
    shaken
}
