//! Commands `lattice-agent probe` and `capture`: the inventory of this machine, for operators and scripts. They need no
//! configuration, no cluster and no root. Denied readings are shown as such.
//!
//! Results go to stdout, messages to stderr. The exit code of `probe` is 0 if no requested class is incomplete, 3 if
//! one is, 1 after an error and 2 after a usage error.

mod bmc;
mod capture;
mod document;
mod health;
mod source;
mod table;

pub use bmc::BmcArgs;
pub use capture::CaptureArgs;
pub use source::SourceArgs;

use clap::{Args, ValueEnum};
use lattice_conformance::{Class, ClassState, Inventory};
use lattice_host::terminal::print_lines;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code: a requested class is incomplete.
const INCOMPLETE: u8 = 3;

/// Arguments of `lattice-agent probe`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 every class is complete, 1 error, 2 usage, \
                        3 a class is incomplete."
)]
pub struct ProbeArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    bmc: BmcArgs,
    /// Output format: a table, a table with every key, JSON or YAML.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// File with the site's changes to the shipped health checks, as `health.table` of the agent.
    #[arg(long, value_name = "FILE")]
    health_table: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Wide,
    Json,
    Yaml,
}

/// Probes the source and prints the result; the exit code states whether every class is complete.
///
/// # Errors
/// The tree or archive, the health table or the BMC options are not valid. An unreadable part of the machine is not an
/// error but part of the output.
pub fn probe(args: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let checks = health::checks(args.health_table.as_deref())?;
    let source = args.source.open()?;
    let mut inventory = source.probe();
    args.bmc.add_to(&mut inventory, &source)?;
    let health = health::evaluate(&inventory, checks, document::now_ms());
    let text = match args.output {
        Output::Json => document::json(&inventory, &health)?,
        Output::Yaml => document::yaml(&inventory, &health)?,
        Output::Table => table::render(&inventory, &health, table::Detail::Summary),
        Output::Wide => table::render(&inventory, &health, table::Detail::EveryKey),
    };
    // A failed write is ignored: the reader may have closed the pipe.
    let _ = print_lines(text.trim_end_matches('\n'));
    Ok(match incomplete(&inventory).is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(INCOMPLETE),
    })
}

/// Writes an archive of this machine.
///
/// # Errors
/// The source or the BMC options are not valid, or the archive cannot be written or differs from the machine.
pub fn capture(args: &CaptureArgs) -> anyhow::Result<ExitCode> {
    capture::run(args)
}

fn incomplete(inventory: &Inventory) -> Vec<Class> {
    let states = inventory.states().into_iter();
    states
        .filter(|(_, state)| matches!(state, ClassState::Incomplete { .. }))
        .map(|(class, _)| class)
        .collect()
}
