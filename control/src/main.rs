//! `lattice-control`: one control as a process.
#![forbid(unsafe_code)]

use anyhow::Context as _;
use clap::Parser;
use lattice_config::{PREFIX, Source};
use lattice_control::{App, Config, Edges, Settings, check_files, enrol};
use std::{path::PathBuf, process::ExitCode};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Places work, dispatches it to agents, and serves people and programs.
///
/// Every key of the configuration can be overridden by the environment: LATTICE_LISTEN,
/// LATTICE_HTTPS__LISTEN, and so on.
#[derive(Debug, Parser)]
#[command(name = "lattice-control", version)]
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
            eprintln!("lattice-control: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let source = Source::File(&args.config);
    let config: Config = lattice_config::load(source, lattice_config::environment(), PREFIX)?;
    let settings = config
        .settings()
        .context("the configuration was not checked")?;
    if args.check_config {
        check_files(&config)?;
        println!("{}: no mistakes", args.config.display());
        return Ok(());
    }
    let filter = EnvFilter::try_new(format!("quinn=warn,{}", config.log))
        .with_context(|| format!("log: {:?} is not a filter", config.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime did not start")?;
    runtime.block_on(serve(&config, settings))
}

async fn serve(config: &Config, settings: Settings) -> anyhow::Result<()> {
    let cluster = settings.cluster.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    enrol(config).await?;
    let edges = Edges::from_config(config)?;
    let mut app = App::bind(settings, edges).await?;
    app.start(Vec::new()).await?;
    println!(
        "lattice-control: control of {cluster} listens on UDP {} and https://{}",
        app.mesh_addr(),
        app.https_addr()
    );
    let unserved = tokio::select! {
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
        () = app.unserved() => true,
    };
    app.stop().await;
    anyhow::ensure!(
        !unserved,
        "the interfaces are no longer served; the log says why"
    );
    Ok(())
}
