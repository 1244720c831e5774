//! `lattice replay`: results of a policy on a recorded workload.

mod checked;
mod compare;
mod record;
mod run;
mod source;
mod sweep;
mod verify;

use crate::{
    block_on,
    connect::Connection,
    failure::Failure,
    output::{self, Format},
    progress::Progress,
};
use clap::Subcommand;
use lattice_replay::parallel;
use std::{num::NonZero, path::Path, process::ExitCode, thread, time::Duration};

/// Interval between two progress lines of a long command without a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_mins(1);

/// Replay a recorded workload on a machine of your choice, with another policy.
///
/// A trace is in the Standard Workload Format, an export of `sacct --parsable2`, a log in Argonne's six columns, tasks
/// of Alibaba's GPU trace, or a record of `lattice replay record`; plain, gzip or zstd. `lattice` is this product: its
/// solver and the rules of the quorum, on a simulated clock. `easy`, `conservative`, `fcfs` and `sjbf` are schedulers
/// of the literature, on identical processors.
#[derive(Subcommand)]
pub enum ReplayCommand {
    Run(Box<run::RunArgs>),
    Compare(Box<compare::CompareArgs>),
    Sweep(Box<sweep::SweepArgs>),
    Verify(verify::VerifyArgs),
    Record(record::RecordArgs),
}

/// Prints a message of one line on standard error.
pub fn print_message(text: impl std::fmt::Display) {
    output::message!("lattice: {text}");
}

/// Runs `work` for each of `items` on all cores, and shows the progress; `what` names the items.
pub fn for_each<T: Sync, R: Send>(
    items: &[T],
    what: &str,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let progress = Progress::new(PROGRESS_INTERVAL);
    progress.begin("{bar:40} {pos}/{len} {msg}, {eta} to go", items.len(), 0);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let done = |done| progress.update(done, what.to_owned());
    let results = parallel::map(items, threads, work, done);
    progress.end();
    results
}

/// Runs a replay command.
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
            block_on(record::run(&args, &connection))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
