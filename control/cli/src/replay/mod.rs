//! `lattice replay`: what a policy would have made of recorded work.

mod compare;
mod record;
mod run;
mod source;
mod sweep;
mod verify;

use crate::{answered, connect::Connection, failure::Failure, output::Format, progress::Progress};
use clap::Subcommand;
use lattice_replay::parallel;
use std::{
    io::{self, Write as _},
    num::NonZero,
    path::Path,
    process::ExitCode,
    thread,
    time::Duration,
};

/// Between two lines about a long command where there is no terminal.
const LINE_EVERY: Duration = Duration::from_mins(1);

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

/// Does `work` for each of `items`, on all cores, and shows how many are done; `what` they are.
pub fn for_each<T: Sync, R: Send>(
    items: &[T],
    what: &str,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let progress = Progress::new(LINE_EVERY);
    progress.begin("{bar:40} {pos}/{len} {msg}, {eta} to go", items.len(), 0);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let done = |done| progress.is_at(done, what.to_owned());
    let results = parallel::map(items, threads, work, done);
    progress.end();
    results
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
