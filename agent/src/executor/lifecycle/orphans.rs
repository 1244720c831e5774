//! Orphan processes: processes of an attempt without a record. The attempts' folder was removed or moved, or the agent
//! was reinstalled, while a supervisor or a job lived.
//!
//! Orphans are found by their cgroup, by the mark in their environment (it names this agent), and by the command line
//! of their supervisor. A process that is in no cgroup, has cleared its environment and has lost its supervisor is not
//! found.
//!
//! Any user that can start a process on this machine can set its environment and command line. So these two only decide
//! which processes are ended. An end is recorded only if the cgroup proves the owner of the processes, or if control
//! requested it.

use super::lost;
use crate::attempt::{AttemptDir, ExitRecord, OrphanRecord, RecordError};
use crate::executor::block_reason::BlockReason;
use crate::executor::processes::clearing::{kill, kill_until_empty};
use crate::executor::processes::search::{OrphanAttempt, OrphanFinder};
use crate::executor::rank::Rank;
use crate::executor::settings::OrphanPolicy;
use crate::executor::{Executor, Shared};
use crate::supervisor::OrphanProcesses;
use lattice_agent_rpc::{AttemptKey, AttemptStatus};
use lattice_quorum_types::allocation::RankExit;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two checks of orphans under [`OrphanPolicy::Report`].
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Interval of log messages about orphans that outlast [`ORPHAN_HOLD`](crate::executor::ORPHAN_HOLD).
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);

/// Ends the processes of an attempt without a record, and records it as lost when all have ended.
pub(in crate::executor) async fn end(shared: &Shared, rank: &Arc<Rank>) {
    let (key, finder) = (rank.key(), shared.finder());
    let clearing = kill_until_empty(rank.as_ref(), move || finder.kill(key));
    let search = block_jobs_until(shared, key, clearing).await;
    let evidence = format!(
        "this node has no record of the attempt; {} processes with the attempt's marker or in its \
         cgroup, supervisors included, were found and killed",
        search.ended()
    );
    tracing::warn!(attempt = %rank, %evidence, "rank lost");
    let lost = RankExit::Lost { evidence };
    let exit = ExitRecord::new(shared.clock.now(), lost);
    lost::write_end(shared, rank, exit, create_and_write_exit).await;
}

/// Keeps jobs away from the node while `gone` waits for the processes of `key` to end. Unproven processes keep jobs
/// away for a limited time only; a repeated log message informs the operator.
async fn block_jobs_until<T>(shared: &Shared, key: AttemptKey, gone: impl Future<Output = T>) -> T {
    let hindrances = &shared.block_reasons;
    hindrances.add(BlockReason::Orphans, key);
    tokio::pin!(gone);
    let mut pause = shared.settings.orphan_hold;
    let done = loop {
        tokio::select! {
            done = &mut gone => break done,
            () = tokio::time::sleep(pause) => {}
        }
        let finder = shared.finder();
        let found = tokio::task::spawn_blocking(move || finder.attempt(key)).await;
        let found = found.ok().and_then(Result::ok).unwrap_or_default();
        let (allocation, attempt, pids) = (key.allocation, key.attempt, found.pids());
        let is_proven = found.is_proven;
        tracing::error!(
            %allocation, attempt, ?pids, keeps_work_away = is_proven,
            "processes without a record persist; find what starts them"
        );
        if !is_proven {
            hindrances.add(BlockReason::Strays, key);
            hindrances.remove(BlockReason::Orphans, key);
        }
        pause = REPEAT_INTERVAL;
    };
    hindrances.remove(BlockReason::Orphans, key);
    hindrances.remove(BlockReason::Strays, key);
    done
}

/// Creates the attempt's folder, which may not exist, and writes the end.
fn create_and_write_exit(dir: &AttemptDir, exit: &ExitRecord) -> Result<(), RecordError> {
    dir.make()?;
    dir.write_exit(exit)
}

/// Kills the processes found for `key` unless the attempt is known.
///
/// Control may dispatch the attempt that these processes name. Nothing then distinguishes them from the attempt's own
/// processes, which must live. The executor registers a rank before any process of the rank starts. So a process found
/// before the check belongs to no rank if the check finds none.
fn kill_unless_known(
    shared: &Shared,
    finder: &OrphanFinder,
    key: AttemptKey,
) -> Result<OrphanProcesses, String> {
    let found = finder.attempt(key).map_err(|error| error.to_string())?;
    if shared.known().contains_key(&key) || shared.attempts.dir(key).exists() {
        return Ok(OrphanProcesses::default());
    }
    // Only the processes are killed, not the cgroup: a launch may create the cgroup at the same time.
    kill(&found.left, None);
    Ok(found.left)
}

