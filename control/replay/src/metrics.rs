//! Metrics of a schedule, by the conventions of the field. Every report lists these conventions; see [`CONVENTIONS`].

#[cfg(test)]
mod tests;

use crate::{
    schedule::JobStart,
    trace::{Job, Workload},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Run times below this bound count as the bound in the bounded slowdown, seconds (Feitelson et al., JSSPP 1997).
const SLOWDOWN_BOUND_S: f64 = 10.0;
/// Part of the makespan at each end that the utilization window leaves out, since the machine fills up or drains then.
const WINDOW_MARGIN: f64 = 0.05;
/// Period of the daily fairness, milliseconds.
const DAY_MS: u64 = 86_400_000;

/// Definitions of the metrics, for reports.
pub const CONVENTIONS: [&str; 9] = [
    "wait = start - submit; flow = end - submit",
    "bounded slowdown = max(1, (wait + run) / max(run, 10 s))",
    "utilization = work / (size x makespan), makespan = last end - first submit; the window leaves out the first \
     and last 5 % of the makespan",
    "percentile p = the smallest value that p % of the jobs do not exceed",
    "weighted = each job counts by size x run time",
    "fairness = Jain's index over tenants of (used share / intended share) in the window; intended shares are equal \
     unless the cluster file sets them; by day: over tenants with jobs that wait or run on that day, days weighted by \
     work; largest deficit = largest (intended share - used share) of a tenant",
    "starvation = the longest wait of each size class",
    "started within target = of all jobs of a class with a target, also of those that were refused or never started",
    "groups per job = mean number of topology groups of a job with more than one node; backfilled = started ahead of \
     a job with a reservation; queue = number of waiting jobs, mean over the makespan",
];

/// Metrics of one schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Jobs that started.
    pub jobs: u64,
    /// Jobs that were accepted and still waited at the end.
    pub never_started: u64,
    /// Jobs that were refused at submission: by a limit, or because no nodes match the request.
    pub refused: u64,
    /// Mean wait, seconds.
    pub mean_wait_s: f64,
    /// Median of waits, seconds.
    pub p50_wait_s: f64,
    /// 95th percentile of waits, seconds.
    pub p95_wait_s: f64,
    /// 99th percentile of waits, seconds.
    pub p99_wait_s: f64,
    /// Longest wait, seconds.
    pub max_wait_s: f64,
    /// Mean wait weighted by work, seconds.
    pub weighted_wait_s: f64,
    /// Mean flow time, seconds.
    pub mean_flow_s: f64,
    /// Longest flow time, seconds.
    pub max_flow_s: f64,
    /// Mean bounded slowdown.
    pub mean_bounded_slowdown: f64,
    /// Mean bounded slowdown weighted by work.
    pub weighted_bounded_slowdown: f64,
    /// Largest bounded slowdown.
    pub max_bounded_slowdown: f64,
    /// Work divided by (machine size × makespan), a fraction.
    pub utilization: f64,
    /// Utilization in the window, a fraction.
    pub utilization_window: f64,
    /// Makespan: from the first submit to the last end, seconds.
    pub makespan_s: f64,
    /// Mean number of waiting jobs.
    pub mean_queue: f64,
    /// Jain's fairness index in the window; see [`CONVENTIONS`].
    pub jain_fairness: f64,
    /// Jain's fairness index by day; see [`CONVENTIONS`].
    pub jain_fairness_by_day: f64,
    /// Largest deficit of a party; see [`CONVENTIONS`].
    pub largest_deficit: f64,
    /// Fraction of the jobs of a class with a target that started within that target; `None` if there are no such jobs.
    pub qos_met_fraction: Option<f64>,
    /// Jobs that started ahead of a job with a reservation.
    pub backfilled: u64,
    /// Number of preemptions.
    pub preempted: u64,
    /// Mean number of topology groups of a job with more than one node; `None` if nodes are not in groups.
    pub group_span_mean: Option<f64>,
    /// Longest wait by size class, seconds.
    pub starvation: Vec<SizeClass>,
}

