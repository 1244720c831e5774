//! Walltime changes of a rank after its launch.

use super::termination;
use crate::attempt::{AttemptDir, RecordError, WalltimeRecord};
use crate::executor::Executor;
use lattice_agent_rpc::{AttemptKey, LaunchRefused, SetWalltime, WalltimeRefused, WalltimeStatus};
use rustix::process::Signal;

impl Executor {
    /// Changes the walltime of a rank. For a repeated or superseded change, returns the walltime in force.
    pub async fn set_walltime(
        &self,
        wanted: SetWalltime,
    ) -> Result<WalltimeStatus, WalltimeRefused> {
        let mut epoch = self.shared.epoch.clone().lock_owned().await;
        let executor = self.clone();
        let taken = move || {
            epoch.accept(wanted.epoch).map_err(stale)?;
            if let Err(error) = epoch.write() {
                // The epoch is held in memory; the next launch is rejected until the epoch is on disk.
                executor.shared.journal.failed(&error);
            }
            executor.apply_walltime(&wanted)
        };
        let taken = tokio::task::spawn_blocking(taken).await;
        taken.unwrap_or_else(|error| {
            Err(WalltimeRefused::JournalFailed {
                reason: error.to_string(),
            })
        })
    }

    /// Records a walltime change and signals the supervisor. Blocks on the disk.
    fn apply_walltime(&self, wanted: &SetWalltime) -> Result<WalltimeStatus, WalltimeRefused> {
        let SetWalltime {
            key,
            number,
            walltime_ms,
            ..
        } = *wanted;
        let dir = self.shared.attempts.dir(key);
        if !self.is_open(key, &dir).map_err(unreadable)? {
            return Ok(WalltimeStatus::Gone);
        }
        let before = dir.walltime().map_err(unreadable)?;
        let record = match before {
            Some(before) if before.number >= number => before,
            _ => {
                let record = WalltimeRecord {
                    number,
                    walltime_ms,
                    taken_at: self.shared.clock.now(),
                };
                dir.write_walltime(&record).map_err(|error| {
                    self.shared.journal.failed(&error);
                    unreadable(error)
                })?;
                let (allocation, attempt) = (key.allocation, key.attempt);
                tracing::info!(%allocation, attempt, number, walltime_ms, "walltime changed");
                record
            }
        };
        // Signals on a repeat as well: a previous agent may have ended between the record and the signal.
        termination::signal_supervisor_process(&dir, Signal::USR1).map_err(unreadable)?;
        Ok(WalltimeStatus::InForce {
            number: record.number,
            walltime_ms: record.walltime_ms,
        })
    }

    /// Whether the attempt's job runs or has yet to start.
    pub(in crate::executor) fn is_open(
        &self,
        key: AttemptKey,
        dir: &AttemptDir,
    ) -> Result<bool, RecordError> {
        let rank = self.shared.known().get(&key).cloned();
        let is_open = rank.is_some_and(|rank| !rank.has_ended());
        Ok(is_open && dir.exit()?.is_none() && dir.job_end()?.is_none())
    }
}

fn stale(refused: LaunchRefused) -> WalltimeRefused {
    match refused {
        LaunchRefused::StaleEpoch { given, current } => {
            WalltimeRefused::StaleEpoch { given, current }
        }
        other => WalltimeRefused::JournalFailed {
            reason: other.to_string(),
        },
    }
}

fn unreadable(error: RecordError) -> WalltimeRefused {
    WalltimeRefused::JournalFailed {
        reason: crate::with_causes(&error),
    }
}
