//! `lattice-control`: one control as a process.
#![forbid(unsafe_code)]

use anyhow::Context as _;
use clap::Parser;
use lattice_config::{PREFIX, Source, log};
use lattice_control::{App, Config, Edges, Settings, check_files, enrol, read_tokens};
use std::{io::Write, path::PathBuf, process::ExitCode};
use tokio::signal::unix::{SignalKind, signal};

/// Places work, dispatches it to agents, and serves people and programs.
///
/// SIGTERM ends it in order; SIGHUP reads the file of tokens again. A bad one changes nothing.
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
    let filter = log::filter("quinn=warn", &config.log)?;
    if args.check_config {
        check_files(&config, &settings)?;
        println!("{}: no mistakes", args.config.display());
        return Ok(());
    }
    log::start(filter);
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
    let mut hangup = signal(SignalKind::hangup())?;
    enrol(config).await?;
    let edges = Edges::from_config(config)?;
    let mut app = App::bind(settings, edges).await?;
    app.start(Vec::new()).await?;
    // Nobody need read it, and its disk may be full.
    let _ = writeln!(
        std::io::stdout(),
        "lattice-control: control of {cluster} listens on UDP {} and https://{}",
        app.mesh_addr(),
        app.https_addr()
    );
    let unserved = loop {
        tokio::select! {
            _ = terminate.recv() => break false,
            _ = interrupt.recv() => break false,
            _ = hangup.recv() => renew_tokens(&app, config),
            () = app.unserved() => break true,
        }
    };
    app.stop().await;
    anyhow::ensure!(
        !unserved,
        "the interfaces are no longer served; the log says why"
    );
    Ok(())
}

/// Puts the tokens that are in their file now in force. A bad file changes nothing.
fn renew_tokens(app: &App, config: &Config) {
    match read_tokens(config).and_then(|tokens| app.renew_tokens(&tokens)) {
        Ok(()) => tracing::info!("tokens renewed"),
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::error!("tokens not renewed, the former ones stay: {error:#}");
        }
    }
}
