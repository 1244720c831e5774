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
use super::{Channel, Prepared};
use crate::attempt::{AttemptDir, OrderRecord, job_ended};
use crate::supervisor::supervisor_log::complain;
use lattice_quorum_types::checkpoint::{CheckpointFailure, CheckpointOutcome};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Longest wait for a last read of the job's answers, which delays the end of the job.
const LAST_LOOK_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for the size of a checkpoint.
const COUNT_WITHIN: Duration = Duration::from_secs(6);

/// Processes checkpoint requests until the job has ended.
pub(super) async fn serve(
    mut of: Prepared,
    dir: AttemptDir,
    look: Arc<Notify>,
    ended: CancellationToken,
) {
    let mut done = 0;
    loop {
        while let Some(order) = next(&dir, done) {
            done = order.order.number;
            CheckpointTask::new(&of, &dir, order)
                .run(&mut of, &ended)
                .await;
            if let Channel::Callback { asked, .. } = &of.channel {
                asked.send_replace(None);
            }
        }
        tokio::select! {
            () = ended.cancelled() => return,
            () = look.notified() => {}
            Some(said) = of.said.recv() => {
                let number = said.number;
                let why = format!("number: {number} is not asked for");
                answer(said.reply, Err(ReportRejection::Over(why)));
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
            complain(format_args!(
                "which checkpoint is wanted cannot be read: {error}"
            ));
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
    of: OrderRecord,
    part: Option<Part>,
    timing: Timing,
    clock: MonotonicTime,
    hindered: Option<NoAnswerReason>,
    is_told: bool,
    noting: CheckpointRecorder,
}

/// Result of a step.
enum StepResult {
    Wait,
    End(CheckpointOutcome),
}

impl CheckpointTask {
    fn new(prepared: &Prepared, dir: &AttemptDir, of: OrderRecord) -> Self {
        let order = &of.order;
        let part = is_path(&order.directory);
        Self {
            part: part.then(|| Part::new(order, prepared.rank, prepared.uid)),
            timing: Timing::new(of.clone()),
            clock: MonotonicTime::of(&of),
            noting: CheckpointRecorder::new(dir, order.number),
            of,
            hindered: None,
            is_told: false,
        }
    }

    fn number(&self) -> u32 {
        self.of.order.number
    }

    /// Runs a checkpoint from its request to its end.
    async fn run(mut self, of: &mut Prepared, ended: &CancellationToken) {
        if let Err(error) = self.of.order.check(of.plan.setup.mode) {
            let outcome = self.failed(CheckpointFailure::Storage, error.to_string());
            return self.noting.end(outcome, ended).await;
        }
        let _asked = self.ask(of);
        loop {
            self.noting.note(self.timing.status(), self.clock.now());
            let due_at = self.clock.instant(self.timing.due_at());
            let next = tokio::select! {
                () = ended.cancelled() => {
                    let outcome = self.final_outcome(of).await;
                    return self.noting.end(outcome, ended).await;
                }
                Some(said) = of.said.recv() => {
                    match self.hear(of, said).await {
                        (StepResult::End(outcome), reply) => {
                            self.noting.end(outcome, ended).await;
                            // The job gets its reply only after the result is on disk.
                            return answer(reply, Ok(None));
                        }
                        (next, _) => next,
                    }
                }
                () = sleep_until(due_at) => self.wake(of),
            };
            if let StepResult::End(outcome) = next {
                return self.noting.end(outcome, ended).await;
            }
        }
    }

    /// Starts to send the request, in the job's mode.
    fn ask(&self, of: &Prepared) -> RequestTask {
        let order = &self.of.order;
        let asking = CheckpointRequestParams {
            teller: ReportSender {
                number: order.number,
                to: of.to.clone(),
            },
            eyes: of.eyes.clone(),
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
                        asking.by_signal(first, request).await;
                    }
                })
            }
            Channel::Memory(shared) => tokio::spawn(asking.by_memory(shared.clone(), folder)),
            Channel::Callback { asked, .. } => {
                tokio::spawn(asking.by_callback(asked.clone(), self.request(of)))
            }
        })
    }

    /// Request message in callback mode.
    fn request(&self, of: &Prepared) -> v1::WriteRequest {
        let (deferrals_left, deferral_left_ms) = self.timing.deferrals_left();
        v1::WriteRequest {
            number: self.number(),
            folder: self.of.order.folder(of.rank),
            timeout_ms: self.timing.fails_at().since(self.clock.now()),
            deferrals_left,
            deferral_left_ms,
        }
    }

    /// Processes one report. Returns the next step, and the reply channel if the reply is still due.
    async fn hear(
        &mut self,
        of: &Prepared,
        said: CheckpointMessage,
    ) -> (StepResult, Option<tokio::sync::oneshot::Sender<Answer>>) {
        let CheckpointMessage {
            number,
            word,
            reply,
            place: _place,
        } = said;
        if number != self.number() {
            let wanted = self.number();
            let why = format!("number: {number} is over; {wanted} is asked for");
            answer(reply, Err(ReportRejection::Over(why)));
            return (StepResult::Wait, None);
        }
        if reply.is_some() && !self.is_told {
            let why = format!("number: {number} is not asked for yet");
            answer(reply, Err(ReportRejection::Over(why)));
            return (StepResult::Wait, None);
        }
        let now = self.clock.now();
        let end = match word {
            ReportContent::Told => {
                self.is_told = true;
                None
            }
            ReportContent::Alive => {
                self.timing.hear(now);
                None
            }
            ReportContent::PutOff { for_ms } => {
                let until = self.timing.put_off(for_ms, now);
                answer(reply, until.map(Some).map_err(ReportRejection::Invalid));
                return (StepResult::Wait, None);
            }
            ReportContent::Hindered(hindered) => {
                self.hindered = hindered;
                None
            }
            ReportContent::Whole { bytes } => Some(self.written(of, bytes).await),
            ReportContent::Declined(reason) => {
                Some(self.failed(CheckpointFailure::Declined, reason))
            }
            ReportContent::NoPlace(reason) => Some(self.failed(CheckpointFailure::Storage, reason)),
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
    fn wake(&mut self, of: &Prepared) -> StepResult {
        match self.timing.due(self.clock.now()) {
            DueAction::Nothing | DueAction::MoreTime => StepResult::Wait,
            DueAction::AskAgain => {
                if let Channel::Callback { asked, .. } = &of.channel {
                    asked.send_replace(Some(self.request(of)));
                }
                StepResult::Wait
            }
            DueAction::GiveUp(cause) => StepResult::End(self.given_up(cause)),
        }
    }

    fn given_up(&self, cause: CheckpointFailure) -> CheckpointOutcome {
        let now = self.clock.now();
        let seconds = |ms: u64| format!("{}.{:01} s", ms / 1000, ms % 1000 / 100);
        let within = seconds(now.since(self.of.asked_at));
        let mut reason = match self.timing.heard_at() {
            Some(at) => format!(
                "it was not complete within {within}; the last report came {} before",
                seconds(now.since(at))
            ),
            None => format!("no report within {within}"),
        };
        let mut cause = cause;
        if let Some(hindered) = &self.hindered {
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

    async fn written(&self, of: &Prepared, bytes: Option<u64>) -> CheckpointOutcome {
        let at = self.clock.now();
        let bytes = match (bytes, self.part.clone()) {
            (None, Some(part)) => {
                let count = of.eyes.see(move || part.bytes());
                timeout(COUNT_WITHIN, count).await.ok().flatten().flatten()
            }
            (said, _) => said,
        };
        CheckpointOutcome::Written {
            at,
            bytes,
            took_ms: at.since(self.of.asked_at),
        }
    }

    /// Result after the job has ended. Reports from before the end count.
    async fn final_outcome(&mut self, of: &mut Prepared) -> CheckpointOutcome {
        while let Ok(said) = of.said.try_recv() {
            if let (StepResult::End(outcome), reply) = self.hear(of, said).await {
                answer(reply, Ok(None));
                return outcome;
            }
        }
        let is_whole = self.is_told
            && match &of.channel {
                Channel::Memory(shared) => shared
                    .read()
                    .is_ok_and(|stored| stored.completed == self.number()),
                // In this mode, all reports were in the queue.
                Channel::Callback { .. } => false,
                Channel::Signal { .. } => match self.part.clone() {
                    Some(part) => {
                        let look = of.eyes.see(move || part.look());
                        let seen = timeout(LAST_LOOK_WITHIN, look).await;
                        matches!(seen, Ok(Some(Ok(PartState::Complete))))
                    }
                    None => false,
                },
            };
        match is_whole {
            true => self.written(of, None).await,
            false => job_ended(self.clock.now()),
        }
    }
}
