//! `lattice replay`: what a policy would have made of recorded work.

mod compare;
mod progress;
mod record;
mod run;
mod source;
mod sweep;
mod verify;

use crate::{answered, connect::Connection, failure::Failure, output::Format};
use clap::Subcommand;
use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

/// Replay recorded work on a machine of your choice: what would another policy have made of it?
///
/// A trace is in the Standard Workload Format, an export of `sacct --parsable2`, a log in Argonne's six columns, or
/// tasks of Alibaba's GPU trace; plain, gzip or zstd. `lattice` is this product: the solver that places work and the
/// rules that the quorum holds, on a clock of their own. `easy`, `conservative`, `fcfs` and `sjbf` are schedulers of
/// the literature, on processors that are all alike.
#[derive(Subcommand)]
pub enum ReplayCommand {
    Run(Box<run::RunArgs>),
    Compare(Box<compare::CompareArgs>),
    Sweep(Box<sweep::SweepArgs>),
    Verify(verify::VerifyArgs),
    Record(record::RecordArgs),
}

/// A message beside the result. That nobody reads it any more is no failure.
pub fn say(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "lattice: {text}");
}

/// A number of things, in words.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Does what was asked.
pub fn run(
    command: ReplayCommand,
    context: Option<&Path>,
    format: Format,
) -> Result<ExitCode, Failure> {
    match command {
        ReplayCommand::Run(args) => run::run(&args, context, format),
        ReplayCommand::Compare(args) => compare::run(&args, context, format),
        ReplayCommand::Sweep(args) => sweep::run(&args, context, format),
        ReplayCommand::Verify(args) => verify::run(&args, format),
        ReplayCommand::Record(args) => {
            let connection = Connection::open(context, format)?;
            answered(record::run(&args, &connection))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
