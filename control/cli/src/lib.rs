//! The `lattice` command, as a library: the binary and the programs under test share one compilation of it.
#![forbid(unsafe_code)]

mod admin;
mod allocation;
mod audit;
mod conformance;
mod connect;
mod context;
mod dag;
mod demo;
mod failure;
mod host;
mod node;
mod output;
mod progress;
mod project;
mod replay;
mod reservation;
mod submit;
mod usage;
mod web_tls;

use allocation::Action;
use clap::{CommandFactory, Parser, Subcommand};
use connect::Connection;
use failure::Failure;
use std::{path::PathBuf, process::ExitCode};

/// Know and use a GPU or HPC cluster.
///
/// Exit codes: 0 done, 1 refused, 2 usage, 3 unreachable, 4 not found, 5 not allowed.
#[derive(Parser)]
#[command(name = "lattice", version, arg_required_else_help = true)]
struct Cli {
    /// How results are printed: table (columns for people), wide (more of them), json, yaml, csv.
    #[arg(
        short = 'o',
        long,
        global = true,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help_heading = "Options everywhere"
    )]
    format: output::Format,
    /// File that names the server and holds the token; see also LATTICE_CONTEXT.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Options everywhere"
    )]
    context: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    #[command(flatten)]
    Cluster(ClusterCommand),
    /// Hosts and captured host trees, offline: no cluster is asked.
    #[command(subcommand)]
    Host(host::HostCommand),
    /// Found a cluster, let others into it, and throw them out.
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// What was written down for ever: who joined, who was thrown out, what was forced.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    #[command(subcommand)]
    Replay(replay::ReplayCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Commands that are answered by a cluster.
#[derive(Subcommand)]
enum ClusterCommand {
    Submit(Box<submit::SubmitArgs>),
    Status(allocation::StatusArgs),
    /// End allocations: at once what waits, after SIGTERM and 30 s what runs.
    Cancel(allocation::IdsArgs),
    /// Keep waiting allocations from starting; of an array the whole of it.
    Hold(allocation::IdsArgs),
    /// Let held allocations start; of an array the whole of it.
    Release(allocation::IdsArgs),
    /// Put running allocations back to the queue: from their last checkpoint on, if they have one.
    Requeue(allocation::IdsArgs),
    /// Take running allocations off their nodes until they are resumed.
    ///
    /// Their processes are ended at once: what they did since their last checkpoint is lost, unless --checkpoint
    /// has them write one first.
    Suspend(allocation::SuspendArgs),
    /// Let suspended allocations wait for nodes again: from their last checkpoint on, if they have one.
    Resume(allocation::IdsArgs),
    Extend(allocation::ExtendArgs),
    Checkpoint(allocation::CheckpointArgs),
    Logs(allocation::LogsArgs),
    Why(allocation::WhyArgs),
    Usage(usage::UsageArgs),
    /// Graphs of work: members that begin when others have ended.
    #[command(subcommand)]
    Dag(dag::DagCommand),
    /// Nodes that are kept for some for a time: maintenance, courses, deadlines.
    #[command(subcommand)]
    Reservation(reservation::ReservationCommand),
    /// Nodes: what they are and how they are.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Which nodes are alike, and which are not.
    #[command(subcommand)]
    Conformance(conformance::ConformanceCommand),
    /// The tree of tenants and projects, with limits and usage.
    #[command(subcommand)]
    Project(project::ProjectCommand),
}

/// Runs the command that the process's arguments name; returns its exit code.
pub fn main() -> ExitCode {
    // This binary is also the supervisor of an allocation's processes and the disposable child in
    // which driver calls run.
    lattice_agent::child::run_if_child();
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("lattice: {failure}");
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Demo(args) => return demo::run(args, cli.format),
        Command::Host(command) => host::run(command, cli.format)?,
        Command::Replay(command) => {
            return replay::run(command, cli.context.as_deref(), cli.format);
        }
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "lattice", &mut script);
            output::line(String::from_utf8_lossy(&script).trim_end())?;
        }
        Command::Admin(command) => {
            let context = cli.context.as_deref();
            answered(admin::run(command, context, cli.format))?;
        }
        Command::Audit(command) => {
            let context = cli.context.as_deref();
            answered(audit::run(command, context, cli.format))?;
        }
        Command::Cluster(command) => {
            let connection = Connection::open(cli.context.as_deref(), cli.format)?;
            answered(ask(command, &connection))?;
            connection.tell_age();
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for a cluster's answer.
fn answered(asking: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    runtime.block_on(asking)
}

async fn ask(command: ClusterCommand, connection: &Connection) -> Result<(), Failure> {
    use ClusterCommand as C;
    match command {
        C::Submit(args) => submit::run(&args, connection).await,
        C::Status(args) => allocation::status(&args, connection).await,
        C::Cancel(args) => allocation::act(&args, Action::Cancel, connection).await,
        C::Hold(args) => allocation::act(&args, Action::Hold, connection).await,
        C::Release(args) => allocation::act(&args, Action::Release, connection).await,
        C::Requeue(args) => allocation::act(&args, Action::Requeue, connection).await,
        C::Suspend(args) => allocation::suspend(&args, connection).await,
        C::Resume(args) => allocation::act(&args, Action::Resume, connection).await,
        C::Extend(args) => allocation::extend(&args, connection).await,
        C::Checkpoint(args) => allocation::checkpoint(&args, connection).await,
        C::Logs(args) => allocation::logs(&args, connection).await,
        C::Why(args) => allocation::why(&args, connection).await,
        C::Usage(args) => usage::run(args, connection).await,
        C::Dag(command) => dag::run(command, connection).await,
        C::Reservation(command) => reservation::run(command, connection).await,
        C::Node(command) => node::run(command, connection).await,
        C::Conformance(command) => conformance::run(command, connection).await,
        C::Project(command) => project::run(command, connection).await,
    }
}
