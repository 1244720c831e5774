//! A whole cluster in this process: three quorum members, controls, and agents that read captured
//! hosts and run real processes. Each scenario uses the cluster as the one before left it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod accounting;
mod baselines;
mod bed;
mod example;
mod faults;
mod inputs;
mod loss;
mod movement;
mod relay;
mod roll;
mod scenarios;

use std::{future::Future, process::ExitCode, time::Instant};

/// Runs scenarios whose name contains the first argument, as `cargo test NAME` does; the first one
/// founds the cluster and always runs.
fn main() -> ExitCode {
    lattice_agent::child::run_if_child();
    if std::env::args().nth(1).as_deref() == Some(movement::PROGRAM) {
        return lattice_checkpointer::main(std::env::args_os().skip(1)).into();
    }
    if std::env::args().nth(1).as_deref() == Some(example::PROGRAM) {
        return example::main();
    }
    let filter = std::env::args().nth(1).filter(|arg| !arg.starts_with('-'));
    if std::env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os("LATTICE_TEST_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_env("LATTICE_TEST_LOG"))
            .with_writer(std::io::stderr)
            .init();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        if !matches!(
            filter.as_deref(),
            Some("accounting" | "example" | "baselines" | "upgraded" | "site_tells" | "movement")
        ) {
            scenarios::run(filter.as_deref()).await;
        }
        baselines::run(filter.as_deref()).await;
        roll::run(filter.as_deref()).await;
        inputs::run(filter.as_deref()).await;
        movement::run(filter.as_deref()).await;
        accounting::run(filter.as_deref()).await;
        example::run(filter.as_deref()).await;
    });
    ExitCode::SUCCESS
}

/// Runs one scenario and says how long it took; a panic in it ends the process with its message.
async fn scenario(name: &str, filter: Option<&str>, run: impl Future<Output = ()>) {
    if filter.is_some_and(|filter| !name.contains(filter)) {
        return;
    }
    let began = Instant::now();
    run.await;
    println!("test {name} ... ok ({} ms)", began.elapsed().as_millis());
}
