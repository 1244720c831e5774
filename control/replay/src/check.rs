//! Checks of invariants that hold for every schedule, whatever scheduler made it.

#[cfg(test)]
mod tests;

use crate::{
    schedule::{JobStart, NodeSets, PromisedStart},
    trace::Workload,
};
use std::collections::BTreeMap;

/// Largest number of described faults of each kind; further faults are only counted.
const MAX_DESCRIBED: u64 = 5;

/// Faults of a schedule.
#[derive(Debug, Default)]
pub struct Faults {
    /// Descriptions of the first faults of each kind.
    pub descriptions: Vec<String>,
    /// Number of all faults.
    pub count: u64,
    by_kind: BTreeMap<FaultKind, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FaultKind {
    TooEarly,
    TooMuch,
    Promise,
    Size,
    TwoOwners,
}

impl Faults {
    fn add(&mut self, kind: FaultKind, what: impl FnOnce() -> String) {
        self.count += 1;
        let of_kind = self.by_kind.entry(kind).or_default();
        *of_kind += 1;
        if *of_kind <= MAX_DESCRIBED {
            self.descriptions.push(what());
        }
    }
}

/// Facts about a schedule other than starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScheduleFacts<'a> {
    /// Nodes of each job.
    pub nodes: Option<&'a NodeSets>,
    /// Promised starts of the first waiting job, in the order in which they were made.
    pub promises: Option<&'a [PromisedStart]>,
    /// Whether the first waiting job stays the first until it has started. This is not so if factors other than age
    /// order the queue.
    pub keeps_order: bool,
}

/// Checks a schedule on a machine of `size` processors or nodes. `served` has the entries of the workload's jobs, in
/// the same order.
pub fn check(
    workload: &Workload,
    served: &[JobStart],
    size: u64,
    known: ScheduleFacts<'_>,
) -> Faults {
    let mut faults = Faults::default();
    for (job, served) in workload.jobs.iter().zip(served) {
        if served.has_started() && served.start_ms < job.submit_ms {
            let number = job.number;
            faults.add(FaultKind::TooEarly, || {
                format!(
                    "job {number} starts at {} ms, before its submission at {} ms",
                    served.start_ms, job.submit_ms
                )
            });
        }
    }
    check_usage(workload, served, size, &mut faults);
    if let Some(promises) = known.promises {
        check_promises(workload, served, promises, known.keeps_order, &mut faults);
    }
    if let Some(nodes) = known.nodes {
        check_owners(workload, served, nodes, &mut faults);
    }
    faults
}

/// Checks that no more processors are in use at once than the machine has.
fn check_usage(workload: &Workload, served: &[JobStart], size: u64, faults: &mut Faults) {
    let pairs = workload
        .jobs
        .iter()
        .zip(served)
        .filter(|(_, served)| served.has_started());
    let mut steps: Vec<(u64, i64)> = pairs
        .flat_map(|(job, served)| {
            let procs = i64::from(job.size);
            [(served.start_ms, procs), (served.end_ms(job), -procs)]
        })
        .collect();
    // Ends sort before starts of the same instant, so that released processors can be used again at once.
    steps.sort_unstable();
    let mut used = 0_i64;
    for (at, change) in steps {
        used += change;
        if change > 0 && used > i64::try_from(size).unwrap_or(i64::MAX) {
            faults.add(FaultKind::TooMuch, || {
                format!("{used} of {size} processors or nodes are in use at {at} ms")
            });
        }
    }
}

/// Checks promised starts. As long as a job is the first, it must start no later than promised, and its promised start
/// must not move to a later time. If the order may change, a promise no longer holds once another job was started in
/// queue order.
fn check_promises(
    workload: &Workload,
    served: &[JobStart],
    promises: &[PromisedStart],
    keeps_order: bool,
    faults: &mut Faults,
) {
    let mut in_turn: Vec<u64> = served
        .iter()
        .filter(|served| served.has_started() && !served.is_backfilled)
        .map(|served| served.start_ms)
        .collect();
    in_turn.sort_unstable();
    // Whether another job was started in queue order in this period; never so if the order is kept.
    let overtaken = |from: u64, until: u64| {
        let next = in_turn.partition_point(|at| *at < from);
        !keeps_order && in_turn.get(next).is_some_and(|at| *at <= until)
    };
    let number = |job: u32| workload.jobs[job as usize].number;
    let start = |promise: &PromisedStart| served[promise.job as usize].start_ms;
    for pair in promises.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if before.job == after.job
            && after.starts_ms > before.starts_ms
            && !overtaken(before.at_ms, after.at_ms)
        {
            faults.add(FaultKind::Promise, || {
                format!(
                    "job {} had a promised start at {} ms, decided at {} ms; at {} ms the promised start moved to \
                     {} ms",
                    number(before.job),
                    before.starts_ms,
                    before.at_ms,
                    after.at_ms,
                    after.starts_ms
                )
            });
        }
    }
    let ends = (1..promises.len())
        .map(|next| promises[next].at_ms)
        .chain([u64::MAX]);
    for (promise, until) in promises.iter().zip(ends) {
        let start = start(promise);
        // A promise holds as long as the job is the first. If the order is kept, the job is first until it starts.
        let is_first = keeps_order || start <= until;
        let earlier_in_turn = || overtaken(promise.at_ms, start.saturating_sub(1));
        if start > promise.starts_ms && is_first && !earlier_in_turn() {
            faults.add(FaultKind::Promise, || {
                let (number, promised) = (number(promise.job), promise.starts_ms);
                format!(
                    "job {number} had a promised start at {promised} ms but starts at {start} ms"
                )
            });
        }
    }
}

/// Checks that each job has as many nodes as requested, and that no two jobs hold a node at once.
fn check_owners(workload: &Workload, served: &[JobStart], nodes: &NodeSets, faults: &mut Faults) {
    let mut held: BTreeMap<u32, Vec<(u64, u64, u32)>> = BTreeMap::new();
    for (place, (job, served)) in workload.jobs.iter().zip(served).enumerate() {
        if !served.has_started() {
            continue;
        }
        let set = nodes.of_job(place);
        if set.len() != job.size as usize {
            faults.add(FaultKind::Size, || {
                format!(
                    "job {} has {} nodes but requested {}",
                    job.number,
                    set.len(),
                    job.size
                )
            });
        }
        for node in set {
            // There are fewer than 2^32 jobs.
            let hold = (served.start_ms, served.end_ms(job), place as u32);
            held.entry(*node).or_default().push(hold);
        }
    }
    for (node, mut holds) in held {
        holds.sort_unstable();
        for pair in holds.windows(2) {
            let ((_, end, first), (start, _, second)) = (pair[0], pair[1]);
            if start < end {
                let number = |place: u32| workload.jobs[place as usize].number;
                faults.add(FaultKind::TwoOwners, || {
                    let name = nodes.name(node);
                    format!(
                        "node {name} is held by job {} until {end} ms and by job {} from {start} ms",
                        number(first),
                        number(second)
                    )
                });
            }
        }
    }
}
