//! Simulated days of [`lattice_replay::day`] with the reconcilers of this crate. Every reconciler that moves jobs is
//! the real one, over the real view, folded from the events of the real state machine. Only the network is simulated:
//! the day's agents answer in this process. The module `lattice_replay::day` documents the invariants.

mod day_control;
mod mutable_view;
mod wire;

use crate::decisions::Decisions;
use day_control::DayControl;
use lattice_placement::record::{Line, RECORD_FORMAT};
use lattice_quorum_types::{UnixMillis, event::AllocationChange};
use lattice_replay::{
    day::{Control, DaySummary, PlantedBug, Report, START, Site, run},
    verify,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::runtime::{Builder, Runtime};

/// Hours of a day that the usual tests simulate; the simulation takes seconds of real time.
const DEFAULT_HOURS: u64 = 2;
/// One hour, milliseconds.
const HOUR_MS: u64 = 3_600_000;
/// Planted bugs that a simulation of [`DEFAULT_HOURS`] hours finds.
const EARLY_BUGS: [PlantedBug; 4] = [
    PlantedBug::PromiseDropped,
    PlantedBug::CheckpointForgotten,
    PlantedBug::ThrashAllowed,
    PlantedBug::NoGrace,
];

/// Control on a paused clock, which advances only at a pass.
struct PausedControl {
    runtime: Runtime,
    control: DayControl,
}

impl PausedControl {
    fn new(site: &Site, decisions: Decisions) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let hand = runtime.block_on(DayControl::new(site, decisions));
        Self {
            runtime,
            control: hand,
        }
    }
}

impl Control for PausedControl {
    fn run_pass(&mut self, now: UnixMillis) {
        self.runtime.block_on(self.control.pass(now));
    }
}

fn day(site: &Site) -> Report {
    run(site, &mut PausedControl::new(site, Decisions::default()))
}

