//! Checkpoint requests to a job, and polling of its answers.

use super::callback::{RequestSender, v1};
use super::files::{Part, PartState};
use super::report::{ReportContent, ReportSender};
use super::shared::{SharedFile, StoredNumbers};
use super::signal_handlers::{SignalEffect, disposition};
use super::user_files::UserFileThread;
use crate::supervisor::processes::process_tree::{Process, signal_process};
use lattice_quorum_types::checkpoint::CheckpointFailure;
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time from which a filesystem is reported as unresponsive.
const SLOW_FILESYSTEM_AFTER: Duration = Duration::from_secs(5);
/// Longest poll interval of files, as a multiple of the first. A poll costs the filesystem's servers three calls, and
/// there may be thousands of nodes.
const MAX_POLL_FACTOR: u32 = 10;
/// Divisor of the elapsed time that gives the poll interval, so that the delay in noticing the completion is a fraction
/// of the checkpoint's duration.
const POLL_DIVISOR: u32 = 20;

/// Parameters of a request in any mode.
pub(super) struct CheckpointRequestParams {
    pub(super) reports: ReportSender,
    pub(super) user_files: UserFileThread,
    /// Shortest time between two polls.
    pub(super) poll: Duration,
    /// Timeout of the checkpoint.
    pub(super) timeout: Duration,
    /// Destination in the filesystem; `None`: the destination is not on a filesystem of this machine.
    pub(super) part: Option<Part>,
}

impl CheckpointRequestParams {
    /// Runs filesystem work as the user, and reports the storage as an obstacle if the work takes long.
    async fn run_as_user<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let seen = self.user_files.run(work);
        tokio::pin!(seen);
        let within = SLOW_FILESYSTEM_AFTER.min(self.timeout / 2);
        if let Ok(seen) = timeout(within, &mut seen).await {
            return seen;
        }
        let path = self.part.as_ref().map(Part::path).unwrap_or_default();
        let why = format!("the filesystem of {} is unresponsive", path.display());
        self.reports
            .report_obstacle(CheckpointFailure::Storage, why);
        let seen = seen.await;
        self.reports.clear_obstacle();
        seen
    }

    /// Creates the checkpoint's folder; returns whether the request may continue.
    pub(super) async fn prepare(&self) -> bool {
        let Some(part) = self.part.clone() else {
            return true;
        };
        let made = self.run_as_user(move || part.prepare()).await;
        self.report_result(made)
    }

    fn report_result(&self, made: Option<Result<(), String>>) -> bool {
        let why = match made {
            Some(Ok(())) => return true,
            Some(Err(why)) => why,
            None => "the thread for file access has ended".to_owned(),
        };
        self.reports
            .send(ReportContent::DestinationUnavailable(why));
        false
    }

    /// Mode `signal`: writes the request into a file, sends SIGUSR1 to the job's first process, and polls the files
    /// with its answer.
    pub(super) async fn run_signal_mode(self, first: Process, request: PathBuf) {
        let Some(part) = self.part.clone() else {
            return;
        };
        if !self.prepare().await {
            return;
        }
        let at = part.clone();
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let written = self
            .run_as_user(move || at.request(&request, timeout_ms))
            .await;
        if !self.report_result(written) {
            return;
        }
        self.signal(&first).await;
        self.reports.send(ReportContent::RequestSent);
        self.watch_files(part).await;
    }

    /// Sends SIGUSR1 to the first process as soon as it has a handler; without a handler, the signal would end it. No
    /// other process is signalled: a child of the job may lack a handler.
    async fn signal(&self, first: &Process) {
        let mut is_said = false;
        while let Some(pid) = Pid::from_raw(first.pid) {
            match disposition(pid, Signal::USR1) {
                Some(SignalEffect::Default) => {}
                // The process has ended, or ignores the signal and polls the file itself.
                None | Some(SignalEffect::Ignored) => break,
                Some(SignalEffect::Caught) => {
                    signal_process(first, Signal::USR1);
                    break;
                }
            }
            if !is_said {
                let why = "the first process of the job has no handler for SIGUSR1; the request was not \
                           sent, because the signal would end the process";
                self.reports
                    .report_obstacle(CheckpointFailure::Unresponsive, why);
                is_said = true;
            }
            sleep(self.poll).await;
        }
        if is_said {
            self.reports.clear_obstacle();
        }
    }

    async fn watch_files(&self, part: Part) {
        // A sign of life is valid for a quarter of the timeout, and must be read before it expires.
        let often = (self.timeout / 20).max(self.poll);
        let rarest = often.min(self.poll * MAX_POLL_FACTOR);
        let (begun, mut before, mut obstacle) = (Instant::now(), None, None);
        loop {
            let at = part.clone();
            let now = match self.run_as_user(move || at.read_state()).await {
                None => return,
                Some(Ok(PartState::Complete)) => {
                    return self.reports.send(ReportContent::Complete { bytes: None });
                }
                Some(Ok(PartState::Failed(why))) => {
                    return self.reports.send(ReportContent::Declined(why));
                }
                Some(Ok(PartState::Open { progress, obstacle })) => {
                    if progress.is_some() && progress != before {
                        self.reports.send(ReportContent::Alive);
                        before = progress;
                    }
                    obstacle
                }
                Some(Err(error)) => {
                    Some(format!("{} cannot be read: {error}", part.path().display()))
                }
            };
            if now != obstacle {
                match &now {
                    Some(why) => self
                        .reports
                        .report_obstacle(CheckpointFailure::Storage, why.clone()),
                    None => self.reports.clear_obstacle(),
                }
                obstacle = now;
            }
            sleep((begun.elapsed() / POLL_DIVISOR).clamp(self.poll, rarest)).await;
        }
    }

    /// Mode `shared_memory`: stores the request number, and polls the numbers that the job stores.
    pub(super) async fn run_shared_memory_mode(self, shared: Arc<SharedFile>, folder: String) {
        if !self.prepare().await {
            return;
        }
        let number = self.reports.number;
        let before = shared.read();
        if let Err(error) = shared.request(number, &folder) {
            let why =
                format!("the request cannot be written to the shared file of the job: {error}");
            return self
                .reports
                .send(ReportContent::DestinationUnavailable(why));
        }
        self.reports.send(ReportContent::RequestSent);
        let mut before = before.ok();
        let mut is_hindered = false;
        loop {
            match shared.read() {
                Ok(now) => {
                    if is_hindered {
                        self.reports.clear_obstacle();
                        is_hindered = false;
                    }
                    if let Some(word) = answer_from_numbers(number, before.as_ref(), &now) {
                        let is_last = word != ReportContent::Alive;
                        self.reports.send(word);
                        if is_last {
                            return;
                        }
                    }
                    before = Some(now);
                }
                Err(error) if !is_hindered => {
                    let why = format!("the job's shared file cannot be read: {error}");
                    self.reports
                        .report_obstacle(CheckpointFailure::Unresponsive, why);
                    is_hindered = true;
                }
                Err(_) => {}
            }
            sleep(self.poll).await;
        }
    }

    /// Mode `callback`: sends the request to all watchers. Their reports arrive through the service.
    pub(super) async fn run_callback_mode(
        self,
        asked: Arc<RequestSender>,
        request: v1::WriteRequest,
    ) {
        if !self.prepare().await {
            return;
        }
        asked.send_replace(Some(request));
        self.reports.send(ReportContent::RequestSent);
        let mut is_deaf = false;
        loop {
            // One receiver belongs to the service itself.
            let listens = asked.receiver_count() > 1;
            if listens == is_deaf {
                is_deaf = !listens;
                match is_deaf {
                    true => {
                        let why = "no process of the job is connected to the checkpoint socket";
                        self.reports
                            .report_obstacle(CheckpointFailure::Unresponsive, why);
                    }
                    false => self.reports.clear_obstacle(),
                }
            }
            sleep(self.poll * MAX_POLL_FACTOR).await;
        }
    }
}

