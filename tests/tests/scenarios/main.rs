//! Scenarios in words for rules about preemption, lending and other movement: the files `tests/scenarios/*.feature`.
//! Each runs on a cluster of real processes through the public interfaces. Start with `tests/scenarios/README.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod batch;
mod cluster;
mod drawings;
mod graphs;
mod jobs;
mod movement_steps;
mod refusals;
mod runner;
mod scaling;
mod services;
mod settings;
mod steps;
mod users;
mod world;

use std::process::ExitCode;

/// First argument that makes this process the counting program.
const COUNTS: &str = "checkpointer";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(COUNTS) {
        return lattice_checkpointer::main(std::env::args_os().skip(1)).into();
    }
    if std::env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let all = [
        batch::steps(),
        cluster::steps(),
        drawings::steps(),
        graphs::steps(),
        jobs::steps(),
        movement_steps::steps(),
        refusals::steps(),
        scaling::steps(),
        services::steps(),
    ];
    let steps = steps::Steps::new(all.into_iter().flatten().collect());
    runner::run(lattice_tests::programs!(), &steps, filter.as_deref())
}
