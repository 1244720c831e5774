//! Job checkpoints: started when their benefit exceeds their cost, and followed until every rank has written its part
//! or the deadline passes.
//!
//! Agents are called repeatedly; a repeated order returns the current status and changes nothing. The answers of the
//! agents are committed. The quorum decides what follows: the job continues, or frees its nodes.

mod requests;
mod selection;
#[cfg(test)]
mod tests;

use crate::{
    checkpoint_storage::CheckpointStorage,
    core::Core,
    keyed_tasks::{KeyedTasks, PanickedTask},
    tasks::{
        activation::due,
        reconciler::{Reconciler, ReconcilerPace},
    },
};
use lattice_agent_rpc::CheckpointStatus;
use lattice_placement::movement::checkpoint::Policy;
use lattice_quorum_types::{
    AllocationId, Command, UnixMillis,
    checkpoint::{CheckpointFailure, CheckpointOutcome},
    command::{Fence, RankReport},
    progress::RankCheckpoint,
};
use lattice_view::View;
use requests::{Part, RequestOutcome};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Each change of a writing job wakes a pass; repeated requests follow the pauses of [`Part`].
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(1),
    spacing: Duration::from_millis(2),
};
/// Margin after the deadline of a checkpoint, milliseconds. After this margin no answer is awaited: an agent would have
/// reported the timeout before its end.
const MARGIN_MS: u64 = 5_000;

/// Result of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CheckpointsReport {
    /// Agents called.
    pub(crate) asked: usize,
    /// Checkpoints begun because their benefit exceeds their cost.
    pub(crate) begun: usize,
    /// Checkpoints granted more time.
    pub(crate) extended: usize,
    /// Checkpoints given up.
    pub(crate) given_up: usize,
}

/// Reconciler for job checkpoints; see the module.
#[derive(Debug)]
pub struct Checkpoints {
    core: Arc<Core>,
    storage: Arc<CheckpointStorage>,
    parts: BTreeMap<Part, CallState>,
    calls: KeyedTasks<Part, (Part, RequestOutcome)>,
    /// Answers that are not yet handled.
    answers: Vec<(Part, RequestOutcome)>,
    /// When the benefit of new checkpoints was last evaluated.
    evaluated_at: Option<Instant>,
}

/// State of the calls for one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    UnderWay {
        last: Option<RankReportTime>,
    },
    Waits {
        until: Instant,
        pause: Duration,
        last: Option<RankReportTime>,
    },
}

/// Last report of a rank, with the time by the clock of this control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankReportTime {
    at: UnixMillis,
    /// The rank is writing, has deferred the checkpoint, or has ended its part.
    is_progressing: bool,
}

impl Reconciler for Checkpoints {
    const NAME: &'static str = "checkpoints";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        let report = self.reconcile(&fence).await;
        if report != CheckpointsReport::default() {
            tracing::debug!(?report, "checkpoints");
        }
    }

    fn forget(&mut self) {
        self.calls = KeyedTasks::new();
        self.answers.clear();
        self.parts.clear();
        self.evaluated_at = None;
        self.storage.forget();
    }

    /// Answers are handled in the next pass, because this future may be dropped at any moment.
    async fn wakes(&mut self) {
        let next_try = self.next_try();
        tokio::select! {
            Some(joined) = self.calls.join_next() => self.take(joined),
            () = due(next_try) => {}
        }
    }
}

