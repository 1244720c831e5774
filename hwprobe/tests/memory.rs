//! The memory of an agent does not grow with its probes. The tests run in a separate process, one at a time, because
//! they measure the resident memory of this process.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/trials.rs"]
mod trials;

use lattice_fake_nvml::{DESCRIPTION_ENV, library_path};
use lattice_hwprobe::{Host, NvmlSource, child, probe_isolated};
use std::path::Path;
use std::process::ExitCode;
use trials::{Test, tests};

const TESTS: &[Test] = tests![probes_leave_nothing_behind, what_is_left_behind_is_seen];

/// Rounds for warming up the allocator, and rounds that must need no more memory.
const WARM_UP: usize = 30;
const ROUNDS: usize = 90;
/// Number of last rounds with measured memory, in either phase.
const LOOKED_AT: usize = 8;
/// Maximum growth in KiB; an inventory leaked in each round would be four times this.
const MOST_GROWTH_KIB: u64 = 1024;

fn main() -> ExitCode {
    child::run_if_child();
    trials::run(TESTS, true)
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let amount = line.and_then(|line| line.split_whitespace().next());
    amount.expect("VmRSS").parse().unwrap()
}

/// Memory growth in KiB: from the maximum of the last warm-up rounds to the minimum of the last rounds, because a
/// temporarily used page is not growth.
fn growth_of(mut round: impl FnMut()) -> u64 {
    let mut last_of = |rounds: usize| -> Vec<u64> {
        let mut seen = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            round();
            seen.push(resident_kib());
        }
        seen.split_off(rounds - LOOKED_AT)
    };
    let before = last_of(WARM_UP).into_iter().max().unwrap();
    let after = last_of(ROUNDS).into_iter().min().unwrap();
    after.saturating_sub(before)
}

fn probes_leave_nothing_behind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts/gpu001");
    let program = std::env::current_exe().unwrap();
    let library = library_path().expect("the fake library is built with this test");
    let nvml = NvmlSource::child(&program, Some(&library))
        .with_env(DESCRIPTION_ENV, root.join("nvml.json"));
    let host = Host::new(root, nvml);
    let grown = growth_of(|| {
        let inventory = probe_isolated(&host, &program);
        assert_eq!(inventory.resources.gpus(), Some(8));
        assert!(inventory.probe_reasons().is_empty());
    });
    assert!(grown <= MOST_GROWTH_KIB, "{grown} KiB");
}

/// Test of the measurement: a leak of 64 KiB in each round is far above the limit.
fn what_is_left_behind_is_seen() {
    let mut kept = Vec::new();
    let grown = growth_of(|| kept.push(vec![1_u8; 64 << 10]));
    assert!(grown > MOST_GROWTH_KIB, "{grown} KiB");
    assert_eq!(kept.len(), WARM_UP + ROUNDS);
}
