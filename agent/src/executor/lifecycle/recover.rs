//! Recovery: attempts that a previous agent left on disk, and removal of old ones.

use crate::attempt::{AttemptDir, ExitRecord, LaunchRecord, RecordError};
use crate::executor::Shared;
use crate::executor::block_reason::BlockReason;
use crate::executor::rank::end_report;
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Retention of an end: as long as the quorum keeps an idempotency key. A late or repeated launch is answered with the
/// end instead of being run.
const KEEP_END: Duration = Duration::from_millis(lattice_quorum_types::command::KEY_LIFETIME_MS);
/// Pause between two removals of old attempts.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Attempt with its end, if known.
pub(in crate::executor) type Unfinished = (AttemptKey, AttemptDir, Option<RankReport>);

/// Attempts, except those with an end that control has acknowledged. For attempts of an earlier boot, this function
/// writes the result; it removes folders without a record.
pub(in crate::executor) fn unfinished(shared: &Shared) -> Result<Vec<Unfinished>, RecordError> {
    let mut left = Vec::new();
    for (key, dir) in shared.attempts.list()? {
        if dir.is_acknowledged() {
            continue;
        }
        let exit = match (dir.exit()?, dir.launch()?) {
            (Some(exit), _) => Some(exit),
            (None, Some(launch)) if launch.boot_id != shared.settings.boot_id => {
                end_after_reboot(shared, &dir, &launch)?
            }
            (None, Some(_)) => None,
            (None, None) if dir.orphan()?.is_some() => None,
            (None, None) => {
                // A crash came before the record: no caller received an acceptance of the attempt.
                dir.remove()?;
                continue;
            }
        };
        left.push((key, dir, exit.map(end_report)));
    }
    Ok(left)
}

/// Result of an attempt of an earlier boot: no process survives a reboot. A written result stays valid. `None` if hooks
/// of the attempt have still to run, because a reboot does not wipe disks.
fn end_after_reboot(
    shared: &Shared,
    dir: &AttemptDir,
    launch: &LaunchRecord,
) -> Result<Option<ExitRecord>, RecordError> {
    if let Some(plan) = &launch.checkpoint
        && let Err(error) = plan.remove_shared_folder()
    {
        tracing::debug!(
            %error,
            "shared folder of an attempt from another boot could not be removed"
        );
    }
    let is_finishing = launch.hooks_after_job().next().is_some();
    if is_finishing && dir.job_end()?.is_some() {
        shared.block_reasons.add(BlockReason::Finishing, launch.key);
        return Ok(None);
    }
    let (boot_then, boot_now) = (&launch.boot_id, &shared.settings.boot_id);
    let evidence =
        format!("node has rebooted since launch (boot id {boot_now}, expected {boot_then})");
    let exit = ExitRecord::new(shared.clock.now(), RankExit::Lost { evidence });
    let written = dir.write_job_end_or_exit(&exit);
    if let Err(error) = &written {
        shared.journal.failed(error);
    }
    if is_finishing && written.is_ok() {
        shared.block_reasons.add(BlockReason::Finishing, launch.key);
        return Ok(None);
    }
    // An end that cannot be written is reported nevertheless: the next agent reaches the same result.
    Ok(Some(exit))
}

/// Removes attempts that control acknowledged long ago, for as long as the agent runs.
pub(in crate::executor) async fn prune_periodically(shared: Arc<Shared>) {
    loop {
        let at = shared.clone();
        let pruned = tokio::task::spawn_blocking(move || prune(&at, SystemTime::now())).await;
        if let Ok(Err(error)) = pruned {
            let error = crate::with_causes(&error);
            tracing::warn!(%error, "cannot remove old attempts");
        }
        tokio::time::sleep(PRUNE_INTERVAL).await;
    }
}

/// Removes output and attempts by age. Ages are those of files, so `now` is from the clock that stamps files.
fn prune(shared: &Shared, now: SystemTime) -> Result<(), RecordError> {
    for (_, dir) in shared.attempts.list()? {
        let taken_at = dir.acknowledged_at();
        let Some(age) = taken_at.and_then(|at| now.duration_since(at).ok()) else {
            continue;
        };
        if age >= shared.settings.keep_output {
            dir.remove_output()?;
        }
        if age >= shared.settings.keep_output.max(KEEP_END) {
            dir.remove()?;
        }
    }
    Ok(())
}
