//! Attempt lifecycle: from the launch record to the end.

use super::lost;
use super::orphans;
use super::report;
use super::spawn;
use super::termination;
use crate::attempt::{AttemptDir, ExitRecord, RecordError, StartedRecord, StartingRecord};
use crate::executor::Shared;
use crate::executor::block_reason::BlockReason;
use crate::executor::rank::{Rank, end_report};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use rustix::process::Pid;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Maximum number of starts of a supervisor that ends before it has written a record.
const MAX_STARTS: u32 = 5;
/// Pause between two starts, multiplied by the number of starts so far.
const START_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Pause after the disk or the kernel failed to return the state of an attempt.
const READ_RETRY_DELAY: Duration = Duration::from_secs(1);
/// First poll interval for a supervisor of a previous agent, which cannot wake this agent when its job starts. Each
/// further interval is twice as long, up to [`READ_RETRY_DELAY`].
const START_POLL: Duration = Duration::from_millis(50);
/// Poll interval for a supervisor of a previous agent after its job has started.
const HANG_POLL: Duration = Duration::from_secs(10);

/// State of an attempt according to its files and the kernel.
enum AttemptState {
    Ended(ExitRecord),
    Supervised {
        by: Pid,
        started: Option<StartedRecord>,
        hang: Option<StartingRecord>,
    },
    /// The job has ended; no supervisor lives to run the site's hooks after it.
    Unfinished(ExitRecord),
    /// No supervisor lives; `had_supervisor` states whether there was one.
    Unsupervised {
        had_supervisor: bool,
    },
    /// Processes of the attempt were found without a record.
    Orphaned,
}

fn read_state(dir: &AttemptDir) -> Result<AttemptState, RecordError> {
    if let Some(exit) = dir.exit()? {
        return Ok(AttemptState::Ended(exit));
    }
    // The record is read before the lock. A supervisor takes the lock first and writes the record second, so a record
    // without a held lock means that the supervisor has ended. In the reverse order, a supervisor could start between
    // the two reads.
    let was = dir.supervisor();
    if let Some(by) = dir.living_supervisor()? {
        let (started, hang) = (dir.started()?, dir.starting()?);
        return Ok(AttemptState::Supervised { by, started, hang });
    }
    // The supervisor may have written the end and exited since the first read.
    if let Some(exit) = dir.exit()? {
        return Ok(AttemptState::Ended(exit));
    }
    if let Some(end) = dir.job_end()? {
        return Ok(AttemptState::Unfinished(end));
    }
    if dir.orphan()?.is_some() {
        return Ok(AttemptState::Orphaned);
    }
    let was = was?.is_some();
    Ok(AttemptState::Unsupervised {
        had_supervisor: was,
    })
}

/// Reads the state off the async threads, repeats a stop request to the supervisor, records a hanging start, and passes
/// changes on to the reporter.
async fn read_and_report(shared: &Shared, rank: &Arc<Rank>) -> Result<AttemptState, String> {
    let at = rank.clone();
    let look = move || {
        let sight = read_state(at.dir())?;
        if matches!(sight, AttemptState::Supervised { .. }) && at.is_end_wanted() {
            termination::signal_supervisor(at.dir())?;
        }
        Ok::<AttemptState, RecordError>(sight)
    };
    let sight = tokio::task::spawn_blocking(look).await;
    let sight = sight
        .map_err(|error| error.to_string())?
        .map_err(|error| crate::with_causes(&error))?;
    let hang = match &sight {
        AttemptState::Supervised { hang, .. } => hang.clone(),
        _ => None,
    };
    rank.record_hang(hang, &shared.block_reasons);
    match &sight {
        AttemptState::Ended(exit) => rank.set_report(end_report(exit.clone())),
        AttemptState::Supervised {
            started: Some(started),
            ..
        } => rank.set_report(RankReport::Started { at: started.at }),
        AttemptState::Supervised { started: None, .. }
        | AttemptState::Unfinished(_)
        | AttemptState::Unsupervised { .. }
        | AttemptState::Orphaned => {}
    }
    Ok(sight)
}

/// Ensures that the attempt ends, and that control receives the end.
pub(in crate::executor) async fn follow(shared: Arc<Shared>, rank: Arc<Rank>) {
    tokio::join!(
        run(&shared, &rank),
        report::report_until_acknowledged(&shared, &rank)
    );
}

