//! `lattice-control`: daemon process of one control.
#![forbid(unsafe_code)]

use anyhow::Context as _;
use clap::Parser;
use lattice_config::{PREFIX, Source, environment, log, online::CheckReport};
use lattice_control::{App, Config, Edges, Settings, StartError, check_online, enrol, read_tokens};
use lattice_host::terminal::{message_lines, print_lines};
use lattice_mesh::EnrolError;
use std::{path::PathBuf, process::ExitCode};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Schedule allocations, dispatch them to agents, and serve the REST and gRPC interfaces.
///
/// SIGTERM stops the daemon gracefully. SIGHUP reloads the tokens file and the HTTPS certificate; an invalid file
/// changes nothing. The HTTPS certificate is also reloaded within seconds after its files have changed.
///
/// Every configuration key can be overridden by an environment variable: LATTICE_LISTEN, LATTICE_HTTPS__LISTEN, and so
/// on.
#[derive(Debug, Parser)]
#[command(name = "lattice-control", version)]
struct Args {
    /// Configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and the files that it names, and exit. Prints every mistake in the configuration, its
    /// files and the LATTICE_ variables.
    #[arg(long)]
    check_config: bool,
    /// With --check-config: also try the quorum members, the OIDC issuer, Waldur, the BMCs and the scheduling sources.
    /// Prints a line for each as its check ends, and takes a minute at most.
    #[arg(long, requires = "check_config")]
    online: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message_lines(&format!("lattice-control: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let source = Source::File(&args.config);
    if args.check_config {
        return check(args);
    }
    let config: Config = lattice_config::load(source, environment(), PREFIX)?;
    let settings = settings_of(&config)?;
    log::start(log::filter("quinn=warn", &config.log)?);
    for problem in lattice_config::ignored_variables::<Config>(source, environment(), PREFIX) {
        tracing::warn!(%problem, "environment variable ignored");
    }
    runtime()?.block_on(serve(&config, settings))
}

fn settings_of(config: &Config) -> anyhow::Result<Settings> {
    config
        .settings()
        .context("the configuration was not checked")
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime did not start")
}

/// Checks the configuration with its files, and with `--online` the services that it names.
fn check(args: &Args) -> anyhow::Result<()> {
    let source = Source::File(&args.config);
    let config: Config = lattice_config::check_all(source, environment(), PREFIX)?;
    print_lines(&format!(
        "{}: configuration is valid",
        args.config.display()
    ))?;
    if args.online {
        let settings = settings_of(&config)?;
        let runtime = runtime()?;
        let report = CheckReport::new(print_lines);
        runtime.block_on(check_online(&config, &settings, &|check| {
            report.add(&check)
        }));
        // A resolver that does not answer must not delay the exit.
        runtime.shutdown_background();
        report.finish()?;
    }
    Ok(())
}

async fn serve(config: &Config, settings: Settings) -> anyhow::Result<()> {
    let cluster = settings.cluster.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // An enrolment may wait for as long as the quorum members request, and only this wait ends at a signal: without its
    // new key, a control that a member has already enrolled could not enrol again.
    let cancel = CancellationToken::new();
    let enrolled = {
        let enrolment = enrol(config, &cancel);
        tokio::pin!(enrolment);
        loop {
            tokio::select! {
                enrolled = &mut enrolment => break enrolled,
                _ = terminate.recv() => cancel.cancel(),
                _ = interrupt.recv() => cancel.cancel(),
            }
        }
    };
    match enrolled {
        Ok(_) if cancel.is_cancelled() => {
            tracing::info!("stopped before the start was complete");
            return Ok(());
        }
        Ok(_) => {}
        Err(StartError::Enrol(error @ EnrolError::Cancelled)) => {
            tracing::info!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    let edges = Edges::from_config(config)?;
    let mut app = App::bind(settings, edges).await?;
    app.start(Vec::new()).await?;
    // Writing may fail, for example on a full disk. The line is informational only.
    let _ = print_lines(&format!(
        "lattice-control: control of {cluster} listens on UDP {} and https://{}",
        app.mesh_addr(),
        app.https_addr()
    ));
    let unserved = loop {
        tokio::select! {
            _ = terminate.recv() => break false,
            _ = interrupt.recv() => break false,
            _ = hangup.recv() => {
                renew_tokens(&app, config);
                app.reload_https();
            }
            () = app.unserved() => break true,
        }
    };
    app.stop().await;
    anyhow::ensure!(
        !unserved,
        "the API server stopped; see the log for the cause"
    );
    Ok(())
}

/// Reloads the tokens file. An invalid file changes nothing.
fn renew_tokens(app: &App, config: &Config) {
    match read_tokens(config).and_then(|tokens| app.renew_tokens(&tokens)) {
        Ok(()) => tracing::info!("tokens renewed"),
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::error!("tokens not reloaded, the previous ones stay in force: {error:#}");
        }
    }
}
