//! Requests of control to the executor, and their answers.

use super::rank::{self, Rank};
use super::{Executor, JobAccount, log};
use crate::attempt::RecordError;
use lattice_agent_rpc::{AttemptKey, AttemptStatus, Launch, LaunchRefused, ReadLog, Terminate};
use lattice_mesh::ItemSender;
use lattice_quorum_types::ProjectPath;
use lattice_quorum_types::command::RankReport;
use lattice_quorum_types::origin::AttemptOrigin;
use std::sync::Arc;
use std::time::Duration;

impl Executor {
    /// Starts a rank, or returns the status of a known attempt.
    pub async fn launch(&self, launch: Launch) -> Result<AttemptStatus, LaunchRefused> {
        // A known attempt has its GPUs on record.
        let is_known = self.shared.known().contains_key(&launch.key);
        let gpus = match launch.gpus {
            1.. if !is_known => self.shared.settings.gpus.choose(launch.gpus).await,
            _ => None,
        };
        // The account is selected before the lock is taken: a directory service that hangs delays only jobs of this
        // user.
        let chosen = self.choose_account(&launch).await;
        let mut epoch = self.shared.epoch.clone().lock_owned().await;
        let executor = self.clone();
        on_disk(move || {
            epoch.accept(launch.epoch)?;
            if let Some(status) = executor.known_status(launch.key)? {
                return Ok(status);
            }
            let (key, shared) = (launch.key, &executor.shared);
            shared.check_node_ready(&launch)?;
            let record = shared.launch_record(launch, gpus, chosen?);
            epoch.write().map_err(|error| shared.refused(error))?;
            let dir = shared.record_launch(key, &record);
            let dir = dir.map_err(|error| shared.refused(error))?;
            if let Some(gpus) = &record.gpus {
                let (allocation, attempt) = (key.allocation, key.attempt);
                tracing::info!(%allocation, attempt, gpus = ?gpus.slots, "GPUs selected for the rank");
            }
            executor.follow(key, dir, None);
            Ok(AttemptStatus { key, report: None })
        })
        .await
    }

    async fn choose_account(&self, launch: &Launch) -> Result<JobAccount, LaunchRefused> {
        if !self.is_enabled() {
            return Err(LaunchRefused::UserNotAllowed {
                user: launch.user.clone(),
                reason: "job execution is disabled on this node (executor.enabled is false)"
                    .to_owned(),
            });
        }
        self.shared.settings.run_as.choose(&launch.user).await
    }

    /// Ends a rank. An attempt without a record is recorded as stopped, or resumed to be ended if processes of it run.
    /// The answer may still show a running rank: the end of the rank follows in a report.
    pub async fn terminate(&self, terminate: Terminate) -> Result<AttemptStatus, LaunchRefused> {
        let mut epoch = self.shared.epoch.clone().lock_owned().await;
        let executor = self.clone();
        on_disk(move || {
            epoch.accept(terminate.epoch)?;
            if let Err(error) = epoch.write() {
                // The epoch is held in memory; the next launch is rejected until the epoch is on disk.
                executor.shared.journal.failed(&error);
            }
            let key = terminate.key;
            let Some(status) = executor.known_status(key)? else {
                // Processes of an attempt without a record may still run.
                let running = executor.resume_unrecorded(key);
                return Ok(running.unwrap_or_else(|| executor.record_as_stopped(key)));
            };
            let rank = executor.shared.known().get(&key).cloned();
            if let Some(rank) = rank.filter(|rank| !rank.has_ended()) {
                executor
                    .request_termination(&rank)
                    .map_err(record_refusal)?;
            }
            Ok(status)
        })
        .await
    }

    /// All attempts, except those with an end that control has acknowledged.
    pub fn list(&self) -> Vec<AttemptStatus> {
        let known = self.shared.known();
        known.values().map(|rank| rank.status()).collect()
    }

    /// Origin of an attempt; `None` without a readable launch record.
    pub async fn origin(&self, key: AttemptKey) -> Option<AttemptOrigin> {
        let dir = self.shared.attempts.dir(key);
        let read = on_disk(move || dir.launch().map_err(record_refusal)).await;
        let (allocation, attempt) = (key.allocation, key.attempt);
        let record = read
            .inspect_err(
                |error| tracing::warn!(%allocation, attempt, %error, "launch record unreadable"),
            )
            .ok()??;
        Some(AttemptOrigin {
            user: record.user,
            project: ProjectPath::new(record.project).ok()?,
            name: record.name.filter(|name| !name.is_empty()),
            element: record.element,
        })
    }

    /// Number of running ranks.
    pub fn running(&self) -> usize {
        let known = self.shared.known();
        let runs =
            |rank: &&Arc<Rank>| matches!(rank.status().report, Some(RankReport::Started { .. }));
        known.values().filter(runs).count()
    }

    /// Time for which the output of a rank is kept after control has its end.
    pub fn keep_output(&self) -> Duration {
        self.shared.settings.keep_output
    }

    /// Sends the captured output of a rank.
    pub async fn read_log(
        &self,
        request: ReadLog,
        to: &ItemSender<Result<bytes::Bytes, String>>,
    ) -> Result<(), lattice_mesh::HandlerFailed> {
        let dir = self.shared.attempts.dir(request.key);
        let rank = self.shared.known().get(&request.key).cloned();
        let keep = self.shared.settings.keep_output;
        log::send(&dir, rank.as_deref(), &request, keep, to).await
    }

    /// Status of an attempt; `None` if this agent neither follows the attempt nor has its end. Blocks on the disk.
    fn known_status(&self, key: AttemptKey) -> Result<Option<AttemptStatus>, LaunchRefused> {
        if let Some(rank) = self.shared.known().get(&key) {
            return Ok(Some(rank.status()));
        }
        let unwritten = self.shared.unwritten().get(&key).cloned();
        let exit = match unwritten {
            Some(exit) => Some(exit),
            None => self
                .shared
                .attempts
                .dir(key)
                .exit()
                .map_err(record_refusal)?,
        };
        let Some(exit) = exit else {
            return Ok(None);
        };
        // Control has acknowledged this end, or received a report of it, and requests the attempt again. The answer
        // alone does not end the rank at control, so the end is reported once more.
        let report = Some(rank::end_report(exit));
        self.follow(key, self.shared.attempts.dir(key), report.clone());
        Ok(Some(AttemptStatus { key, report }))
    }
}

/// Refusal of a launch when the disk fails.
pub(super) fn record_refusal(error: RecordError) -> LaunchRefused {
    LaunchRefused::JournalFailed {
        reason: crate::with_causes(&error),
    }
}

/// Runs disk accesses off the async threads. The accesses complete even if this future is dropped.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LaunchRefused> + Send + 'static,
) -> Result<T, LaunchRefused> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(LaunchRefused::JournalFailed {
            reason: error.to_string(),
        })
    })
}