/// Jobs of similar size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Smallest size of the class.
    pub from: u32,
    /// Largest size of the class.
    pub to: u32,
    /// Number of jobs.
    pub jobs: u64,
    /// Mean wait of the class, seconds.
    pub mean_wait_s: f64,
    /// Longest wait of the class, seconds.
    pub max_wait_s: f64,
}

/// Inputs of the metrics other than workload and schedule: machine size, groups, shares and targets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricInputs {
    /// Size of the machine, in the workload's unit.
    pub size: u64,
    /// Whether nodes are in topology groups.
    pub has_groups: bool,
    /// Parties between which shares are compared; empty: the workload's tenants.
    pub parties: Vec<Party>,
    /// Index of the party of each tenant of the workload; a missing entry means the tenant's own index.
    pub party_of: Vec<u32>,
    /// Target wait by request of the workload, milliseconds; `None`: no target.
    pub targets_ms: Vec<Option<u64>>,
}

/// Party with a share of the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Party {
    /// Name for reports.
    pub name: String,
    /// Share of the machine, from 0 to 1; `None`: an equal part of the rest.
    pub share: Option<f64>,
}

impl MetricInputs {
    fn parties(&self, workload: &Workload) -> usize {
        match self.parties.len() {
            0 => workload.tenants.len(),
            some => some,
        }
    }

    fn party_of(&self, tenant: u32) -> u32 {
        self.party_of
            .get(tenant as usize)
            .copied()
            .unwrap_or(tenant)
    }
}

/// Converts milliseconds to seconds.
pub(crate) fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Bounded slowdown of a job.
pub fn bounded_slowdown(wait_ms: u64, run_ms: u64) -> f64 {
    let (wait, run) = (seconds(wait_ms), seconds(run_ms));
    ((wait + run) / run.max(SLOWDOWN_BOUND_S)).max(1.0)
}