/// Simulates one day for each of `count` seeds from `first` on, on two threads; starts no more days after 10 failures.
fn days(first: u64, count: u64, site: impl Fn(u64) -> Site + Sync) -> DaySummary {
    let (next, sum) = (AtomicU64::new(first), Mutex::new(DaySummary::default()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= first + count || sum.lock().unwrap().failed.len() >= 10 {
                        return;
                    }
                    let began = Instant::now();
                    let report = day(&site(seed));
                    sum.lock().unwrap().add(report, began.elapsed());
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap();
    sum.took = began.elapsed();
    sum
}

fn env_number(name: &str, default: u64) -> u64 {
    let said = std::env::var(name).ok();
    said.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn what_must_hold_holds_whatever_a_day_brings() {
    let (first, count) = (
        env_number("LATTICE_DAYS_FROM", 0),
        env_number("LATTICE_DAYS", 2),
    );
    let hours = env_number("LATTICE_DAY_HOURS", DEFAULT_HOURS);
    let sum = days(first, count, |seed| Site::of_hours(seed, None, hours));
    println!("{sum}");
    for failed in &sum.failed {
        println!("seed {}: {:#?}", failed.seed, failed.violations);
    }
    assert!(
        sum.failed.is_empty(),
        "{} of {count} days",
        sum.failed.len()
    );
    assert_eq!(sum.days, count);
    // A day without any move proves nothing.
    let of_a_morning = [
        "nodes lent",
        "nodes returned",
        "nodes reclaimed",
        "  victims",
        "checkpoints: parts written",
        "allocations: resumed",
        "allocations: requeued",
    ];
    let of_a_day = [
        "checkpoints: failed",
        "services grown",
        "services shrunk",
        "allocations: assigned, sensitive",
    ];
    let is_whole = hours >= 24;
    let more = of_a_day.iter().filter(|_| is_whole);
    for what in of_a_morning.iter().chain(more) {
        assert!(sum.count(what) > 0, "{what}: none");
    }
}

/// Contents of the record of a day, by kind.
#[derive(Debug, Default)]
struct RecordedContents(BTreeMap<&'static str, usize>);

impl RecordedContents {
    const KINDS: [&str; 8] = [
        "plans",
        "placements",
        "placements of array elements",
        "placements of work that was queued again",
        "reservations of blocked work",
        "promised work",
        "lent nodes",
        "reservations of administrators",
    ];

    fn of(record: &[u8]) -> Self {
        let (mut found, mut submitted, mut placed) =
            (Self::default(), BTreeSet::new(), BTreeSet::new());
        let lines = record.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line).unwrap() {
                Line::Allocation(changed) if changed.change == AllocationChange::Submitted => {
                    submitted.insert(changed.id);
                }
                Line::Cycle(cycle) => {
                    let elements = cycle.placed.iter();
                    let elements = elements.filter(|one| !submitted.contains(&one.id)).count();
                    let again = cycle.placed.iter().filter(|one| !placed.insert(one.id));
                    let delta = cycle.delta.unwrap_or_default();
                    let counts = [
                        1,
                        cycle.placed.len(),
                        elements,
                        again.count(),
                        cycle.reserved.len(),
                        cycle.promised.len(),
                        delta.on_loan.values().flatten().count(),
                        delta.reserved.values().flatten().count(),
                    ];
                    found.add(&Self(Self::KINDS.into_iter().zip(counts).collect()));
                }
                _ => {}
            }
        }
        found
    }

    fn add(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(*kind).or_default() += count;
        }
    }
}

/// Every plan of every scheduler is repeated from the record, including arrays, promises, loans and reservations.
#[test]
fn recorded_days_are_decided_again() {
    let hours = env_number("LATTICE_DAY_HOURS", DEFAULT_HOURS);
    let folder = tempfile::tempdir().unwrap();
    let mut all = RecordedContents::default();
    for seed in 0..env_number("LATTICE_DAYS", 2) {
        let begin = Line::Begin {
            format: RECORD_FORMAT,
            cluster: "day".to_owned(),
            control: "c1".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: UnixMillis(0),
        };
        let own = folder.path().join(seed.to_string());
        let decisions = Decisions::open(Some(&own), 1 << 30, begin).unwrap();
        let site = Site::of_hours(seed, None, hours);
        let mut live = PausedControl::new(&site, decisions);
        run(&site, &mut live);
        let record = live.control.record(UnixMillis(0));
        let path = own.join("record.jsonl");
        std::fs::write(&path, &record).unwrap();
        let verdict = verify::verify(|| verify::open(&path)).unwrap();
        let recorded = RecordedContents::of(&record);
        println!("seed {seed}: {recorded:?}, {verdict:?}");
        assert!(verdict.is_same(), "seed {seed}: {verdict:#?}");
        assert_eq!(verdict.cycles_equal as usize, recorded.0["plans"]);
        all.add(&recorded);
        // The second half of the day, without the lines before it.
        let since = START.after(hours * HOUR_MS / 2);
        std::fs::write(&path, live.control.record(since)).unwrap();
        let later = verify::verify(|| verify::open(&path)).unwrap();
        assert!(later.is_same(), "seed {seed}, since {since}: {later:#?}");
        assert_eq!(later.from, since);
        assert!(
            later.cycles > 0 && later.cycles < verdict.cycles,
            "{later:?}"
        );
    }
    for kind in RecordedContents::KINDS {
        assert!(all.0[kind] > 0, "{kind}: none");
    }
}

#[test]
fn a_seed_is_the_same_day_again() {
    let hours = env_number("LATTICE_DAY_HOURS", 1);
    let one = || day(&Site::of_hours(1, None, hours));
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(one);
        (one(), other.join().unwrap())
    });
    assert_eq!(first, second);
}

#[test]
fn every_planted_bug_is_found() {
    let hours = env_number("LATTICE_DAY_HOURS", DEFAULT_HOURS);
    let all = match hours >= 24 {
        true => PlantedBug::ALL.to_vec(),
        false => EARLY_BUGS.to_vec(),
    };
    let left = Mutex::new(all);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(plant) = left.lock().unwrap().pop() else {
                        return;
                    };
                    let mut found = (0..12).map(|seed| {
                        let report = day(&Site::of_hours(seed, Some(plant), hours));
                        let is_planted = |what: &&String| what.contains(plant.violation_text());
                        let violation = report.violations.iter().find(is_planted).cloned();
                        if violation.is_none() && !report.violations.is_empty() {
                            println!("{plant:?}, seed {seed}: {:#?}", report.violations);
                        }
                        violation.map(|violation| (seed, violation))
                    });
                    let found = found.find_map(|found| found);
                    let (seed, violation) =
                        found.unwrap_or_else(|| panic!("{plant:?} is not found"));
                    println!("{plant:?}, seed {seed}: {violation}");
                }
            });
        }
    });
}
