//! Checkpoint status records.

use crate::attempt::{AttemptDir, CheckpointState};
use crate::supervisor::supervisor_log::log_line;
use lattice_agent_rpc::CheckpointStatus;
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::checkpoint::CheckpointOutcome;
use std::mem::discriminant;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Shortest interval between two records of signs of life, milliseconds.
const MIN_RECORD_INTERVAL_MS: u64 = 1_000;
/// Pause between two writes of an end to a disk that fails.
const WRITE_RETRY: Duration = Duration::from_secs(1);

/// Recorder of one checkpoint.
pub(super) struct CheckpointRecorder {
    dir: AttemptDir,
    number: u32,
    recorded: Option<(CheckpointStatus, UnixMillis)>,
}

impl CheckpointRecorder {
    pub(super) fn new(dir: &AttemptDir, number: u32) -> Self {
        Self {
            dir: dir.clone(),
            number,
            recorded: None,
        }
    }

    /// Records the status if it has changed.
    pub(super) fn record_status(&mut self, status: CheckpointStatus, now: UnixMillis) {
        let is_news = self.recorded.as_ref().is_none_or(|(before, at)| {
            let is_other = discriminant(before) != discriminant(&status);
            let is_beat = matches!(status, CheckpointStatus::Writing { .. });
            let is_due = !is_beat || now.since(*at) >= MIN_RECORD_INTERVAL_MS;
            is_other || (*before != status && is_due)
        });
        if !is_news {
            return;
        }
        let state = CheckpointState {
            number: self.number,
            status: status.clone(),
        };
        if let Err(error) = self.dir.write_checkpoint_state(&state) {
            let error = crate::with_causes(&error);
            log_line(format_args!(
                "state of a checkpoint could not be recorded: {error}"
            ));
        }
        self.recorded = Some((status, now));
    }

    /// Records the end, and retries until the write succeeds or the attempt's folder is gone. Once the job has ended,
    /// only one more write is tried: the job's own end implies the failure.
    pub(super) async fn end(&self, outcome: CheckpointOutcome, job_ended: &CancellationToken) {
        let state = CheckpointState {
            number: self.number,
            status: CheckpointStatus::Ended(outcome),
        };
        while let Err(error) = self.dir.write_checkpoint_state(&state) {
            let error = crate::with_causes(&error);
            log_line(format_args!(
                "end of a checkpoint could not be written: {error}"
            ));
            if job_ended.is_cancelled() || !self.dir.exists() {
                return;
            }
            tokio::select! {
                () = job_ended.cancelled() => {}
                () = sleep(WRITE_RETRY) => {}
            }
        }
    }
}
