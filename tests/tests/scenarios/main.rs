//! The rules about work that moves, as scenarios in words: the files `tests/scenarios/*.feature`, each played on
//! a cluster of real processes through the interfaces that anybody has. Begin with `tests/scenarios/README.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod batch;
mod cluster;
mod drawings;
mod graphs;
mod jobs;
mod moves;
mod people;
mod refusals;
mod runner;
mod scaling;
mod services;
mod settings;
mod steps;
mod world;

use std::process::ExitCode;

/// As the first argument, this process is the program that counts.
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
        moves::steps(),
        refusals::steps(),
        scaling::steps(),
        services::steps(),
    ];
    let steps = steps::Steps::new(all.into_iter().flatten().collect());
    runner::run(lattice_tests::programs!(), &steps, filter.as_deref())
}
