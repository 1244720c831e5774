//! Checkpoint requests to a rank, and their status.

use super::termination;
use crate::attempt::{AttemptDir, OrderRecord, RecordError};
use crate::executor::Executor;
use lattice_agent_rpc::{
    AttemptKey, CheckpointOrder, CheckpointRefused, CheckpointStatus, LaunchRefused,
    WriteCheckpoint,
};
use rustix::process::Signal;

impl Executor {
    /// Requests a checkpoint of a rank, or returns the status of a checkpoint that was requested before.
    pub async fn write_checkpoint(
        &self,
        wanted: WriteCheckpoint,
    ) -> Result<CheckpointStatus, CheckpointRefused> {
        let mut epoch = self.shared.epoch.clone().lock_owned().await;
        let executor = self.clone();
        let asked = move || {
            epoch.accept(wanted.epoch).map_err(stale)?;
            if let Err(error) = epoch.write() {
                // The epoch is held in memory; the next launch is rejected until the epoch is on disk.
                executor.shared.journal.failed(&error);
            }
            executor.order_checkpoint(wanted.key, wanted.order)
        };
        let asked = tokio::task::spawn_blocking(asked).await;
        asked.unwrap_or_else(|error| {
            Err(CheckpointRefused::JournalFailed {
                reason: error.to_string(),
            })
        })
    }

    /// Checks and records a checkpoint request. Blocks on the disk.
    fn order_checkpoint(
        &self,
        key: AttemptKey,
        order: CheckpointOrder,
    ) -> Result<CheckpointStatus, CheckpointRefused> {
        let dir = self.shared.attempts.dir(key);
        let given = order.number;
        let before = dir.checkpoint_order().map_err(unreadable)?;
        if let Some(before) = &before {
            let current = before.order.number;
            if given < current {
                return Err(CheckpointRefused::StaleNumber { given, current });
            }
            let status = dir.checkpoint_status(before).map_err(unreadable)?;
            if given == current {
                return self.repeated_order_status(&dir, before, status);
            }
            let has_ended = matches!(status, CheckpointStatus::Ended(_));
            if !has_ended {
                return Err(CheckpointRefused::InProgress { given, current });
            }
        }
        if !self.is_open(key, &dir).map_err(unreadable)? {
            return Ok(CheckpointStatus::Gone);
        }
        let Some(launch) = dir.launch().map_err(unreadable)? else {
            return Ok(CheckpointStatus::Gone);
        };
        let plan = launch.checkpoint.ok_or(CheckpointRefused::NotPrepared)?;
        let checked = order.check(plan.setup.mode);
        checked.map_err(|error| CheckpointRefused::Invalid {
            reason: error.to_string(),
        })?;
        let at = self.shared.clock.now();
        let record = OrderRecord {
            order,
            asked_at: at,
        };
        dir.write_checkpoint_order(&record).map_err(|error| {
            self.shared.journal.failed(&error);
            unreadable(error)
        })?;
        let (allocation, attempt) = (key.allocation, key.attempt);
        tracing::info!(%allocation, attempt, number = given, "checkpoint requested");
        wake(&dir).map_err(unreadable)?;
        Ok(CheckpointStatus::Asked { at })
    }

    /// Status of a repeated request. If the supervisor has written no status, its signal may be missing: a previous
    /// agent may have ended between the record and the signal.
    fn repeated_order_status(
        &self,
        dir: &AttemptDir,
        before: &OrderRecord,
        status: CheckpointStatus,
    ) -> Result<CheckpointStatus, CheckpointRefused> {
        if let CheckpointStatus::Ended(_) = status {
            return Ok(status);
        }
        let state = dir.checkpoint_state().map_err(unreadable)?;
        if state.is_none_or(|state| state.number != before.order.number) {
            wake(dir).map_err(unreadable)?;
        }
        Ok(status)
    }
}

/// Signals the living supervisor to read the request. A supervisor that starts later reads it when its job runs.
fn wake(dir: &AttemptDir) -> Result<(), RecordError> {
    termination::signal_supervisor_process(dir, Signal::USR1).map(drop)
}

fn stale(refused: LaunchRefused) -> CheckpointRefused {
    match refused {
        LaunchRefused::StaleEpoch { given, current } => {
            CheckpointRefused::StaleEpoch { given, current }
        }
        other => CheckpointRefused::JournalFailed {
            reason: other.to_string(),
        },
    }
}

fn unreadable(error: RecordError) -> CheckpointRefused {
    CheckpointRefused::JournalFailed {
        reason: crate::with_causes(&error),
    }
}
