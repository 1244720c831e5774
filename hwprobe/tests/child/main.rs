//! Tests with real probe children. This program is the child that they start: its `main` runs the hidden subcommands
//! first, which the standard test harness does not permit.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod checks;
mod gpu;
mod gpu_captures;
mod gpu_events;
#[path = "../../../agent/tests/hanging/mod.rs"]
mod hanging;
mod hosts;
mod inclusion;
mod isolated;
mod keys;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/trials.rs"]
mod trials;

use std::process::ExitCode;

fn main() -> ExitCode {
    lattice_hwprobe::child::run_if_child();
    let modules = [
        checks::TESTS,
        gpu::amd::TESTS,
        gpu::captured::TESTS,
        gpu::fabric_manager::TESTS,
        gpu::faults::TESTS,
        gpu::live::TESTS,
        gpu::topology::TESTS,
        gpu::values::TESTS,
        gpu_captures::TESTS,
        gpu_events::TESTS,
        hosts::TESTS,
        inclusion::TESTS,
        isolated::TESTS,
        keys::TESTS,
    ];
    trials::run(modules.into_iter().flatten(), false)
}
