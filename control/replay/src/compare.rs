//! Comparison of policies: differences in each measure, and whether these are significant.
//!
//! Single replays are chaotic: a shift of one submit by a few seconds may change the mean slowdown by percents.
//! Therefore each policy is replayed with randomly shifted submits ([`crate::workload::jitter_submits`]), and all
//! policies with the same seeds. Differences are taken seed by seed.

use crate::metrics::Metrics;
use serde::Serialize;

#[cfg(test)]
mod tests;

/// Direction in which a measure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GoodDirection {
    /// Lower is better.
    Lower,
    /// Higher is better.
    Higher,
    /// Neither: the measure does not rank policies.
    Neither,
}

/// One measure of a schedule.
#[derive(Clone, Copy)]
pub struct Measure {
    /// Name in JSON.
    pub name: &'static str,
    /// Title in reports.
    pub title: &'static str,
    /// Unit: `s`, or empty.
    pub unit: &'static str,
    /// Direction in which the measure is better.
    pub better: GoodDirection,
    of: fn(&Metrics) -> Option<f64>,
}

impl std::fmt::Debug for Measure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Measure {
    /// Value of the measure for one schedule; `None` if the schedule has no such value.
    pub fn of(&self, metrics: &Metrics) -> Option<f64> {
        (self.of)(metrics)
    }

    /// Returns the measure of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MEASURES.iter().find(|measure| measure.name == name)
    }
}

macro_rules! measures {
    ($($name:ident $title:literal $unit:literal $better:ident $of:expr;)*) => {
        /// All measures. Each is compared; one that ranks policies may be an objective of a sweep.
        pub const MEASURES: &[Measure] = &[$(Measure {
            name: stringify!($name),
            title: $title,
            unit: $unit,
            better: GoodDirection::$better,
            of: $of,
        }),*];
    };
}

measures! {
    jobs "jobs served" "" Higher |m| Some(m.jobs as f64);
    refused "refused" "" Lower |m| Some(m.refused as f64);
    never_started "never started" "" Lower |m| Some(m.never_started as f64);
    mean_wait_s "wait, mean" "s" Lower |m| Some(m.mean_wait_s);
    p50_wait_s "wait, p50" "s" Lower |m| Some(m.p50_wait_s);
    p95_wait_s "wait, p95" "s" Lower |m| Some(m.p95_wait_s);
    p99_wait_s "wait, p99" "s" Lower |m| Some(m.p99_wait_s);
    max_wait_s "wait, longest" "s" Lower |m| Some(m.max_wait_s);
    weighted_wait_s "wait, weighted by work" "s" Lower |m| Some(m.weighted_wait_s);
    mean_flow_s "flow, mean" "s" Lower |m| Some(m.mean_flow_s);
    max_flow_s "flow, longest" "s" Lower |m| Some(m.max_flow_s);
    mean_bounded_slowdown "bounded slowdown, mean" "" Lower |m| Some(m.mean_bounded_slowdown);
    weighted_bounded_slowdown "bounded slowdown, weighted by work" "" Lower |m| Some(m.weighted_bounded_slowdown);
    max_bounded_slowdown "bounded slowdown, largest" "" Lower |m| Some(m.max_bounded_slowdown);
    utilization "utilization" "" Higher |m| Some(m.utilization);
    utilization_window "utilization, window" "" Higher |m| Some(m.utilization_window);
    makespan_s "makespan" "s" Lower |m| Some(m.makespan_s);
    mean_queue "queue, mean" "" Lower |m| Some(m.mean_queue);
    jain_fairness "fairness (Jain)" "" Higher |m| Some(m.jain_fairness);
    jain_fairness_by_day "fairness (Jain), by day" "" Higher |m| Some(m.jain_fairness_by_day);
    largest_deficit "largest deficit" "" Lower |m| Some(m.largest_deficit);
    qos_met_fraction "started within target" "" Higher |m| m.qos_met_fraction;
    group_span_mean "groups per job, mean" "" Lower |m| m.group_span_mean;
    backfilled "backfilled" "" Neither |m| Some(m.backfilled as f64);
    preempted "preempted" "" Lower |m| Some(m.preempted as f64);
}

/// Mean over seeds, and its spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanAndDeviation {
    /// Mean over seeds.
    pub mean: f64,
    /// Standard deviation between seeds; 0 for a single seed.
    pub deviation: f64,
}

/// Difference of a policy from the first policy in one measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Mean difference over seeds.
    pub mean: f64,
    /// Half-width of the 95 % confidence interval of the mean (Student's t over the seeds); `None` for a single seed.
    pub within: Option<f64>,
    /// Mean difference divided by the first policy's mean; `None` if that mean is 0.
    pub relative: Option<f64>,
    /// Conclusion from the difference.
    pub verdict: ComparisonResult,
}

