//! Hundreds of seeds with three or five members, competing clients and faults. No seed may violate an invariant.
//! `LATTICE_SIM_SEEDS` sets the number of seeds, `LATTICE_SIM_FIRST` the first one.

use lattice_quorum_sim::{Plan, run, run_many};

fn number(name: &str, otherwise: u64) -> u64 {
    let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(otherwise)
}

#[test]
fn one_seed_is_one_run() {
    for seed in [3, 5, 8] {
        let (first, second) = (run(&Plan::of(seed)), run(&Plan::of(seed)));
        assert!(first.counters.commands > 50, "{first:?}");
        assert_eq!(first.trace, second.trace, "seed {seed} gave two runs");
    }
}

#[test]
fn no_seed_breaks_what_must_hold() {
    let (first, count) = (
        number("LATTICE_SIM_FIRST", 0),
        number("LATTICE_SIM_SEEDS", 200),
    );
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let sum = run_many(first, count, threads, Plan::of);
    println!("{sum}");
    for failed in &sum.failed {
        println!("seed {}: {:#?}", failed.seed, failed.violations);
        for line in failed.last_lines.iter().rev().take(60).rev() {
            println!("  {line}");
        }
    }
    let seeds: Vec<u64> = sum.failed.iter().map(|report| report.seed).collect();
    assert!(seeds.is_empty(), "just sim SEED shows each of {seeds:?}");
    // A fault that never occurs proves nothing.
    for what in [
        "fault power cut at a write",
        "fault sync failed",
        "fault member cut off one way",
        "fault clock jumped",
        "op Submit ok",
        "op Submit unknown",
        "op Assign ok",
        "op Assign refused",
        "op SetLimits ok",
        "op SetLimits refused",
        "op repeated after unknown",
    ] {
        let happened = sum.counts.get(what).copied().unwrap_or(0);
        assert!(happened > 0 || count < 100, "{what} never happened");
    }
    assert!(
        sum.installed > 0 || count < 100,
        "no snapshot was installed"
    );
}
