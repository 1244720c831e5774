//! Commands that change allocations: `lattice cancel · hold · release · requeue · suspend · resume · extend · checkpoint`.

use super::{LIST, name, row};
use crate::{
    connect::Connection,
    failure::Failure,
    output::{ResultList, or_dash, time},
};
use clap::Args;
use lattice_api::{
    allocation::{AllocationView, CheckpointRequest, ExtendRequest},
    problem::FieldError,
};
use lattice_client::JobRef;

/// One or several allocations.
#[derive(Args)]
pub struct IdsArgs {
    /// Allocation numbers; array elements as 12_7.
    #[arg(required = true)]
    ids: Vec<JobRef>,
}

/// Allocations to suspend, and the method.
#[derive(Args)]
pub struct SuspendArgs {
    #[command(flatten)]
    which: IdsArgs,
    /// Write a job checkpoint first, or wait for the one in progress. If the checkpoint fails, the allocation is
    /// suspended without it. Refused for an allocation that has no checkpoint mode, or does not run.
    #[arg(long)]
    checkpoint: bool,
}

/// Change the walltime of an allocation. Only operators may make it longer.
///
/// The nodes of a running allocation receive the new walltime and end the allocation at that time. The walltime cannot
/// be shorter than the time that the allocation has already run.
///
/// For example: lattice extend 12 +30m, or lattice extend 12 4h
#[derive(Args)]
pub struct ExtendArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
    /// Total walltime, including the run time in the checkpoint that the allocation resumed from: 4h. Or an increment:
    /// +30m.
    walltime: String,
}

/// Request a job checkpoint of a running allocation, which keeps running. For its user and for operators.
#[derive(Args)]
pub struct CheckpointArgs {
    /// Allocation number, or an array element as 12_7.
    id: JobRef,
    /// Time that the checkpoint may take [default: 10m].
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Target directory, an absolute path [default: the directory of the allocation or the site].
    #[arg(long, value_name = "DIR")]
    directory: Option<String>,
}

/// Action on several allocations.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Cancel the allocation.
    Cancel,
    /// Hold the allocation, so that it does not start.
    Hold,
    /// Release the held allocation.
    Release,
    /// Put the allocation back into the queue.
    Requeue,
    /// Take the allocation off its nodes until it is resumed.
    Suspend,
    /// Suspend the allocation after a job checkpoint.
    SuspendAfterCheckpoint,
    /// Put the suspended allocation back into the queue.
    Resume,
}

/// Runs `lattice cancel`, `hold`, `release`, `requeue`, `suspend`, `resume`. Every allocation is tried; the first
/// failure determines the exit code.
pub async fn act(args: &IdsArgs, action: Action, connection: &Connection) -> Result<(), Failure> {
    let mut all = ResultList::for_count(connection.format, args.ids.len());
    for id in args.ids.iter().copied() {
        let done = match action {
            Action::Cancel => connection.client.cancel(id).await,
            Action::Hold => connection.client.hold(id).await,
            Action::Release => connection.client.release(id).await,
            Action::Requeue => connection.client.requeue(id).await,
            Action::Suspend => connection.client.suspend(id).await,
            Action::SuspendAfterCheckpoint => connection.client.suspend_after_checkpoint(id).await,
            Action::Resume => connection.client.resume(id).await,
        };
        let word = |now: &AllocationView| match action {
            Action::Cancel => "cancel accepted",
            Action::Hold => "held",
            Action::Release => "released",
            Action::Requeue => "requeued",
            Action::Suspend => "suspend accepted",
            Action::SuspendAfterCheckpoint if now.state == "suspended" => "suspended already",
            Action::SuspendAfterCheckpoint => "suspended once its checkpoint is written",
            Action::Resume => "resumed",
        };
        match done {
            Ok(now) => {
                let sentence = format!("{}: {}", name(&now), word(&now));
                all.add(now, &sentence);
            }
            Err(error) => all.refuse(&id.to_string(), error.into()),
        }
    }
    all.finish(LIST, row)
}

/// Runs `lattice suspend`.
pub async fn suspend(args: &SuspendArgs, connection: &Connection) -> Result<(), Failure> {
    let action = match args.checkpoint {
        true => Action::SuspendAfterCheckpoint,
        false => Action::Suspend,
    };
    act(&args.which, action, connection).await
}

/// Runs `lattice extend`.
pub async fn extend(args: &ExtendArgs, connection: &Connection) -> Result<(), Failure> {
    let walltime = args.walltime.clone();
    let request = ExtendRequest { walltime };
    let usage = |error: FieldError| Failure::usage(error.to_string());
    request.read().map_err(usage)?;
    let extended = connection.client.extend(args.id, &request).await?;
    let walltime = or_dash(extended.walltime.as_deref());
    let sentence = format!("{}: walltime is now {walltime}", name(&extended));
    let mut all = ResultList::for_count(connection.format, 1);
    all.add(extended, &sentence);
    all.finish(LIST, row)
}

/// Runs `lattice checkpoint`.
pub async fn checkpoint(args: &CheckpointArgs, connection: &Connection) -> Result<(), Failure> {
    let request = CheckpointRequest {
        timeout: args.timeout.clone(),
        directory: args.directory.clone(),
    };
    let usage = |error: FieldError| Failure::usage(format!("--{error}"));
    request.timeout_ms().map_err(usage)?;
    let shown = connection.client.checkpoint(args.id, &request).await?;
    let name = name(&shown);
    let checkpoints = shown.checkpoints.as_ref();
    let writing = checkpoints.and_then(|all| all.in_progress.as_ref());
    let sentence = match writing {
        Some(writing) => format!(
            "{name}: writes checkpoint {} to {}; times out at {}",
            writing.number,
            writing.directory,
            time(&writing.times_out_at)
        ),
        None => format!("{name}: checkpoint accepted"),
    };
    let mut all = ResultList::for_count(connection.format, 1);
    all.add(shown, &sentence);
    all.finish(LIST, row)
}
