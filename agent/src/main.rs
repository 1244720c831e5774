//! `lattice-agent`: the daemon on each node.

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use lattice_agent::probe::{self, CaptureArgs, ProbeArgs};
use lattice_agent::{App, Config, Dependencies, StartError, check_online};
use lattice_config::{PREFIX, Source, environment, log, online::CheckReport};
use lattice_host::terminal::{message_lines, print_lines};
use lattice_mesh::EnrolError;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Node agent: publishes the inventory and health of this node, and runs the allocations that control dispatches to it.
///
/// SIGTERM or SIGINT stops the agent gracefully; running jobs continue. SIGHUP has no effect.
#[derive(Debug, Parser)]
#[command(
    name = "lattice-agent",
    version,
    args_conflicts_with_subcommands = true
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Configuration file. Without one, defaults and LATTICE_… environment variables apply.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, and the user map, hooks, health table and join token that it names, and exit. Prints
    /// every mistake in the configuration, its files and the LATTICE_ variables.
    #[arg(long)]
    check_config: bool,
    /// With --check-config: also connect to the quorum members and controls. Prints a line for each as its check ends,
    /// and takes some seconds at most.
    #[arg(long, requires = "check_config")]
    online: bool,
}

/// Subcommands of the agent binary. Without a subcommand, the binary runs the daemon.
#[derive(Debug, Subcommand)]
enum Command {
    /// Print the inventory of this machine, or of a captured one.
    Probe(ProbeArgs),
    /// Capture this machine into one file, which `probe --root` reads on any machine.
    Capture(CaptureArgs),
}

fn main() -> ExitCode {
    lattice_agent::child::run_if_child();
    let args = Args::parse();
    let ended = match &args.command {
        Some(Command::Probe(args)) => probe::probe(args),
        Some(Command::Capture(args)) => probe::capture(args),
        None => start(&args).map(|()| ExitCode::SUCCESS),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            message_lines(&format!("lattice-agent: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> anyhow::Result<()> {
    let source = args.config.as_deref().map_or(Source::Nothing, Source::File);
    if args.check_config {
        return check(args, source);
    }
    let config: Config = lattice_config::load(source, environment(), PREFIX)?;
    let filter = log::filter("", &config.log)?;
    log::start(filter);
    for problem in lattice_config::ignored_variables::<Config>(source, environment(), PREFIX) {
        tracing::warn!(%problem, "environment variable ignored");
    }
    let settings = config.into_settings()?;
    let runtime = runtime()?;
    let ended = runtime.block_on(run(settings));
    // A read that waits for its deadline must not delay the exit.
    runtime.shutdown_background();
    ended
}

/// Starts a runtime with one thread: the agent must not disturb the jobs on its node. Waking a second thread costs more
/// than the work it would do. Probes and disk accesses run on blocking threads.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(8)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Checks the configuration with its files, and with `--online` the quorum members and controls.
fn check(args: &Args, source: Source<'_>) -> anyhow::Result<()> {
    let config: Config = lattice_config::check_all(source, environment(), PREFIX)?;
    match &args.config {
        Some(path) => print_lines(&format!("{}: configuration is valid", path.display()))?,
        None => print_lines("the configuration is valid")?,
    }
    if args.online {
        let runtime = runtime()?;
        let report = CheckReport::new(print_lines);
        runtime.block_on(check_online(&config, &|check| report.add(&check)));
        // A resolver that does not answer must not delay the exit.
        runtime.shutdown_background();
        report.finish()?;
    }
    Ok(())
}

async fn run(settings: lattice_agent::Settings) -> anyhow::Result<()> {
    let edges = Dependencies::system().context("cannot read the boot id")?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // An enrolment may wait for as long as the quorum members request, and only this wait ends at a signal: without its
    // new key, a node that a member has already enrolled could not enrol again.
    let cancel = edges.cancel_enrolment.clone();
    let bound = {
        let bind = App::bind(settings, edges);
        tokio::pin!(bind);
        loop {
            tokio::select! {
                bound = &mut bind => break bound,
                _ = terminate.recv() => cancel.cancel(),
                _ = interrupt.recv() => cancel.cancel(),
            }
        }
    };
    let mut app = match bound {
        Ok(_) if cancel.is_cancelled() => {
            tracing::info!("stopped before the start was complete");
            return Ok(());
        }
        Ok(app) => app,
        Err(StartError::Enrol(error @ EnrolError::Cancelled)) => {
            tracing::info!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    // A failed write is ignored: no program needs the line, and standard output may be on a full disk.
    let (node, addr) = (app.node(), app.addr());
    let _ = print_lines(&format!("lattice-agent {node} listens on udp {addr}"));
    app.start().await?;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => tracing::info!("SIGHUP ignored"),
        }
    }
    app.stop().await;
    Ok(())
}
