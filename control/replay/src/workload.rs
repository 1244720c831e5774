//! A workload as it is replayed: on a machine of some size, with estimates that hold.

use crate::trace::{Skip, UNKNOWN, Unit, Workload};
use lattice_rng::Rng;
use serde::{Deserialize, Serialize};

/// What becomes of a job that ran longer than it had asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overrun {
    /// It is ended there, as schedulers do: it runs for as long as it asked for.
    #[default]
    End,
    /// It had asked for as long as it ran.
    Extend,
}

/// What fitting has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fitted {
    /// Jobs whose run time was cut to their estimate, or whose estimate was made longer.
    pub overran: u64,
    /// Jobs without an estimate: their run time stands for it.
    pub without_estimate: u64,
}

impl Fitted {
    /// For people; nothing where nothing was changed.
    pub fn told(self) -> Vec<String> {
        let mut told = Vec::new();
        if self.overran > 0 {
            told.push(format!(
                "{} jobs ran longer than they had asked for",
                self.overran
            ));
        }
        if self.without_estimate > 0 {
            told.push(format!(
                "{} jobs have no estimate: their run time stands for it",
                self.without_estimate
            ));
        }
        told
    }
}

/// Leaves out jobs that are larger than a machine of `size`, and makes every estimate one that holds.
pub fn fit(workload: &mut Workload, size: u64, overrun: Overrun) -> Fitted {
    let mut fitted = Fitted::default();
    let Workload { jobs, skipped, .. } = workload;
    jobs.retain_mut(|job| {
        if u64::from(job.size) > size {
            skipped.add(job.line, Skip::TooLarge, String::new);
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

/// Counts a workload of processors in nodes of so many each, rounded up: jobs that shared nodes do not any more.
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
        "sizes were processors, {per_node} a node: {rounded} jobs were rounded up to whole nodes, which is another \
         workload than the one that was recorded"
    ));
}

/// Has submits come so many times as fast: the same jobs as a higher (or lower) load.
pub fn speed_up(workload: &mut Workload, times: f64) {
    let first = workload.jobs.first().map_or(0, |job| job.submit_ms);
    for job in &mut workload.jobs {
        let after_s = (job.submit_ms - first) as f64 / 1000.0 / times;
        job.submit_ms = first + after_s.round() as u64 * 1000;
        // They did not wait so on the recorded machine.
        job.waited_ms = UNKNOWN;
    }
    workload.notes.push(format!(
        "submits come {times} times as fast as they were recorded"
    ));
}

/// The same workload with each submit moved by up to `most_ms` to either side, in whole seconds: what differs between
/// such replays is noise (Tsafrir, Ouaknine, Feitelson, MASCOTS 2007).
pub fn shake(workload: &Workload, seed: u64, most_ms: u64) -> Workload {
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
