//! A whole cluster in this process: three quorum members, controls, and agents that read captured hosts and run real
//! processes. Its `main` begins with the hidden subcommands of the processes that the cluster starts, which the
//! standard test harness does not permit.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod accounting;
mod baselines;
mod example;
mod faults;
mod fixture;
mod inputs;
mod loss;
mod movement;
mod relay;
mod roll;
mod scenario_groups;
mod scenarios;

use std::process::ExitCode;

fn main() -> ExitCode {
    lattice_agent::child::run_if_child();
    if std::env::args().nth(1).as_deref() == Some(movement::PROGRAM) {
        return lattice_checkpointer::main(std::env::args_os().skip(1)).into();
    }
    if std::env::args().nth(1).as_deref() == Some(example::PROGRAM) {
        return example::main();
    }
    if std::env::var_os("LATTICE_TEST_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_env("LATTICE_TEST_LOG"))
            .with_writer(std::io::stderr)
            .init();
    }
    scenario_groups::run(vec![
        scenarios::group(),
        baselines::group(),
        roll::group(),
        inputs::group(),
        movement::group(),
        accounting::group(),
        example::group(),
    ])
}
