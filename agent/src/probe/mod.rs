//! `lattice-agent probe` and `capture`: what this machine is, asked by a person or a script. They
//! need no configuration, no cluster and no root: what was denied is said.
//!
//! Results go to stdout, messages to stderr. The exit code of `probe` is 0 when every class that was
//! asked for is complete, and 3 when one is not.

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
use lattice_hwprobe::{Class, ClassState, Inventory};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// A class that was asked for is incomplete.
const INCOMPLETE: u8 = 3;

/// `lattice-agent probe`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 every class is complete, 1 it could not be done, 2 usage, \
                        3 a class is incomplete."
)]
pub struct ProbeArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    bmc: BmcArgs,
    /// How to print it: for people, the same with every key, or for programs.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// A file with what the site changes in the checks of health, as `health.table` of the agent.
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

/// Probes, prints, and says by the exit code whether all is known.
///
/// # Errors
/// The tree or archive is none, or the BMC was not described well. What cannot be read of the
/// machine is no error but part of the answer.
pub fn probe(args: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let checks = health::checks(args.health_table.as_deref())?;
    let source = args.source.open()?;
    let mut inventory = source.probe();
    args.bmc.add_to(&mut inventory, &source)?;
    let health = health::of(&inventory, checks, document::now_ms());
    let text = match args.output {
        Output::Json => {
            let document = document::of(&inventory, &health);
            format!("{}\n", serde_json::to_string_pretty(&document)?)
        }
        Output::Yaml => serde_yaml_ng::to_string(&document::of(&inventory, &health))?,
        Output::Table => table::of(&inventory, &health, table::Detail::Summary),
        Output::Wide => table::of(&inventory, &health, table::Detail::EveryKey),
    };
    // Whoever reads may have seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(match incomplete(&inventory).is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(INCOMPLETE),
    })
}

/// Makes an archive of what this machine is.
///
/// # Errors
/// It cannot be written, or does not say what the machine says.
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
