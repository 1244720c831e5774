//! Workload generator from a seed, for machine sizes and kinds of workloads without a published trace.
//!
//! Sizes are powers of two with some sizes in between. Run times are log-uniform from a minute to a day. Estimates are
//! one to five times as long and rounded up to usual values. Arrivals are a Poisson process with a daily cycle. The
//! workload is not fitted to any site; Lublin and Feitelson (JPDC 63(11), 2003) give a fitted model.

use crate::{
    request::Request,
    trace::{Job, UNKNOWN, Unit, Workload},
};
use lattice_rng::Rng;
use std::f64::consts::TAU;

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
/// Usual walltimes of users.
const USUAL_WALLTIMES_MS: [u64; 10] = [
    5 * MINUTE_MS,
    15 * MINUTE_MS,
    30 * MINUTE_MS,
    60 * MINUTE_MS,
    120 * MINUTE_MS,
    240 * MINUTE_MS,
    480 * MINUTE_MS,
    720 * MINUTE_MS,
    DAY_MS,
    5 * DAY_MS,
];

/// Parameters of a generated workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneratorSettings {
    /// Seed.
    pub seed: u64,
    /// Number of jobs.
    pub jobs: u32,
    /// Nodes of the machine.
    pub nodes: u32,
    /// Offered load: work divided by the capacity of the machine. At 1 and above, the queue grows without end.
    pub load: f64,
    /// Size of the largest job, nodes.
    pub largest: u32,
    /// Number of tenants that submit.
    pub tenants: u32,
}

/// Generates the workload.
pub fn generate(plan: GeneratorSettings) -> Workload {
    let mut rng = Rng::new(plan.seed, "workload");
    let mut jobs: Vec<Job> = Vec::with_capacity(plan.jobs as usize);
    let mut work = 0.0;
    for number in 1..=u64::from(plan.jobs) {
        let size = size(&mut rng, plan.largest.clamp(1, plan.nodes));
        let run_ms = rng.log_uniform(MINUTE_MS, DAY_MS) / 1000 * 1000;
        let asked = run_ms as f64 * (1.0 + 4.0 * rng.part());
        let rounded = USUAL_WALLTIMES_MS
            .into_iter()
            .find(|ms| *ms as f64 >= asked);
        work += f64::from(size) * run_ms as f64;
        let tenant = rng.range(0, u64::from(plan.tenants.max(1))) as u32;
        jobs.push(Job {
            number,
            line: number,
            submit_ms: 0,
            run_ms,
            estimate_ms: rounded.unwrap_or(5 * DAY_MS),
            waited_ms: UNKNOWN,
            size,
            user: tenant,
            tenant,
            request: 0,
        });
    }
    let span_ms = work / (f64::from(plan.nodes) * plan.load.max(f64::MIN_POSITIVE));
    let mean_gap_ms = span_ms / f64::from(plan.jobs.max(1));
    let mut at = 0.0;
    for job in &mut jobs {
        // About twice as many arrivals at the daily peak as at its low.
        let by_day = 1.0 + 0.33 * (TAU * at / DAY_MS as f64).sin();
        at += -(1.0 - rng.part()).ln() * mean_gap_ms / by_day;
        job.submit_ms = at as u64 / 1000 * 1000;
    }
    let names = |kind: &str| {
        (0..plan.tenants.max(1))
            .map(|n| format!("{kind}{n}"))
            .collect()
    };
    Workload {
        jobs,
        unit: Unit::Nodes,
        machine: Some(plan.nodes.into()),
        users: names("user"),
        tenants: names("tenant"),
        requests: vec![Request::default()],
        lines: plan.jobs.into(),
        ..Workload::default()
    }
}

/// Draws a size; three of four are rounded down to a power of two.
fn size(rng: &mut Rng, largest: u32) -> u32 {
    let size = rng
        .log_uniform(1, u64::from(largest) + 1)
        .clamp(1, u64::from(largest)) as u32;
    match rng.chance(750) {
        true => 1 << size.ilog2(),
        false => size,
    }
}