impl Checkpoints {
    /// New [`Checkpoints`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>, storage: Arc<CheckpointStorage>) -> Self {
        Self {
            core,
            storage,
            parts: BTreeMap::new(),
            calls: KeyedTasks::new(),
            answers: Vec::new(),
            evaluated_at: None,
        }
    }

    fn next_try(&self) -> Option<Instant> {
        let waits = self.parts.values().filter_map(|progress| match progress {
            CallState::Waits { until, .. } => Some(*until),
            CallState::UnderWay { .. } => None,
        });
        waits.min()
    }

    /// Calls the agents that are due, and ends checkpoints that have taken too long.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> CheckpointsReport {
        while let Some(joined) = self.calls.try_join_next() {
            self.take(joined);
        }
        for (part, asked) in std::mem::take(&mut self.answers) {
            self.handle_answer(part, asked).await;
        }
        let view = self.core.view();
        let mut report = CheckpointsReport {
            asked: self.ask(&view, fence),
            ..CheckpointsReport::default()
        };
        self.end_late(&view, fence, &mut report).await;
        let period = self.core.timings.checkpoints_every;
        let now = Instant::now();
        if self.evaluated_at.is_none_or(|at| now >= at + period) {
            self.evaluated_at = Some(now);
            for command in selection::due(&self.storage, &view, self.core.now()) {
                report.begun += usize::from(self.propose(fence, command).await);
            }
        }
        report
    }

    /// Starts every call that is due and not under way.
    fn ask(&mut self, view: &Arc<View>, fence: &Fence) -> usize {
        let wanted = requests::wanted(view);
        self.parts.retain(|part, _| wanted.contains_key(part));
        let now = Instant::now();
        let mut begun = 0;
        for (part, order) in wanted {
            let last = match self.parts.get(&part) {
                None => None,
                Some(CallState::Waits { until, last, .. }) if *until <= now => *last,
                Some(_) => continue,
            };
            self.parts
                .insert(part.clone(), CallState::UnderWay { last });
            let (core, view, epoch) = (self.core.clone(), view.clone(), fence.epoch);
            self.calls.spawn(part.clone(), async move {
                let asked = requests::call(&core, &view, &part, order, epoch).await;
                (part, asked)
            });
            begun += 1;
        }
        begun
    }

    /// Keeps an answer for the next pass. If a call panicked, its part is requested again after a pause.
    fn take(&mut self, joined: Result<(Part, RequestOutcome), PanickedTask<Part>>) {
        match joined {
            Ok(answer) => self.answers.push(answer),
            Err(PanickedTask { key: part, error }) => {
                let (id, node) = (part.key.allocation, &part.node);
                tracing::error!(%id, %node, %error, "checkpoint call task panicked; the call is repeated");
                if let Some(state) = self.parts.get_mut(&part) {
                    let (CallState::UnderWay { last } | CallState::Waits { last, .. }) = *state;
                    let pause = requests::SETTLE;
                    let until = Instant::now() + pause;
                    *state = CallState::Waits { until, pause, last };
                }
            }
        }
    }

    /// Handles one answer; a final result is committed at once.
    async fn handle_answer(&mut self, part: Part, asked: RequestOutcome) {
        let Some(CallState::UnderWay { last }) = self.parts.get(&part).copied() else {
            return;
        };
        let at = self.core.now();
        let progress_report = |is_at_it| {
            Some(RankReportTime {
                at,
                is_progressing: is_at_it,
            })
        };
        let (last, pause) = match asked {
            RequestOutcome::Status(CheckpointStatus::Ended(outcome)) => {
                self.record_storage_state(&part, &outcome, at);
                let number = part.number;
                let of = RankCheckpoint { number, outcome };
                self.commit(&part, of).await;
                (progress_report(true), requests::SETTLE)
            }
            RequestOutcome::Status(CheckpointStatus::Asked { .. }) => {
                (last, requests::pause(&part, at))
            }
            RequestOutcome::Status(
                CheckpointStatus::Writing { .. } | CheckpointStatus::Deferred { .. },
            ) => (progress_report(true), requests::pause(&part, at)),
            RequestOutcome::Status(CheckpointStatus::Gone) => (last, requests::SETTLE),
            RequestOutcome::Failed(reason) => {
                self.commit(&part, requests::failed(&part, at, reason))
                    .await;
                (last, requests::SETTLE)
            }
            RequestOutcome::NotReached(error) => {
                tracing::info!(node = %part.node, %error, "agent unreachable; trying again");
                (last, requests::SETTLE)
            }
        };
        let until = Instant::now() + pause;
        self.parts
            .insert(part, CallState::Waits { until, pause, last });
    }

    /// Records whether the checkpoint storage of the user is writable. A checkpoint with another destination gives no
    /// information about that storage.
    fn record_storage_state(&self, part: &Part, outcome: &CheckpointOutcome, now: UnixMillis) {
        let view = self.core.view();
        let Some(held) = view.allocation(part.key.allocation) else {
            return;
        };
        let writing = held.progress.writing.as_deref();
        let writing = writing.filter(|writing| writing.number == part.number);
        let goes_to = self.storage.directory(held);
        let is_there = writing.is_some_and(|writing| goes_to.as_ref() == Some(&writing.directory));
        let Some(place) = self.storage.place(held).filter(|_| is_there) else {
            return;
        };
        let (storage, user) = (&self.storage, &held.user);
        match outcome {
            CheckpointOutcome::Written { .. } => storage.works(&place, user),
            CheckpointOutcome::Failed {
                cause: CheckpointFailure::Storage,
                reason,
                ..
            } => storage.failed(&place, user, now, reason),
            CheckpointOutcome::Failed { .. } => {}
        }
    }

    /// Commits the result of a rank's part. If the quorum does not accept it, the part is requested again while it is
    /// wanted.
    async fn commit(&self, part: &Part, of: RankCheckpoint) {
        let command = Command::Report {
            id: part.key.allocation,
            attempt: part.key.attempt,
            node: part.node.clone(),
            report: crate::sanitize::shortened_report(RankReport::Checkpoint { of }),
        };
        if let Err(error) = self.core.propose_as_service(None, command).await {
            let (id, node) = (part.key.allocation, &part.node);
            tracing::warn!(%id, %node, %error, "checkpoint result not committed yet");
        }
    }

    /// Extends each late checkpoint once if its ranks are slow but answer; gives up the others.
    async fn end_late(&mut self, view: &View, fence: &Fence, report: &mut CheckpointsReport) {
        let now = self.core.now();
        let savers = view
            .checkpointable
            .iter()
            .filter_map(|id| view.allocation(*id));
        let late: Vec<(AllocationId, u32, bool)> = savers
            .filter_map(|held| {
                let writing = held.progress.writing.as_ref()?;
                let is_late = now >= writing.until.after(MARGIN_MS);
                is_late.then_some((held.id, writing.number, writing.extended))
            })
            .collect();
        for (id, number, extended) in late {
            let policy = policy_of(view, id);
            let may_go_on = !extended && self.is_being_written(id, number, now, &policy);
            let command = match may_go_on {
                true => Command::ExtendCheckpoint {
                    id,
                    number,
                    by_ms: extension_ms(&policy, view, id),
                },
                false => Command::GiveUpCheckpoint { id, number },
            };
            if self.propose(fence, command).await {
                match may_go_on {
                    true => report.extended += 1,
                    false => report.given_up += 1,
                }
            }
        }
    }

    /// Whether every requested rank has recently reported that it is writing or has deferred the checkpoint.
    fn is_being_written(
        &self,
        id: AllocationId,
        number: u32,
        now: UnixMillis,
        policy: &Policy,
    ) -> bool {
        let of_it = |part: &&Part| part.key.allocation == id && part.number == number;
        let mut parts = self.parts.keys().filter(of_it).peekable();
        parts.peek().is_some()
            && parts.all(|part| {
                let (CallState::UnderWay { last } | CallState::Waits { last, .. }) =
                    self.parts[part];
                let answers = |at| policy.deadlines(false).is_answering(at, now);
                last.is_some_and(|last| last.is_progressing && answers(last.at))
            })
    }

    async fn propose(&self, fence: &Fence, command: Command) -> bool {
        match self
            .core
            .propose_as_service(Some(fence.clone()), command)
            .await
        {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(%error, "checkpoint request refused; evaluating again");
                false
            }
        }
    }
}

fn policy_of(view: &View, id: AllocationId) -> Policy {
    let held = view.allocation(id);
    held.map_or_else(Policy::default, |held| {
        view.movement_of(&held.spec.vcluster).checkpoint
    })
}

/// Extra time for a slow or deferred checkpoint while its ranks still answer, milliseconds.
fn extension_ms(policy: &Policy, view: &View, id: AllocationId) -> u64 {
    let sensitive = view.allocation(id).is_some_and(|held| held.spec.sensitive);
    let deadlines = policy.deadlines(sensitive);
    deadlines
        .longest_ms()
        .saturating_sub(deadlines.timeout_ms)
        .max(1)
}