/// Conclusion from a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparisonResult {
    /// There is no difference.
    Same,
    /// The difference is not significant.
    Noise,
    /// A single seed allows no conclusion.
    OneSeed,
    /// The policies served different numbers of jobs, so measures of these jobs cannot be compared.
    OtherJobs,
    /// There is a difference in a measure that does not rank policies.
    Other,
    /// Better than the first policy.
    Better,
    /// Worse than the first policy.
    Worse,
}

/// One measure of all policies.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the measure in JSON.
    pub measure: &'static str,
    /// Title in reports.
    #[serde(skip)]
    pub title: &'static str,
    /// Unit: `s`, or empty.
    pub unit: &'static str,
    /// Direction in which the measure is better.
    pub better: GoodDirection,
    /// Value by policy.
    pub values: Vec<MeanAndDeviation>,
    /// Differences by policy, from the second policy on.
    pub differences: Vec<Difference>,
}

/// Compares policies. `sides` has the metrics of each policy by seed; all policies have the same seeds. Leaves out
/// measures that are not known for all policies.
pub fn compare(sides: &[Vec<Metrics>]) -> Vec<Row> {
    // If the numbers of served jobs are equal for each seed, the policies are assumed to have served the same jobs.
    let served =
        |side: &Vec<Metrics>| -> Vec<u64> { side.iter().map(|metrics| metrics.jobs).collect() };
    let first = sides.first().map(served).unwrap_or_default();
    let are_others = |side: &Vec<Metrics>| served(side) != first;
    let row = |measure: &Measure| {
        let values = |side: &Vec<Metrics>| {
            let values = side.iter().map(|metrics| measure.of(metrics));
            values.collect::<Option<Vec<f64>>>()
        };
        let known: Vec<Vec<f64>> = sides.iter().map(values).collect::<Option<_>>()?;
        let first = known.first()?;
        let tells_of_jobs = matches!(measure.name, "jobs" | "refused" | "never_started");
        let difference = |(side, values): (&Vec<Metrics>, &Vec<f64>)| {
            let found = difference(first, values, measure.better);
            match found.verdict {
                ComparisonResult::Better
                | ComparisonResult::Worse
                | ComparisonResult::Noise
                | ComparisonResult::OneSeed
                    if are_others(side) && !tells_of_jobs =>
                {
                    let verdict = ComparisonResult::OtherJobs;
                    Difference { verdict, ..found }
                }
                _ => found,
            }
        };
        let others = sides.iter().zip(&known).skip(1);
        Some(Row {
            measure: measure.name,
            title: measure.title,
            unit: measure.unit,
            better: measure.better,
            values: known.iter().map(|values| spread(values)).collect(),
            differences: others.map(difference).collect(),
        })
    };
    MEASURES.iter().filter_map(row).collect()
}

fn spread(values: &[f64]) -> MeanAndDeviation {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum();
    MeanAndDeviation {
        mean,
        deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
    }
}

fn difference(first: &[f64], other: &[f64], better: GoodDirection) -> Difference {
    let pairs: Vec<f64> = first
        .iter()
        .zip(other)
        .map(|(first, other)| other - first)
        .collect();
    let MeanAndDeviation { mean, deviation } = spread(&pairs);
    let within = (pairs.len() > 1).then(|| {
        let count = pairs.len() as f64;
        student_t_quantile(pairs.len() - 1) * deviation / count.sqrt()
    });
    let is_better = match better {
        GoodDirection::Lower => mean < 0.0,
        GoodDirection::Higher => mean > 0.0,
        GoodDirection::Neither => false,
    };
    let verdict = match within {
        _ if pairs.iter().all(|difference| *difference == 0.0) => ComparisonResult::Same,
        None => ComparisonResult::OneSeed,
        Some(within) if mean.abs() <= within => ComparisonResult::Noise,
        Some(_) if better == GoodDirection::Neither => ComparisonResult::Other,
        Some(_) if is_better => ComparisonResult::Better,
        Some(_) => ComparisonResult::Worse,
    };
    let of_first = spread(first).mean;
    Difference {
        mean,
        within,
        relative: (of_first != 0.0).then(|| mean / of_first),
        verdict,
    }
}

/// The 97.5 % quantile of Student's t by degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
fn student_t_quantile(freedom: usize) -> f64 {
    const QUANTILES: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let known = freedom
        .checked_sub(1)
        .and_then(|place| QUANTILES.get(place));
    known
        .copied()
        .unwrap_or(if freedom == 0 { f64::INFINITY } else { 1.960 })
}
