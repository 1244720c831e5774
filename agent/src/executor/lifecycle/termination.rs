//! Termination of ranks. It must work on a disk that accepts no writes: a job that cannot be ended holds its nodes for
//! ever.

use crate::attempt::{AttemptDir, ExitRecord, RecordError};
use crate::executor::Executor;
use crate::executor::rank::{self, Rank};
use crate::supervisor;
use lattice_agent_rpc::{AttemptKey, AttemptStatus};
use lattice_quorum_types::allocation::RankExit;
use rustix::process::Signal;
use std::time::Duration;

/// Pause between two tries to record an attempt as stopped.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// Sends SIGTERM to the living supervisor, if there is one; returns whether there is.
pub(in crate::executor) fn signal_supervisor(dir: &AttemptDir) -> Result<bool, RecordError> {
    signal_supervisor_process(dir, Signal::TERM)
}

/// Sends `signal` to the living supervisor, if there is one; returns whether there is.
pub(in crate::executor) fn signal_supervisor_process(
    dir: &AttemptDir,
    signal: Signal,
) -> Result<bool, RecordError> {
    let found = dir.living_supervisor()?;
    let Some(process) = found.and_then(|pid| supervisor::process(pid).ok()) else {
        return Ok(false);
    };
    supervisor::signal_process(&process, signal);
    Ok(true)
}

impl Executor {
    /// Marks a rank for termination in memory and on disk, and signals the supervisor.
    ///
    /// A supervisor reads the request on disk after it has taken its lock, so a later supervisor needs no signal. If
    /// the request cannot be written, the agent signals the supervisor once it has started. The returned error then
    /// means only that a crash of the agent before the signal loses the request.
    pub(in crate::executor) fn request_termination(&self, rank: &Rank) -> Result<(), RecordError> {
        rank.mark_for_termination();
        let noted = rank.dir().request_stop();
        if let Err(error) = &noted {
            self.shared.journal.failed(error);
        }
        if signal_supervisor(rank.dir())? {
            return Ok(());
        }
        noted
    }

    /// Records an attempt without a record as stopped, to reject a launch of it that arrives later.
    pub(in crate::executor) fn record_as_stopped(&self, key: AttemptKey) -> AttemptStatus {
        let exit = ExitRecord::new(self.shared.clock.now(), RankExit::Stopped);
        if let Err(error) = self.write_stopped(key, &exit) {
            self.shared.journal.failed(&error);
            self.shared.unwritten().insert(key, exit.clone());
            self.spawn(self.clone().write_when_possible(key, exit.clone()));
        }
        let report = Some(rank::end_report(exit));
        self.follow(key, self.shared.attempts.dir(key), report.clone());
        AttemptStatus { key, report }
    }

    fn write_stopped(&self, key: AttemptKey, exit: &ExitRecord) -> Result<(), RecordError> {
        self.shared.attempts.create(key)?.write_exit(exit)
    }

    async fn write_when_possible(self, key: AttemptKey, exit: ExitRecord) {
        loop {
            tokio::time::sleep(WRITE_PAUSE).await;
            let (executor, exit) = (self.clone(), exit.clone());
            let write = move || {
                executor.write_stopped(key, &exit)?;
                if !executor.shared.known().contains_key(&key) {
                    // Control acknowledged the end before it could be written.
                    executor.shared.attempts.dir(key).acknowledge()?;
                }
                Ok::<(), RecordError>(())
            };
            if let Ok(Ok(())) = tokio::task::spawn_blocking(write).await {
                self.shared.unwritten().remove(&key);
                return;
            }
        }
    }
}
