//! The `lattice` command as a library, which is compiled once for both the `lattice` binary and its copy in the system
//! tests (`under-test-cli`).
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
mod terminal;
mod usage;
mod user_file;
mod waiting;
mod web_tls;

use allocation::Action;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum as _};
use connect::Connection;
use failure::Failure;
use output::Format;
use serde_json::json;
use std::{ffi::OsString, path::PathBuf, process::ExitCode};

/// Inspect, use and administer a GPU or HPC cluster.
///
/// Exit codes: 0 done, 1 refused, 2 usage, 3 unreachable, 4 not found, 5 not allowed.
#[derive(Parser)]
#[command(name = "lattice", version, arg_required_else_help = true)]
struct Cli {
    /// Output format: table (one line per row, fitted to COLUMNS or the terminal: long values are shortened, less
    /// important columns left out), wide (all columns and complete values), json, yaml, csv (column names as in JSON).
    #[arg(
        short = 'o',
        long,
        global = true,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    format: Format,
    /// Context file with the server address and the token; see also LATTICE_CONTEXT.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
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
    /// Hosts and captured host trees, offline.
    #[command(subcommand)]
    Host(host::HostCommand),
    /// Found a cluster, enrol and revoke its members, and change its settings.
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// Permanent audit: enrolments, revocations, forced actions.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    #[command(subcommand)]
    Replay(replay::ReplayCommand),
    /// Print a completion script for a shell.
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

/// Commands that need a cluster.
#[derive(Subcommand)]
enum ClusterCommand {
    Submit(Box<submit::SubmitArgs>),
    Status(allocation::StatusArgs),
    /// Cancel allocations: waiting ones at once, running ones with SIGTERM and, by default, 30 s to end.
    Cancel(allocation::IdsArgs),
    /// Hold waiting allocations, so that they do not start; for an array, the whole array.
    Hold(allocation::IdsArgs),
    /// Release held allocations; for an array, the whole array.
    Release(allocation::IdsArgs),
    /// Requeue running allocations; they resume from their last checkpoint, if they have one.
    Requeue(allocation::IdsArgs),
    /// Suspend running allocations: take them off their nodes until they are resumed.
    ///
    /// The processes get SIGTERM at once, and progress since the last checkpoint is lost, unless --checkpoint requests
    /// a checkpoint first.
    Suspend(allocation::SuspendArgs),
    /// Resume suspended allocations: they wait for nodes and continue from their last checkpoint, if they have one.
    Resume(allocation::IdsArgs),
    Extend(allocation::ExtendArgs),
    Checkpoint(allocation::CheckpointArgs),
    Logs(allocation::LogsArgs),
    Why(allocation::WhyArgs),
    Usage(usage::UsageArgs),
    /// DAGs: allocations that start when others have ended.
    #[command(subcommand)]
    Dag(dag::DagCommand),
    /// Reservations: nodes for certain users and projects in a time window, for maintenance, courses, deadlines.
    #[command(subcommand)]
    Reservation(reservation::ReservationCommand),
    /// Nodes: state, health, hardware, drains, claims.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Conformance: groups of equal nodes, drift, baselines.
    #[command(subcommand)]
    Conformance(conformance::ConformanceCommand),
    /// Projects: the tree of tenants and projects, with limits and usage.
    #[command(subcommand)]
    Project(project::ProjectCommand),
}

/// Runs the command in the process's arguments, and returns its exit code.
pub fn main() -> ExitCode {
    // This binary is also executed as the supervisor of an allocation's processes, and as the disposable child
    // processes that run probes and driver calls.
    lattice_agent::child::run_if_child();
    let cli = match read_arguments(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let format = cli.format;
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            output::print_problem(format, &failure);
            failure.exit_code()
        }
    }
}

/// Returns the command line with all subcommands, for tests and documentation.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Reads a command line, which begins with the program.
fn read_arguments(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(submit::separate_joined_values(&Cli::command(), words))
}

/// Returns the output format that a command line with an error requests. A later option takes precedence.
fn requested_format(arguments: &[String]) -> Format {
    let mut format = Format::default();
    let mut rest = arguments.iter().skip(1).map(String::as_str);
    while let Some(argument) = rest.next().filter(|argument| *argument != "--") {
        let value = match argument {
            "-o" | "--format" => rest.next(),
            joined => joined
                .strip_prefix("--format=")
                .or_else(|| joined.strip_prefix("-o="))
                .or_else(|| joined.strip_prefix("-o")),
        };
        let read = value.and_then(|value| Format::from_str(value, false).ok());
        format = read.unwrap_or(format);
    }
    format
}

/// Prints an error of the command line, or the requested help. An error repeats arguments, which may be text of others,
/// such as names from a file.
fn report_usage(error: &clap::Error) -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let shown: Vec<String> = arguments
        .iter()
        .map(|argument| terminal::printable(argument).into_owned())
        .collect();
    if error.use_stderr() {
        let text = error.render().to_string();
        let text = text.trim_end();
        let text = text.strip_prefix("error: ").unwrap_or(text);
        output::print_problem(requested_format(&arguments), &Failure::usage(text));
    }
    if shown == arguments {
        error.exit();
    }
    // The same error for the arguments as they may be printed.
    match read_arguments(shown.into_iter().map(OsString::from).collect()) {
        Err(error) => error.exit(),
        Ok(_) => {
            terminal::message_lines(error.render().to_string().trim_end());
            Failure::usage("").exit_code()
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
            let script = String::from_utf8_lossy(&script);
            let script = script.trim_end();
            match cli.format.is_for_reading() {
                true => output::line(script)?,
                false => {
                    let document = json!({"shell": shell.to_string(), "script": script});
                    output::print_done(cli.format, &document, "")?;
                }
            }
        }
        Command::Admin(command) => {
            let context = cli.context.as_deref();
            block_on(admin::run(command, context, cli.format))?;
        }
        Command::Audit(command) => {
            let context = cli.context.as_deref();
            block_on(audit::run(command, context, cli.format))?;
        }
        Command::Cluster(command) => {
            let connection = Connection::open(cli.context.as_deref(), cli.format)?;
            block_on(run_cluster_command(command, &connection))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a future with requests to the cluster, on a single-threaded runtime, until it is done.
fn block_on(asking: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    runtime.block_on(asking)
}

async fn run_cluster_command(
    command: ClusterCommand,
    connection: &Connection,
) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn wrong_command_line_has_its_format() {
        let format = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            requested_format(&words)
        };
        for (line, expected) in [
            ("lattice -o json cancel", Format::Json),
            ("lattice cancel --format=yaml", Format::Yaml),
            ("lattice cancel -ojson", Format::Json),
            ("lattice cancel -o=csv", Format::Csv),
            ("lattice -o yaml cancel -o json", Format::Json),
            ("lattice cancel -o jsn", Format::Table),
            ("lattice cancel -o", Format::Table),
            ("lattice submit -- -o json", Format::Table),
            ("lattice node list", Format::Table),
        ] {
            assert_eq!(format(line), expected, "{line}");
        }
    }

    /// Completion scripts pass the same output as texts of others, which escapes unsafe characters.
    #[test]
    fn completion_scripts_have_no_unsafe_characters() {
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "lattice", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.lines().count() > 100, "{shell}");
            for line in script.lines() {
                assert_eq!(terminal::printable(line), line, "{shell}");
            }
        }
    }
}