async fn run(shared: &Shared, rank: &Arc<Rank>) {
    let mut tries = StartCounter::default();
    let mut finishing = StartCounter::default();
    while !rank.has_ended() {
        match read_and_report(shared, rank).await {
            Ok(AttemptState::Ended(_)) => {}
            Ok(AttemptState::Supervised { by, started, .. }) => {
                adopt(shared, rank, by, started.is_some()).await;
            }
            Ok(AttemptState::Unfinished(end)) => {
                // A hook that a killed supervisor left must not run in parallel with its repetition.
                lost::clear_hooks(shared, rank).await;
                if finishing.is_another_due().await {
                    supervise(shared, rank).await;
                } else {
                    let fault = format!(
                        "the epilog or wipe of the attempt did not run: {}",
                        no_supervisor(rank)
                    );
                    let fault = Some(fault);
                    let exit = ExitRecord { fault, ..end };
                    lost::write_end(shared, rank, exit, AttemptDir::write_exit).await;
                }
            }
            Ok(AttemptState::Unsupervised { .. }) if rank.is_orphaned() => {
                orphans::end(shared, rank).await;
            }
            Ok(AttemptState::Unsupervised {
                had_supervisor: true,
            }) => lost::end(shared, rank).await,
            Ok(AttemptState::Orphaned) => orphans::end(shared, rank).await,
            Ok(AttemptState::Unsupervised {
                had_supervisor: false,
            }) if rank.is_end_wanted() => {
                write_end(shared, rank, RankExit::Stopped).await;
            }
            Ok(AttemptState::Unsupervised {
                had_supervisor: false,
            }) => {
                if tries.is_another_due().await {
                    supervise(shared, rank).await;
                } else {
                    let reason = no_supervisor(rank);
                    write_end(shared, rank, RankExit::SpawnFailed { reason }).await;
                }
            }
            Err(error) => {
                tracing::error!(attempt = %rank, %error, "state of an attempt unreadable");
                tokio::time::sleep(READ_RETRY_DELAY).await;
            }
        }
    }
    rank.record_hang(None, &shared.block_reasons);
    shared
        .block_reasons
        .remove(BlockReason::Finishing, rank.key());
}

/// Counter of supervisor starts.
#[derive(Default)]
struct StartCounter(u32);

impl StartCounter {
    /// Whether another start is due; waits between two starts.
    async fn is_another_due(&mut self) -> bool {
        if self.0 > 0 {
            tokio::time::sleep(START_RETRY_DELAY * self.0).await;
        }
        self.0 += 1;
        self.0 <= MAX_STARTS
    }
}

fn no_supervisor(rank: &Rank) -> String {
    format!(
        "the supervisor did not start in {MAX_STARTS} tries; see {} on the node",
        rank.dir().supervisor_log().display()
    )
}

/// Writes the end of a rank that never started.
async fn write_end(shared: &Shared, rank: &Arc<Rank>, exit: RankExit) {
    let exit = ExitRecord::new(shared.clock.now(), exit);
    lost::write_end(shared, rank, exit, AttemptDir::write_exit).await;
}

/// Starts a supervisor and watches it until it exits. Each byte that the supervisor prints requests a new read of the
/// state.
async fn supervise(shared: &Shared, rank: &Arc<Rank>) {
    let mut child = match spawn::supervisor(&shared.settings.program, rank.dir()) {
        Ok(child) => child,
        Err(error) => {
            tracing::error!(attempt = %rank, %error, "cannot start a supervisor");
            return;
        }
    };
    if let Some(mut words) = child.stdout.take() {
        let mut bytes = [0; 64];
        while let Ok(1..) = words.read(&mut bytes).await {
            if let Err(error) = read_and_report(shared, rank).await {
                tracing::error!(attempt = %rank, %error, "state of an attempt unreadable");
            }
        }
    }
    if let Err(error) = child.wait().await {
        tracing::error!(attempt = %rank, %error, "cannot wait for a supervisor");
        tokio::time::sleep(READ_RETRY_DELAY).await;
    }
}

/// Watches a supervisor of a previous agent until it exits.
async fn adopt(shared: &Shared, rank: &Arc<Rank>, by: Pid, started: bool) {
    let gone = match spawn::exit_detector(by) {
        Ok(gone) => gone,
        Err(error) => {
            tracing::debug!(attempt = %rank, %error, "supervisor exited during the check");
            tokio::time::sleep(START_POLL).await;
            return;
        }
    };
    // The process id may belong to another process since the first read.
    if !matches!(read_and_report(shared, rank).await, Ok(AttemptState::Supervised { by: now, .. }) if now == by)
    {
        return;
    }
    let gone = gone.wait();
    tokio::pin!(gone);
    let mut pause = match started {
        true => HANG_POLL,
        false => START_POLL,
    };
    loop {
        tokio::select! {
            () = &mut gone => return,
            () = tokio::time::sleep(pause) => {
                let sight = read_and_report(shared, rank).await;
                pause = match sight {
                    Ok(AttemptState::Supervised { started: None, .. }) => (pause * 2).min(READ_RETRY_DELAY),
                    _ => HANG_POLL,
                };
            }
        }
    }
}