impl Executor {
    /// Resumes an attempt without a record if processes of it run, to end and report it. Blocks on `/proc`.
    pub(in crate::executor) fn resume_unrecorded(&self, key: AttemptKey) -> Option<AttemptStatus> {
        match self.shared.finder().attempt(key) {
            Ok(found) if found.is_empty() => None,
            Ok(found) => Some(self.resume_attempt(key, &found.pids())),
            Err(error) => {
                // The processes may still run: the search repeats until it succeeds.
                tracing::error!(%error, "search for processes of an attempt failed");
                Some(self.resume_attempt(key, &[]))
            }
        }
    }

    fn resume_attempt(&self, key: AttemptKey, pids: &[i32]) -> AttemptStatus {
        let (allocation, attempt) = (key.allocation, key.attempt);
        tracing::error!(%allocation, attempt, ?pids, "processes without a record are running");
        let record = OrphanRecord {
            found_at: self.shared.clock.now(),
            boot_id: self.shared.settings.boot_id.clone(),
        };
        let dir = self.shared.attempts.dir(key);
        if let Err(error) = dir.make().and_then(|()| dir.write_orphan(&record)) {
            // A later agent finds the processes in the same way.
            self.shared.journal.failed(&error);
        }
        self.shared.block_reasons.add(BlockReason::Orphans, key);
        let rank = Rank::new(key, dir, None);
        rank.mark_orphaned();
        self.follow_rank(rank);
        AttemptStatus { key, report: None }
    }

    /// Searches once for processes without a record, after all recorded attempts are followed.
    pub(in crate::executor) fn search_orphans(&self) {
        let finder = self.shared.finder();
        let everything = match finder.all_attempts() {
            Ok(everything) => everything,
            Err(error) => {
                tracing::error!(%error, "search for processes without a record failed");
                return;
            }
        };
        for (key, found) in everything {
            let known = self.shared.known().get(&key).cloned();
            if known.is_some_and(|rank| !rank.has_ended()) {
                continue;
            }
            if found.is_empty() {
                // Removes an empty cgroup that a crash left.
                kill(&found.left, found.group.as_ref());
                continue;
            }
            let ended_before = self.shared.attempts.dir(key).exit().ok().flatten();
            if ended_before.is_some() && found.is_over() {
                continue;
            }
            match (self.shared.settings.orphans, ended_before) {
                (OrphanPolicy::Report, _) => self.watch_orphans(key, &found),
                (OrphanPolicy::End, None) if found.is_proven => {
                    drop(self.resume_attempt(key, &found.pids()));
                }
                (OrphanPolicy::End, report) => self.end_unreported(key, &found, report.is_some()),
            }
        }
    }

    /// Ends the processes without a report on the attempt: its end was reported before, or the processes are the only
    /// evidence of the attempt.
    fn end_unreported(&self, key: AttemptKey, found: &OrphanAttempt, is_reported: bool) {
        let rank = Rank::new(key, self.shared.attempts.dir(key), None);
        let pids = found.pids();
        tracing::error!(
            attempt = %rank,
            ?pids,
            "processes without a record are running; ending them"
        );
        self.shared.block_reasons.add(BlockReason::Orphans, key);
        let (shared, finder) = (self.shared.clone(), self.shared.finder());
        self.spawn(async move {
            let at = shared.clone();
            let clearing = kill_until_empty(&rank, move || match is_reported {
                true => finder.kill(key),
                false => kill_unless_known(&at, &finder, key),
            });
            block_jobs_until(&shared, key, clearing).await;
        });
    }

    fn watch_orphans(&self, key: AttemptKey, found: &OrphanAttempt) {
        let (allocation, attempt, pids) = (key.allocation, key.attempt, found.pids());
        tracing::error!(
            %allocation, attempt, ?pids,
            "processes without a record are running and executor.orphans is `report`; the node \
             accepts jobs again when they have ended"
        );
        self.shared.block_reasons.add(BlockReason::Orphans, key);
        let (shared, finder) = (self.shared.clone(), self.shared.finder());
        self.spawn(async move {
            let gone = async {
                loop {
                    tokio::time::sleep(CHECK_INTERVAL).await;
                    let at = finder.clone();
                    let found = tokio::task::spawn_blocking(move || at.attempt(key)).await;
                    if let Ok(Ok(found)) = found
                        && found.is_empty()
                    {
                        return;
                    }
                }
            };
            block_jobs_until(&shared, key, gone).await;
        });
    }
}