/// Measures a schedule; `served` has the entry of each job, in the order of the workload.
pub fn measure(workload: &Workload, served: &[JobStart], terms: &MetricInputs) -> Metrics {
    let started = || {
        let pairs = workload.jobs.iter().zip(served);
        pairs.filter(|(_, served)| served.has_started())
    };
    let mut waits: Vec<u64> = started().map(|(job, served)| served.wait_ms(job)).collect();
    waits.sort_unstable();
    let jobs = waits.len();
    let mean = |of: &dyn Fn(&Job, &JobStart) -> f64| {
        // `sum()` of nothing is -0.
        let sum = started()
            .map(|(job, served)| of(job, served))
            .fold(0.0, |sum, value| sum + value);
        sum / jobs.max(1) as f64
    };
    let max = |of: &dyn Fn(&Job, &JobStart) -> f64| {
        started()
            .map(|(job, served)| of(job, served))
            .fold(0.0, f64::max)
    };
    let work = |job: &Job| f64::from(job.size) * seconds(job.run_ms);
    let all_work: f64 = started().map(|(job, _)| work(job)).sum();
    let weighted = |of: &dyn Fn(&Job, &JobStart) -> f64| {
        let sum: f64 = started()
            .map(|(job, served)| work(job) * of(job, served))
            .sum();
        if all_work > 0.0 { sum / all_work } else { 0.0 }
    };
    let percentile = |of_a_hundred: usize| {
        let place = (jobs * of_a_hundred).div_ceil(100).saturating_sub(1);
        waits.get(place).map_or(0.0, |ms| seconds(*ms))
    };
    let wait = |job: &Job, served: &JobStart| seconds(served.wait_ms(job));
    let flow = |job: &Job, served: &JobStart| seconds(served.wait_ms(job) + job.run_ms);
    let slowdown = |job: &Job, served: &JobStart| bounded_slowdown(served.wait_ms(job), job.run_ms);
    let begin = started().map(|(job, _)| job.submit_ms).min().unwrap_or(0);
    let end = started()
        .map(|(job, served)| served.end_ms(job))
        .max()
        .unwrap_or(0);
    let makespan_ms = end - begin;
    let dropped = (makespan_ms as f64 * WINDOW_MARGIN) as u64;
    let window = (begin + dropped, end - dropped);
    let within = work_within(workload, served, terms, window);
    let capacity = |ms: u64| terms.size as f64 * seconds(ms);
    let part = |work: f64, of: f64| if of > 0.0 { work / of } else { 0.0 };
    let shares = intended_shares(workload, terms);
    let spread: Vec<f64> = started()
        .filter(|(job, _)| job.size > 1)
        .map(|(_, served)| f64::from(served.span))
        .collect();
    let total_wait: f64 = started().map(|(job, served)| wait(job, served)).sum();
    Metrics {
        jobs: jobs as u64,
        never_started: (workload.jobs.len() - jobs) as u64,
        refused: 0,
        mean_wait_s: mean(&wait),
        p50_wait_s: percentile(50),
        p95_wait_s: percentile(95),
        p99_wait_s: percentile(99),
        max_wait_s: max(&wait),
        weighted_wait_s: weighted(&wait),
        mean_flow_s: mean(&flow),
        max_flow_s: max(&flow),
        mean_bounded_slowdown: mean(&slowdown),
        weighted_bounded_slowdown: weighted(&slowdown),
        max_bounded_slowdown: max(&slowdown),
        utilization: part(all_work, capacity(makespan_ms)),
        utilization_window: part(
            within.iter().sum(),
            capacity(window.1.saturating_sub(window.0)),
        ),
        makespan_s: seconds(makespan_ms),
        mean_queue: part(total_wait, seconds(makespan_ms)),
        jain_fairness: jain(&within, &shares),
        jain_fairness_by_day: by_day(workload, served, terms, &shares, (begin, end)),
        largest_deficit: largest_deficit(&within, &shares),
        qos_met_fraction: target_met_fraction(workload, served, terms),
        backfilled: started().filter(|(_, served)| served.is_backfilled).count() as u64,
        preempted: started()
            .map(|(_, served)| u64::from(served.preempted))
            .sum(),
        group_span_mean: (terms.has_groups && spread.iter().any(|span| *span > 0.0))
            .then(|| spread.iter().sum::<f64>() / spread.len() as f64),
        starvation: starvation(workload, served),
    }
}

/// Work within a period by party, in seconds of one processor or node.
pub(crate) fn work_within(
    workload: &Workload,
    served: &[JobStart],
    terms: &MetricInputs,
    (from, until): (u64, u64),
) -> Vec<f64> {
    let mut used = vec![0.0; terms.parties(workload)];
    for (job, served) in workload.jobs.iter().zip(served) {
        if served.has_started() {
            let (start, end) = (served.start_ms.max(from), served.end_ms(job).min(until));
            used[terms.party_of(job.tenant) as usize] +=
                f64::from(job.size) * seconds(end.saturating_sub(start));
        }
    }
    used
}

/// Intended share by party. Shares add up to 1 unless the cluster gives the share of every party.
pub(crate) fn intended_shares(workload: &Workload, terms: &MetricInputs) -> Vec<f64> {
    let said = terms.parties.iter().map(|party| party.share);
    let nothing = std::iter::repeat_n(None, terms.parties(workload) - terms.parties.len());
    let shares: Vec<Option<f64>> = said.chain(nothing).collect();
    let sum: f64 = shares.iter().flatten().sum();
    let others = shares.iter().filter(|share| share.is_none()).count();
    let each = if others > 0 {
        (1.0 - sum).max(0.0) / others as f64
    } else {
        0.0
    };
    shares
        .into_iter()
        .map(|share| share.unwrap_or(each))
        .collect()
}

/// Jain's fairness index (Jain, Chiu, Hawe 1984): (Σx)² / (n·Σx²) with x = used / meant. The index is 1 if all parties
/// get the same part of their shares, and if no party used anything.
fn jain(used: &[f64], meant: &[f64]) -> f64 {
    let ratios: Vec<f64> = used
        .iter()
        .zip(meant)
        .filter(|(_, meant)| **meant > 0.0)
        .map(|(used, meant)| used / meant)
        .collect();
    let (sum, squares) = ratios
        .iter()
        .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares > 0.0 {
        sum * sum / (ratios.len() as f64 * squares)
    } else {
        1.0
    }
}

