//! A day of [`lattice_replay::day`] on which this crate decides: every pass of every reconciler that moves work
//! is the real one, over the real view, folded from the real state's events. The network alone is not: the
//! day's agents answer in this process. See there what must hold.

mod hand;
mod wire;

use hand::Hand;
use lattice_quorum_types::UnixMillis;
use lattice_replay::day::{Control, Plant, Report, Site, Sum, run};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::runtime::{Builder, Runtime};

/// The usual tests see so much of a day, hours: as much as takes seconds.
const MORNING: u64 = 2;
/// Bugs that it takes no longer to find.
const OF_A_MORNING: [Plant; 4] = [
    Plant::PromiseDropped,
    Plant::CheckpointForgotten,
    Plant::ThrashAllowed,
    Plant::NoGrace,
];

/// Control, on a clock that stands still between looks.
struct Live {
    runtime: Runtime,
    hand: Hand,
}

impl Live {
    fn new(site: &Site) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let hand = runtime.block_on(Hand::new(site));
        Self { runtime, hand }
    }
}

impl Control for Live {
    fn look(&mut self, now: UnixMillis) {
        self.runtime.block_on(self.hand.look(now));
    }
}

fn day(site: &Site) -> Report {
    run(site, &mut Live::new(site))
}

/// So many seeds from the first on, on two threads; ends early after some that went wrong.
fn days(first: u64, count: u64, site: impl Fn(u64) -> Site + Sync) -> Sum {
    let (next, sum) = (AtomicU64::new(first), Mutex::new(Sum::default()));
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

fn number(name: &str, default: u64) -> u64 {
    let said = std::env::var(name).ok();
    said.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn what_must_hold_holds_whatever_a_day_brings() {
    let (first, count) = (number("LATTICE_DAYS_FROM", 0), number("LATTICE_DAYS", 2));
    let hours = number("LATTICE_DAY_HOURS", MORNING);
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
    // A day on which nothing is moved shows nothing.
    let of_a_morning = [
        "nodes lent",
        "nodes home again",
        "nodes asked back",
        "  victims",
        "checkpoints: parts written",
        "work: resumed",
        "work: queued again",
    ];
    let of_a_day = [
        "checkpoints: failed",
        "services grown",
        "services shrunk",
        "assigned, sensitive",
    ];
    let is_whole = hours >= 24;
    let more = of_a_day.iter().filter(|_| is_whole);
    for what in of_a_morning.iter().chain(more) {
        assert!(sum.count(what) > 0, "{what}: none");
    }
}

#[test]
fn a_seed_is_the_same_day_again() {
    let hours = number("LATTICE_DAY_HOURS", 1);
    let one = || day(&Site::of_hours(1, None, hours));
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(one);
        (one(), other.join().unwrap())
    });
    assert_eq!(first, second);
}

#[test]
fn every_planted_bug_is_found() {
    let hours = number("LATTICE_DAY_HOURS", MORNING);
    let all = match hours >= 24 {
        true => Plant::ALL.to_vec(),
        false => OF_A_MORNING.to_vec(),
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
                        let told = |what: &&String| what.contains(plant.told_as());
                        let told = report.violations.iter().find(told).cloned();
                        if told.is_none() && !report.violations.is_empty() {
                            println!("{plant:?}, seed {seed}: {:#?}", report.violations);
                        }
                        told.map(|told| (seed, told))
                    });
                    let found = found.find_map(|found| found);
                    let (seed, told) = found.unwrap_or_else(|| panic!("{plant:?} is not found"));
                    println!("{plant:?}, seed {seed}: {told}");
                }
            });
        }
    });
}
