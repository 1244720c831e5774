//! Policies side by side: how they differ, and what of that is noise.
//!
//! Single replays are chaotic: moving one submit by a few seconds may change the mean slowdown by percents. So the same
//! work is served again with its submits shaken ([`crate::workload::shake`]), each policy by the same seeds, and the
//! difference is looked at seed by seed.

use crate::metrics::Metrics;
use serde::Serialize;

#[cfg(test)]
mod tests;

/// Which way a measure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less.
    Lower,
    /// More.
    Higher,
    /// Neither way: it only tells how.
    Neither,
}

/// One measure of a schedule.
#[derive(Clone, Copy)]
pub struct Measure {
    /// As in JSON.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// s, %, or nothing.
    pub unit: &'static str,
    /// Which way it is better.
    pub better: Better,
    of: fn(&Metrics) -> Option<f64>,
}

impl std::fmt::Debug for Measure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Measure {
    /// Its value of one schedule; `None` where it is not known.
    pub fn of(&self, metrics: &Metrics) -> Option<f64> {
        (self.of)(metrics)
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MEASURES.iter().find(|measure| measure.name == name)
    }
}

macro_rules! measures {
    ($($name:ident $title:literal $unit:literal $better:ident $of:expr;)*) => {
        /// All that are compared, and may be an objective.
        pub const MEASURES: &[Measure] = &[$(Measure {
            name: stringify!($name),
            title: $title,
            unit: $unit,
            better: Better::$better,
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
    group_span_mean "groups a job, mean" "" Lower |m| m.group_span_mean;
    backfilled "backfilled" "" Neither |m| Some(m.backfilled as f64);
    preempted "preempted" "" Lower |m| Some(m.preempted as f64);
}

/// A mean over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Standard deviation of one seed; 0 of one alone.
    pub deviation: f64,
}

/// How a policy differs from the first one in a measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Mean over seeds.
    pub mean: f64,
    /// The true mean is within so much of it, 95 times of a hundred (Student's t over the seeds); `None` of one
    /// seed alone.
    pub within: Option<f64>,
    /// The mean over the first policy's own; `None` where that is 0.
    pub relative: Option<f64>,
    /// What is to be made of it.
    pub verdict: Verdict,
}

/// What is to be made of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is none.
    Same,
    /// It may as well be none.
    Noise,
    /// One seed says nothing.
    OneSeed,
    /// Others were served: what is measured of them says nothing of the policies.
    OtherJobs,
    /// There is one, and it is neither better nor worse.
    Other,
    /// Better than the first.
    Better,
    /// Worse than the first.
    Worse,
}

/// One measure of all policies.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Which, as in JSON.
    pub measure: &'static str,
    /// For people.
    #[serde(skip)]
    pub title: &'static str,
    /// s, or nothing.
    pub unit: &'static str,
    /// Which way it is better.
    pub better: Better,
    /// By policy.
    pub values: Vec<Spread>,
    /// By policy from the second on.
    pub differences: Vec<Difference>,
}

/// Compares policies: of each the metrics by seed, all by the same seeds. Measures that are not known of all are left
/// out.
pub fn compare(sides: &[Vec<Metrics>]) -> Vec<Row> {
    // How many of them were served says how much of the same they were.
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
                Verdict::Better | Verdict::Worse | Verdict::Noise | Verdict::OneSeed
                    if are_others(side) && !tells_of_jobs =>
                {
                    let verdict = Verdict::OtherJobs;
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

fn spread(values: &[f64]) -> Spread {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum();
    Spread {
        mean,
        deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
    }
}

fn difference(first: &[f64], other: &[f64], better: Better) -> Difference {
    let pairs: Vec<f64> = first
        .iter()
        .zip(other)
        .map(|(first, other)| other - first)
        .collect();
    let Spread { mean, deviation } = spread(&pairs);
    let within = (pairs.len() > 1).then(|| {
        let count = pairs.len() as f64;
        student(pairs.len() - 1) * deviation / count.sqrt()
    });
    let is_better = match better {
        Better::Lower => mean < 0.0,
        Better::Higher => mean > 0.0,
        Better::Neither => false,
    };
    let verdict = match within {
        _ if pairs.iter().all(|difference| *difference == 0.0) => Verdict::Same,
        None => Verdict::OneSeed,
        Some(within) if mean.abs() <= within => Verdict::Noise,
        Some(_) if better == Better::Neither => Verdict::Other,
        Some(_) if is_better => Verdict::Better,
        Some(_) => Verdict::Worse,
    };
    let of_first = spread(first).mean;
    Difference {
        mean,
        within,
        relative: (of_first != 0.0).then(|| mean / of_first),
        verdict,
    }
}

/// The 97.5 % quantile of Student's t (any table of it; NIST/SEMATECH e-Handbook, 1.3.6.7.2).
fn student(freedom: usize) -> f64 {
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