fn largest_deficit(used: &[f64], meant: &[f64]) -> f64 {
    let all: f64 = used.iter().sum();
    if all <= 0.0 {
        return 0.0;
    }
    let deficits = used
        .iter()
        .zip(meant)
        .map(|(used, meant)| meant - used / all);
    deficits.fold(0.0, f64::max)
}

/// Mean over days, weighted by work, of Jain's index of the parties with jobs that waited or ran on that day.
fn by_day(
    workload: &Workload,
    served: &[JobStart],
    terms: &MetricInputs,
    meant: &[f64],
    (begin, end): (u64, u64),
) -> f64 {
    let days = (end - begin).div_ceil(DAY_MS).max(1);
    // Work by day and party. An entry of 0 is a party that had only waiting jobs on that day.
    let mut used: BTreeMap<(u64, u32), f64> = BTreeMap::new();
    for (job, served) in workload.jobs.iter().zip(served) {
        if !served.has_started() {
            continue;
        }
        let day = |at: u64| ((at - begin) / DAY_MS).min(days - 1);
        let ends = served.end_ms(job);
        for day in day(job.submit_ms)..=day(ends.max(job.submit_ms + 1) - 1) {
            let (from, until) = (begin + day * DAY_MS, begin + (day + 1) * DAY_MS);
            let ran = ends.min(until).saturating_sub(served.start_ms.max(from));
            *used.entry((day, terms.party_of(job.tenant))).or_default() +=
                f64::from(job.size) * seconds(ran);
        }
    }
    let (mut sum, mut weight) = (0.0, 0.0);
    let mut entries = used.into_iter().peekable();
    while let Some(((day, _), _)) = entries.peek().copied() {
        let (mut of, mut share) = (Vec::new(), Vec::new());
        while let Some(((_, party), work)) = entries.next_if(|((at, _), _)| *at == day) {
            of.push(work);
            share.push(meant[party as usize]);
        }
        let work: f64 = of.iter().sum();
        sum += work * jain(&of, &share);
        weight += work;
    }
    if weight > 0.0 { sum / weight } else { 1.0 }
}

fn target_met_fraction(
    workload: &Workload,
    served: &[JobStart],
    terms: &MetricInputs,
) -> Option<f64> {
    let target = |job: &Job| *terms.targets_ms.get(job.request as usize)?;
    let (mut met, mut of) = (0_u64, 0_u64);
    for (job, served) in workload.jobs.iter().zip(served) {
        if let Some(target) = target(job) {
            of += 1;
            met += u64::from(served.has_started() && served.wait_ms(job) <= target);
        }
    }
    (of > 0).then(|| met as f64 / of as f64)
}

/// Waits by size class; each class begins at a power of two.
fn starvation(workload: &Workload, served: &[JobStart]) -> Vec<SizeClass> {
    let mut classes: BTreeMap<u32, SizeClass> = BTreeMap::new();
    for (job, served) in workload.jobs.iter().zip(served) {
        if !served.has_started() {
            continue;
        }
        let power = job.size.max(1).ilog2();
        let class = classes.entry(power).or_insert_with(|| SizeClass {
            from: 1 << power,
            to: ((1_u64 << (power + 1)) - 1) as u32,
            jobs: 0,
            mean_wait_s: 0.0,
            max_wait_s: 0.0,
        });
        let wait = seconds(served.wait_ms(job));
        class.jobs += 1;
        class.mean_wait_s += wait;
        class.max_wait_s = class.max_wait_s.max(wait);
    }
    let mean = |class: SizeClass| SizeClass {
        mean_wait_s: class.mean_wait_s / class.jobs as f64,
        ..class
    };
    classes.into_values().map(mean).collect()
}
