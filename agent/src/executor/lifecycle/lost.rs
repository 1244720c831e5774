//! Lost ranks: ends that no supervisor could write.

use crate::attempt::{AttemptDir, ExitRecord, RecordError};
use crate::executor::Shared;
use crate::executor::processes::clearing::{ChangeFilter, FoundProcesses, kill, kill_until_empty};
use crate::executor::rank::Rank;
use crate::supervisor::{Cgroup, OrphanProcesses, ScanTarget, find_orphans};
use lattice_quorum_types::allocation::RankExit;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two attempts to write an end.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// Ends a rank after its supervisor exited without recording an end. The job's first process ended with the supervisor.
/// All other processes are killed here, and the rank is reported as lost only when none is left.
pub(in crate::executor) async fn end(shared: &Shared, rank: &Arc<Rank>) {
    let search = clear(shared, rank).await;
    let dir = rank.dir().clone();
    let living = tokio::task::spawn_blocking(move || dir.living_supervisor()).await;
    if !matches!(living, Ok(Ok(None))) {
        // A supervisor that started meanwhile writes the end itself. If the check failed, the caller reads the state
        // again.
        return;
    }
    remove_shared_folder(rank).await;
    let evidence = search.evidence();
    tracing::warn!(attempt = %rank, %evidence, "rank lost");
    let lost = RankExit::Lost { evidence };
    let exit = ExitRecord::new(shared.clock.now(), lost);
    write_end(shared, rank, exit, AttemptDir::write_job_end_or_exit).await;
}

/// Removes the folder that the supervisor shared with its job.
async fn remove_shared_folder(rank: &Arc<Rank>) {
    let at = rank.clone();
    let leave = move || {
        let launch = at
            .dir()
            .launch()
            .map_err(|error| crate::with_causes(&error))?;
        let plan = launch.and_then(|launch| launch.checkpoint);
        let removed = plan.map_or(Ok(()), |plan| plan.remove_shared_folder());
        removed.map_err(|error| error.to_string())
    };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(leave).await {
        tracing::warn!(
            attempt = %rank,
            %error,
            "shared folder of a lost rank could not be removed"
        );
    }
}

/// Ends all remaining processes of the rank, and returns when they have ended.
async fn clear(shared: &Shared, rank: &Arc<Rank>) -> FoundProcesses {
    let (dir, boot_id) = (rank.dir().clone(), shared.settings.boot_id.clone());
    kill_until_empty(rank.as_ref(), move || {
        kill_remaining(&dir, &boot_id, ScanTarget::Job)
    })
    .await
}

/// Ends hooks that a killed supervisor left. The job's processes had ended before.
pub(in crate::executor) async fn clear_hooks(shared: &Shared, rank: &Arc<Rank>) {
    let (dir, boot_id) = (rank.dir().clone(), shared.settings.boot_id.clone());
    kill_until_empty(rank.as_ref(), move || {
        kill_remaining(&dir, &boot_id, ScanTarget::Hooks)
    })
    .await;
}

/// Kills remaining processes and returns them. The result is empty while a supervisor lives: it started meanwhile, and
/// the running processes are its own.
fn kill_remaining(
    dir: &AttemptDir,
    boot_id: &str,
    target: ScanTarget,
) -> Result<OrphanProcesses, String> {
    let failed = |error: &dyn std::error::Error| crate::with_causes(error);
    let launch = dir.launch().map_err(|e| failed(&e))?;
    let launch = launch.ok_or("the launch record is missing")?;
    // Process ids are valid only for the boot that assigned them. These files are not flushed: after a machine crash
    // they may be empty.
    let (supervisor, started) = match launch.boot_id == boot_id {
        true => (
            dir.supervisor().map_err(|e| failed(&e))?,
            dir.started().map_err(|e| failed(&e))?,
        ),
        false => (None, None),
    };
    let left = find_orphans(
        &launch,
        supervisor.as_ref(),
        started.as_ref(),
        (dir.path(), target),
    );
    let left = left.map_err(|e| failed(&e))?;
    if dir.living_supervisor().map_err(|e| failed(&e))?.is_some() {
        return Ok(OrphanProcesses::default());
    }
    let group = launch.cgroup.map(|group| Cgroup::at(group.path));
    kill(&left, group.as_ref());
    Ok(left)
}

/// Writes an end in place of the supervisor, and retries until the write succeeds.
pub(in crate::executor) async fn write_end(
    shared: &Shared,
    rank: &Arc<Rank>,
    record: ExitRecord,
    write_file: fn(&AttemptDir, &ExitRecord) -> Result<(), RecordError>,
) {
    let mut said = ChangeFilter::default();
    loop {
        let (dir, body) = (rank.dir().clone(), record.clone());
        let written = tokio::task::spawn_blocking(move || write_file(&dir, &body)).await;
        let error = match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                shared.journal.failed(&error);
                crate::with_causes(&error)
            }
            Err(error) => error.to_string(),
        };
        if said.is_changed(Some(error.clone())) {
            tracing::error!(attempt = %rank, %error, "end of an attempt could not be written");
        }
        tokio::time::sleep(WRITE_PAUSE).await;
    }
}
