//! `lattice-quorum`: daemon of one quorum member.

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use lattice_config::{PREFIX, Source, environment, log, online::CheckReport};
use lattice_host::terminal::{message_lines, print_lines};
use lattice_mesh::Credentials;
use lattice_quorum::{
    App, Config, Edges, Settings, authorities, check_online, check_restore, confirm, restore,
    restore_advice, utc,
};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use tokio::signal::unix::{SignalKind, signal};

/// A write takes a fifth less processor time with mimalloc than with the allocator of the C library; see
/// `0011-write-path.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Quorum member of a Lattice cluster.
///
/// SIGTERM shuts the member down gracefully. SIGHUP reloads the credentials and the issuing keys from disk.
///
/// The environment overrides every key of the configuration: LATTICE_LISTEN, LATTICE_ENROLMENT__DEFAULT_CELL, and so
/// on.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration, and the credentials and issuing keys that it names, and exit. Prints every mistake in
    /// the configuration, its files and the LATTICE_ variables.
    #[arg(long)]
    check_config: bool,
    /// With --check-config: also connect to the other members. Prints a line for each as its check ends, and takes some
    /// seconds at most.
    #[arg(long, requires = "check_config")]
    online: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create this member's data directory from a backup, while no member runs
    ///
    /// To restore a cluster, stop all members. Run this command on every member that `members` of the
    /// configuration lists, with the same file and the same list, and then start the members. No member
    /// is special. The list may differ from that of the backed-up cluster. `data_dir` must be missing or
    /// empty.
    ///
    /// The restored cluster is a new incarnation of the backed-up cluster. Members of the two incarnations
    /// reject each other, so remaining members of the old one cannot change the new one. The new cluster
    /// has no record of changes that the old one made after the backup: see the README. Work that was
    /// submitted after the backup is ended by its nodes. The command lists the consequences before it
    /// acts, and requires confirmation.
    ///
    /// A backup contains no keys. A member also needs its configuration, its credentials, and the folder
    /// of the issuing authority (`enrolment.authority`).
    #[command(verbatim_doc_comment)]
    Restore {
        /// Backup file, as written by `lattice admin quorum backup`.
        file: PathBuf,
        /// Number of the new incarnation, the same on every member. Defaults to the backup's number plus one. A second
        /// restore of the same backup needs a higher number.
        #[arg(long, value_name = "NUMBER")]
        incarnation: Option<u64>,
        /// Confirm the restore. Required if standard input is not a terminal.
        #[arg(long)]
        yes: bool,
    },
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message_lines(&format!("lattice-quorum: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    if args.check_config {
        return check(args);
    }
    let source = Source::File(&args.config);
    let config: Config = lattice_config::load(source, environment(), PREFIX)?;
    let edges = Edges::from_config(&config)?;
    let settings = config.settings().context("configuration not checked")?;
    edges.check(&settings)?;
    let below = "openraft=error,openraft::replication=off,quinn=warn";
    let filter = log::filter(below, &config.log)?;
    log::start(filter);
    for problem in lattice_config::ignored_variables::<Config>(source, environment(), PREFIX) {
        tracing::warn!(%problem, "environment variable ignored");
    }
    let runtime = runtime()?;
    match &args.command {
        None => runtime.block_on(serve(settings, edges, &config)),
        Some(Command::Restore {
            file,
            incarnation,
            yes,
        }) => {
            let plan = check_restore(&settings, file, *incarnation)?;
            print_lines(&format!("{plan}\n"))?;
            if !yes {
                let question = format!("Restore member {} from this backup?", settings.id);
                confirm(&question, std::io::stdout()).context("not restored")?;
            }
            runtime.block_on(restored(&settings, &edges, file, *incarnation))
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime did not start")
}

/// Checks the configuration with its files, and with `--online` the other members.
fn check(args: &Args) -> anyhow::Result<()> {
    let source = Source::File(&args.config);
    let config: Config = lattice_config::check_all(source, environment(), PREFIX)?;
    print_lines(&format!(
        "{}: configuration is valid",
        args.config.display()
    ))?;
    if args.online {
        let report = CheckReport::new(print_lines);
        runtime()?.block_on(check_online(&config, &|check| report.add(&check)));
        report.finish()?;
    }
    Ok(())
}

async fn restored(
    settings: &Settings,
    edges: &Edges,
    file: &Path,
    number: Option<u64>,
) -> anyhow::Result<()> {
    let made = restore(settings, file, number).await?;
    let members: Vec<String> = made.members.keys().map(ToString::to_string).collect();
    let (id, header) = (settings.id, &made.header);
    print_lines(&format!(
        "member {id} restored at revision {} of cluster {:?} as of {} (backup of incarnation {}), as \
         incarnation {}\nvoters: {}\nnext: restore the same file on each of them, then start them",
        header.revision,
        header.cluster,
        utc(header.at),
        header.incarnation,
        made.incarnation,
        members.join(", "),
    ))?;
    let known = edges.credentials.trust();
    let then = restore_advice(&made.trust, header.at, known);
    Ok(print_lines(&then)?)
}

async fn serve(settings: Settings, edges: Edges, config: &Config) -> anyhow::Result<()> {
    let (cluster, id) = (settings.cluster.clone(), settings.id);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut app = App::bind(settings, edges).await?;
    app.set_issuing_keys(authorities(config)?);
    app.start(Vec::new()).await?;
    // Errors are ignored: the message is optional, and the disk of stdout may be full.
    let addr = app.addr();
    let _ = print_lines(&format!(
        "lattice-quorum: member {id} of {cluster} listens on UDP {addr}"
    ));
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
        Some(reason) => Err(anyhow::anyhow!("this member cannot continue: {reason}")),
        None => Ok(()),
    }
}

/// Reloads the credentials and the issuing keys from disk. Invalid credentials are ignored, and so are invalid keys.
fn reload(app: &App, config: &Config) {
    let renewed = Credentials::load(&config.credentials).map_err(anyhow::Error::from);
    match renewed.and_then(|credentials| Ok(app.renew(credentials)?)) {
        Ok(()) => tracing::info!("credentials reloaded"),
        Err(error) => tracing::error!("credentials not reloaded: {error:#}"),
    }
    match authorities(config) {
        Ok(held) => {
            let pins: Vec<_> = held.iter().map(|held| held.pin().to_string()).collect();
            tracing::info!(?pins, "issuing keys reloaded");
            app.set_issuing_keys(held);
        }
        Err(error) => tracing::error!("issuing keys not reloaded: {error}"),
    }
}
