//! Checkpoint processing: one request after another, each from its order to its end.

use super::callback::v1;
use super::clock::MonotonicTime;
use super::files::{Part, PartState};
use super::polling::{CheckpointRequestParams, is_path};
use super::report::{
    Answer, CheckpointMessage, NoAnswerReason, ReportContent, ReportRejection, ReportSender,
};
use super::state_file::CheckpointRecorder;
use super::timing::{DueAction, Timing};
use super::{Channel, PreparedCheckpoints};
use crate::attempt::{AttemptDir, OrderRecord, job_ended};
use crate::supervisor::supervisor_log::log_line;
use lattice_quorum_types::checkpoint::{CheckpointFailure, CheckpointOutcome};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Longest wait for a last read of the job's answers, which delays the end of the job.
const FINAL_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the size of a checkpoint.
const SIZE_TIMEOUT: Duration = Duration::from_secs(6);

/// Processes checkpoint requests until the job has ended.
pub(super) async fn serve(
    mut prepared: PreparedCheckpoints,
    dir: AttemptDir,
    look: Arc<Notify>,
    ended: CancellationToken,
) {
    let mut done = 0;
    loop {
        while let Some(order) = next(&dir, done) {
            done = order.order.number;
            CheckpointTask::new(&prepared, &dir, order)
                .run(&mut prepared, &ended)
                .await;
            if let Channel::Callback { request: asked, .. } = &prepared.channel {
                asked.send_replace(None);
            }
        }
        tokio::select! {
            () = ended.cancelled() => return,
            () = look.notified() => {}
            Some(said) = prepared.reports.recv() => {
                let number = said.number;
                let why = format!("number: checkpoint {number} is not requested");
                answer(said.reply, Err(ReportRejection::NotRequested(why)));
            }
        }
    }
}

/// Checkpoint order that is not processed yet.
fn next(dir: &AttemptDir, done: u32) -> Option<OrderRecord> {
    match dir.checkpoint_order() {
        Ok(order) => order.filter(|order| order.order.number > done),
        Err(error) => {
            let error = crate::with_causes(&error);
            log_line(format_args!("checkpoint order unreadable: {error}"));
            None
        }
    }
}

fn answer(reply: Option<tokio::sync::oneshot::Sender<Answer>>, with: Answer) {
    if let Some(reply) = reply {
        let _ = reply.send(with);
    }
}

/// Task that sends the request, aborted on drop.
struct RequestTask(JoinHandle<()>);

impl Drop for RequestTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Processing of one checkpoint.
struct CheckpointTask {
    order_record: OrderRecord,
    part: Option<Part>,
    timing: Timing,
    clock: MonotonicTime,
    obstacle: Option<NoAnswerReason>,
    is_request_sent: bool,
    recorder: CheckpointRecorder,
}

/// Result of a step.
enum StepResult {
    Wait,
    End(CheckpointOutcome),
}

impl CheckpointTask {
    fn new(prepared: &PreparedCheckpoints, dir: &AttemptDir, of: OrderRecord) -> Self {
        let order = &of.order;
        let part = is_path(&order.directory);
        Self {
            part: part.then(|| Part::new(order, prepared.rank, prepared.uid)),
            timing: Timing::new(of.clone()),
            clock: MonotonicTime::of(&of),
            recorder: CheckpointRecorder::new(dir, order.number),
            order_record: of,
            obstacle: None,
            is_request_sent: false,
        }
    }

    fn number(&self) -> u32 {
        self.order_record.order.number
    }

    /// Runs a checkpoint from its request to its end.
    async fn run(mut self, of: &mut PreparedCheckpoints, ended: &CancellationToken) {
        if let Err(error) = self.order_record.order.check(of.plan.setup.mode) {
            let outcome = self.failed(CheckpointFailure::Storage, error.to_string());
            return self.recorder.end(outcome, ended).await;
        }
        let _asked = self.start_request(of);
        loop {
            self.recorder
                .record_status(self.timing.status(), self.clock.now());
            let due_at = self.clock.instant(self.timing.due_at());
            let next = tokio::select! {
                () = ended.cancelled() => {
                    let outcome = self.final_outcome(of).await;
                    return self.recorder.end(outcome, ended).await;
                }
                Some(said) = of.reports.recv() => {
                    match self.process_report(of, said).await {
                        (StepResult::End(outcome), reply) => {
                            self.recorder.end(outcome, ended).await;
                            // The job gets its reply only after the result is on disk.
                            return answer(reply, Ok(None));
                        }
                        (next, _) => next,
                    }
                }
                () = sleep_until(due_at) => self.process_timer(of),
            };
            if let StepResult::End(outcome) = next {
                return self.recorder.end(outcome, ended).await;
            }
        }
    }

    /// Starts to send the request, in the job's mode.
    fn start_request(&self, of: &PreparedCheckpoints) -> RequestTask {
        let order = &self.order_record.order;
        let asking = CheckpointRequestParams {
            reports: ReportSender {
                number: order.number,
                to: of.to.clone(),
            },
            user_files: of.user_files.clone(),
            poll: Duration::from_millis(of.plan.poll_ms),
            timeout: Duration::from_millis(order.timeout_ms),
            part: self.part.clone(),
        };
        let folder = order.folder(of.rank);
        let request = of.plan.request_file(of.rank);
        RequestTask(match &of.channel {
            Channel::Signal { first } => {
                let first = *first;
                tokio::spawn(async move {
                    // Without a process the job has ended, which arrives as a separate event.
                    if let (Some(first), Some(request)) = (first, request) {
                        asking.run_signal_mode(first, request).await;
                    }
                })
            }
            Channel::Memory(shared) => {
                tokio::spawn(asking.run_shared_memory_mode(shared.clone(), folder))
            }
            Channel::Callback { request: asked, .. } => {
                tokio::spawn(asking.run_callback_mode(asked.clone(), self.request(of)))
            }
        })
    }

