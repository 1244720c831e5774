//! `lattice-quorum`: one member of the quorum as a process.

use anyhow::Context as _;
use clap::Parser;
use lattice_config::{PREFIX, Source, log};
use lattice_mesh::Credentials;
use lattice_quorum::{App, Config, Edges, Settings, authorities};
use std::{io::Write, path::PathBuf, process::ExitCode};
use tokio::signal::unix::{SignalKind, signal};

/// One member of the Lattice quorum.
///
/// SIGTERM ends it in order; SIGHUP takes up the credentials and the issuing keys that
/// are on disk then.
///
/// Every key of the configuration can be overridden by the environment: LATTICE_LISTEN,
/// LATTICE_ENROLMENT__DEFAULT_CELL, and so on.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and what it names, print every mistake, and exit.
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lattice-quorum: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let source = Source::File(&args.config);
    let config: Config = lattice_config::load(source, lattice_config::environment(), PREFIX)?;
    let edges = Edges::from_config(&config)?;
    let settings = config
        .settings()
        .context("the configuration was not checked")?;
    edges.check(&settings)?;
    let below = "openraft=error,openraft::replication=off,quinn=warn";
    let filter = log::filter(below, &config.log)?;
    if args.check_config {
        println!("{}: no mistakes", args.config.display());
        return Ok(());
    }
    log::start(filter);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime did not start")?;
    runtime.block_on(serve(settings, edges, &config))
}

async fn serve(settings: Settings, edges: Edges, config: &Config) -> anyhow::Result<()> {
    let (cluster, id) = (settings.cluster.clone(), settings.id);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut app = App::bind(settings, edges).await?;
    app.hold(authorities(config)?);
    app.start(Vec::new()).await?;
    // Nobody need read it, and its disk may be full.
    let _ = writeln!(
        std::io::stdout(),
        "lattice-quorum: member {id} of {cluster} listens on UDP {}",
        app.addr()
    );
    let failed = loop {
        tokio::select! {
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            _ = hangup.recv() => reload(&app, config),
            reason = app.failed() => break Some(reason),
        }
    };
    app.stop().await;
    match failed {
        Some(reason) => Err(anyhow::anyhow!("this member cannot go on: {reason}")),
        None => Ok(()),
    }
}

/// Puts the credentials and the issuing keys that are on disk now in force. Bad ones change nothing.
fn reload(app: &App, config: &Config) {
    let renewed = Credentials::load(&config.credentials).map_err(anyhow::Error::from);
    match renewed.and_then(|credentials| Ok(app.renew(credentials)?)) {
        Ok(()) => tracing::info!("credentials taken up"),
        Err(error) => tracing::error!("credentials not taken up: {error:#}"),
    }
    match authorities(config) {
        Ok(held) => {
            let pins: Vec<_> = held.iter().map(|held| held.pin().to_string()).collect();
            tracing::info!(?pins, "issuing keys taken up");
            app.hold(held);
        }
        Err(error) => tracing::error!("issuing keys not taken up: {error}"),
    }
}