/// Answer of the job, derived from its stored numbers.
fn answer_from_numbers(
    number: u32,
    before: Option<&StoredNumbers>,
    now: &StoredNumbers,
) -> Option<ReportContent> {
    if now.completed == number {
        return Some(ReportContent::Complete { bytes: None });
    }
    if now.failed == number {
        let why = "the job reported a failure in the shared file".to_owned();
        return Some(ReportContent::Declined(why));
    }
    let has_begun = now.acknowledged == number
        && before.is_none_or(|before| before.acknowledged != now.acknowledged);
    let beats = before.is_some_and(|before| before.heartbeat != now.heartbeat);
    (has_begun || beats).then_some(ReportContent::Alive)
}

/// Whether a checkpoint's folder is a path on this machine.
pub(super) fn is_path(directory: &str) -> bool {
    Path::new(directory).is_absolute()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_that_is_waited_for_is_an_answer() {
        let stored = |acknowledged, completed, failed, heartbeat| StoredNumbers {
            acknowledged,
            completed,
            failed,
            heartbeat,
        };
        let before = stored(2, 2, 1, 9);
        let answer_to = |now| answer_from_numbers(3, Some(&before), &now);
        assert_eq!(answer_to(before), None);
        assert_eq!(answer_to(stored(3, 2, 1, 9)), Some(ReportContent::Alive));
        assert_eq!(answer_to(stored(2, 2, 1, 10)), Some(ReportContent::Alive));
        assert_eq!(
            answer_to(stored(3, 3, 1, 9)),
            Some(ReportContent::Complete { bytes: None })
        );
        assert_eq!(answer_to(stored(4, 4, 2, 9)), None);
        assert!(matches!(
            answer_to(stored(3, 2, 3, 9)),
            Some(ReportContent::Declined(_))
        ));
    }
}
