//! Runs of many seeds, and the table of their results.

use crate::run::{Plan, Report, run};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Sum of the reports of many seeds.
#[derive(Debug, Default)]
pub struct RunTotals {
    /// Number of seeds.
    pub seeds: u64,
    /// Reports with violations, by seed.
    pub failed: Vec<Report>,
    /// Numbers of operations and faults, by kind.
    pub counts: BTreeMap<String, u64>,
    elections: u64,
    commands: u64,
    refused: u64,
    repeats: u64,
    /// Snapshots that members installed from a leader.
    pub installed: u64,
    calls: u64,
    lost: u64,
    doubled: u64,
    syncs: u64,
    replaced: u64,
    healed: Duration,
    slowest: Duration,
    slowest_seed: u64,
    simulated: Duration,
    /// Wall-clock time from the first run to the end of the last.
    pub took: Duration,
}

impl RunTotals {
    fn add(&mut self, report: Report) {
        self.seeds += 1;
        for (what, count) in &report.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        self.elections += report.elections;
        self.commands += report.counters.commands;
        self.refused += report.counters.refused;
        self.repeats += report.counters.repeats;
        self.installed += report.counters.installed;
        self.calls += report.network.calls;
        self.lost += report.network.lost;
        self.doubled += report.network.doubled;
        self.syncs += report.syncs;
        self.replaced += report.replaced;
        self.healed += report.healed_in;
        if report.healed_in > self.slowest {
            (self.slowest, self.slowest_seed) = (report.healed_in, report.seed);
        }
        self.simulated += report.simulated;
        if !report.violations.is_empty() {
            self.failed.push(report);
            self.failed.sort_by_key(|r| r.seed);
        }
    }
}

impl fmt::Display for RunTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = self.seeds as f64 / self.took.as_secs_f64().max(0.001);
        let rows = [
            ("seeds", self.seeds),
            ("simulated seconds", self.simulated.as_secs()),
            ("elections", self.elections),
            ("commands committed", self.commands),
            ("  refused when applied", self.refused),
            ("  repeats under a key", self.repeats),
            ("snapshots installed", self.installed),
            ("snapshots and markers written", self.replaced),
            ("syncs of logs", self.syncs),
            ("calls carried", self.calls),
            ("  lost", self.lost),
            ("  doubled", self.doubled),
        ];
        for (what, count) in rows {
            writeln!(f, "{what:<40} {count:>12}")?;
        }
        for (what, count) in &self.counts {
            writeln!(f, "{what:<40} {count:>12}")?;
        }
        let average = self.healed.as_millis() / u128::from(self.seeds.max(1));
        writeln!(
            f,
            "{:<40} {average:>9} ms, {} ms at most (seed {})",
            "healed after faults stopped, on average",
            self.slowest.as_millis(),
            self.slowest_seed
        )?;
        writeln!(f, "{:<40} {:>12}", "violations", self.failed.len())?;
        write!(
            f,
            "{:<40} {:>9} s, {per_second:.1} seeds a second",
            "took",
            self.took.as_secs()
        )
    }
}

/// Runs `count` seeds from `first` on, on this number of threads. Ends early after ten seeds with violations.
pub fn run_many(
    first: u64,
    count: u64,
    threads: usize,
    plan: impl Fn(u64) -> Plan + Sync,
) -> RunTotals {
    let (next, sum) = (AtomicU64::new(first), Mutex::new(RunTotals::default()));
    let began = Instant::now();
    let lock = || sum.lock();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= first + count || lock().failed.len() >= 10 {
                        return;
                    }
                    let report = run(&plan(seed));
                    lock().add(report);
                }
            });
        }
    });
    let mut sum = sum.into_inner();
    sum.took = began.elapsed();
    sum
}