    /// Request message in callback mode.
    fn request(&self, of: &PreparedCheckpoints) -> v1::WriteRequest {
        let (deferrals_left, deferral_left_ms) = self.timing.deferrals_left();
        v1::WriteRequest {
            number: self.number(),
            folder: self.order_record.order.folder(of.rank),
            timeout_ms: self.timing.fails_at().since(self.clock.now()),
            deferrals_left,
            deferral_left_ms,
        }
    }

    /// Processes one report. Returns the next step, and the reply channel if the reply is still due.
    async fn process_report(
        &mut self,
        of: &PreparedCheckpoints,
        said: CheckpointMessage,
    ) -> (StepResult, Option<tokio::sync::oneshot::Sender<Answer>>) {
        let CheckpointMessage {
            number,
            content: word,
            reply,
            slot: _place,
        } = said;
        if number != self.number() {
            let wanted = self.number();
            let why = format!(
                "number: checkpoint {number} has ended; the current checkpoint is {wanted}"
            );
            answer(reply, Err(ReportRejection::NotRequested(why)));
            return (StepResult::Wait, None);
        }
        if reply.is_some() && !self.is_request_sent {
            let why = format!("number: checkpoint {number} is not requested yet");
            answer(reply, Err(ReportRejection::NotRequested(why)));
            return (StepResult::Wait, None);
        }
        let now = self.clock.now();
        let end = match word {
            ReportContent::RequestSent => {
                self.is_request_sent = true;
                None
            }
            ReportContent::Alive => {
                self.timing.record_sign_of_life(now);
                None
            }
            ReportContent::Deferral { for_ms } => {
                let until = self.timing.defer(for_ms, now);
                answer(reply, until.map(Some).map_err(ReportRejection::Invalid));
                return (StepResult::Wait, None);
            }
            ReportContent::Obstacle(hindered) => {
                self.obstacle = hindered;
                None
            }
            ReportContent::Complete { bytes } => Some(self.written_outcome(of, bytes).await),
            ReportContent::Declined(reason) => {
                Some(self.failed(CheckpointFailure::Declined, reason))
            }
            ReportContent::DestinationUnavailable(reason) => {
                Some(self.failed(CheckpointFailure::Storage, reason))
            }
        };
        match end {
            Some(outcome) => (StepResult::End(outcome), reply),
            None => {
                answer(reply, Ok(None));
                (StepResult::Wait, None)
            }
        }
    }

    /// Processes a timer that is due.
    fn process_timer(&mut self, of: &PreparedCheckpoints) -> StepResult {
        match self.timing.due(self.clock.now()) {
            DueAction::Nothing | DueAction::Extended => StepResult::Wait,
            DueAction::RequestAgain => {
                if let Channel::Callback { request: asked, .. } = &of.channel {
                    asked.send_replace(Some(self.request(of)));
                }
                StepResult::Wait
            }
            DueAction::GiveUp(cause) => StepResult::End(self.timeout_outcome(cause)),
        }
    }

    fn timeout_outcome(&self, cause: CheckpointFailure) -> CheckpointOutcome {
        let now = self.clock.now();
        let seconds = |ms: u64| format!("{}.{:01} s", ms / 1000, ms % 1000 / 100);
        let within = seconds(now.since(self.order_record.asked_at));
        let mut reason = match self.timing.last_report_at() {
            Some(at) => format!(
                "checkpoint not complete within {within}; the last report was received {} earlier",
                seconds(now.since(at))
            ),
            None => format!("no report within {within}"),
        };
        let mut cause = cause;
        if let Some(hindered) = &self.obstacle {
            reason = format!("{reason}: {}", hindered.why);
            cause = hindered.cause;
        }
        self.failed(cause, reason)
    }

    fn failed(&self, cause: CheckpointFailure, reason: String) -> CheckpointOutcome {
        CheckpointOutcome::Failed {
            at: self.clock.now(),
            cause,
            reason,
        }
    }

    async fn written_outcome(
        &self,
        of: &PreparedCheckpoints,
        bytes: Option<u64>,
    ) -> CheckpointOutcome {
        let at = self.clock.now();
        let bytes = match (bytes, self.part.clone()) {
            (None, Some(part)) => {
                let count = of.user_files.run(move || part.bytes());
                timeout(SIZE_TIMEOUT, count).await.ok().flatten().flatten()
            }
            (said, _) => said,
        };
        CheckpointOutcome::Written {
            at,
            bytes,
            took_ms: at.since(self.order_record.asked_at),
        }
    }

    /// Result after the job has ended. Reports from before the end count.
    async fn final_outcome(&mut self, of: &mut PreparedCheckpoints) -> CheckpointOutcome {
        while let Ok(said) = of.reports.try_recv() {
            if let (StepResult::End(outcome), reply) = self.process_report(of, said).await {
                answer(reply, Ok(None));
                return outcome;
            }
        }
        let is_whole = self.is_request_sent
            && match &of.channel {
                Channel::Memory(shared) => shared
                    .read()
                    .is_ok_and(|stored| stored.completed == self.number()),
                // In this mode, all reports were in the queue.
                Channel::Callback { .. } => false,
                Channel::Signal { .. } => match self.part.clone() {
                    Some(part) => {
                        let look = of.user_files.run(move || part.read_state());
                        let seen = timeout(FINAL_READ_TIMEOUT, look).await;
                        matches!(seen, Ok(Some(Ok(PartState::Complete))))
                    }
                    None => false,
                },
            };
        match is_whole {
            true => self.written_outcome(of, None).await,
            false => job_ended(self.clock.now()),
        }
    }
}
