//! Dispatch reconciler: launches every assigned rank, and ends every rank of a stopping allocation and every rank to be
//! released.
//!
//! Agent calls are repeated until the quorum shows their effect. Agents answer a repeat with the existing result, so
//! repeats are harmless.
//!
//! When the walltime changes after the assignment of an attempt, each running rank receives the new value until its
//! agent has accepted it. Only this dispatcher remembers the acceptance. The quorum holds the walltime and the number
//! of its changes, so another dispatcher sends it once more, under the same number.

mod call;
mod refused;
mod workload;

use crate::{
    checkpoint_storage::CheckpointStorage,
    core::Core,
    keyed_tasks::{KeyedTasks, PanickedTask},
    sanitize,
    tasks::{
        activation::due,
        lease::Lease,
        reconciler::{Reconciler, ReconcilerPace},
    },
};
use call::{CallResult, call_agent};
use lattice_agent_rpc::{AttemptKey, LaunchRefused};
use lattice_mesh::backoff;
use lattice_quorum_types::{
    Allocation, AllocationState, NodeId, Revision,
    allocation::{Rank, RankPhase},
    command::Fence,
};
use lattice_view::View;
use refused::{Boots, RefusedLaunch};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Semaphore, time::Instant};

/// Many events arrive together when ranks report; one pass handles them.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(1),
    spacing: Duration::from_millis(2),
};
/// Time after which an answered call is repeated if the quorum shows no effect.
const SETTLE: Duration = Duration::from_secs(5);
/// First wait after a failed call; doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// Longest wait after a failed call.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Maximum number of concurrent calls. Each launch carries the names of all nodes of its allocation.
const MAX_CALLS: usize = 256;

/// Call that a rank needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NeededCall {
    Launch,
    Terminate,
    /// Send a changed walltime, counted from the start of the rank, with the change number of the attempt.
    Walltime {
        number: u32,
        walltime_ms: u64,
    },
}

/// A rank on its node, and the call it needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    key: AttemptKey,
    rank: u32,
    node: NodeId,
    need: NeededCall,
}

/// State of the calls for one target.
#[derive(Debug, Clone, Copy)]
struct Calls {
    progress: CallState,
    failures: u32,
    /// For a launch: an earlier launch may have started a process.
    may_run: bool,
}

#[derive(Debug, Clone, Copy)]
enum CallState {
    UnderWay,
    Waits {
        until: Instant,
    },
    /// The agent has accepted the walltime, or the rank has ended; no further call is needed.
    Done,
}

/// Start of the period in which this dispatcher is the only one.
#[derive(Debug, Clone, Copy)]
struct SoleSince {
    /// Epoch of the lease under which this dispatcher acts.
    epoch: u64,
    /// No other dispatcher has launched attempts assigned after this revision, and this one has lost no state about
    /// them. `None` if that is unknown.
    since: Option<Revision>,
}

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DispatchReport {
    /// Ranks that need a call.
    pub(crate) wanted: usize,
    /// Calls started in this round.
    pub(crate) begun: usize,
}

type Joined = Result<(Target, CallResult, bool), PanickedTask<Target>>;

/// Dispatch reconciler; see the module.
#[derive(Debug)]
pub struct Dispatch {
    core: Arc<Core>,
    lease: Arc<Lease>,
    checkpoints: Arc<CheckpointStorage>,
    sole_since: Option<SoleSince>,
    progress: BTreeMap<Target, Calls>,
    calls: KeyedTasks<Target, (Target, CallResult, bool)>,
    call_slots: Arc<Semaphore>,
    boots: Arc<Boots>,
}

impl Reconciler for Dispatch {
    const NAME: &'static str = "dispatch";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        self.reconcile(&fence);
    }

    fn forget(&mut self) {
        // Calls under way are dropped as well: otherwise two calls for one rank could run independently.
        self.calls = KeyedTasks::new();
        self.progress.clear();
        self.sole_since = None;
    }

    async fn wakes(&mut self) {
        loop {
            let next_try = self.next_try();
            tokio::select! {
                Some(joined) = self.calls.join_next() => self.joined(joined),
                () = due(next_try) => return,
            }
        }
    }
}

impl Dispatch {
    /// New [`Dispatch`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>, lease: Arc<Lease>, checkpoints: Arc<CheckpointStorage>) -> Self {
        Self {
            core,
            lease,
            checkpoints,
            sole_since: None,
            progress: BTreeMap::new(),
            calls: KeyedTasks::new(),
            call_slots: Arc::new(Semaphore::new(MAX_CALLS)),
            boots: Arc::default(),
        }
    }

    /// Runs one complete round, including calls left from the previous one.
    #[cfg(test)]
    pub(crate) async fn round(&mut self, fence: &Fence) -> DispatchReport {
        for calls in self.progress.values_mut() {
            if let CallState::Waits { until } = &mut calls.progress {
                *until = Instant::now();
            }
        }
        let report = self.reconcile(fence);
        while let Some(joined) = self.calls.join_next().await {
            self.joined(joined);
        }
        report
    }

    fn joined(&mut self, joined: Joined) {
        match joined {
            Ok((target, called, may_run)) => self.note(target, called, may_run),
            Err(PanickedTask { key: target, error }) => {
                let (node, allocation) = (&target.node, target.key.allocation);
                tracing::error!(%node, %allocation, %error, "launch call task panicked; the call is repeated");
                self.repeat_after_panic(&target);
            }
        }
    }

    /// Schedules another call after one with an unknown outcome: that call may have started a process.
    fn repeat_after_panic(&mut self, target: &Target) {
        if let Some(calls) = self.progress.get_mut(target) {
            let until = Instant::now() + MAX_BACKOFF;
            *calls = Calls {
                progress: CallState::Waits { until },
                failures: calls.failures.saturating_add(1),
                may_run: true,
            };
        }
    }

    fn next_try(&self) -> Option<Instant> {
        let waits = self
            .progress
            .values()
            .filter_map(|calls| match calls.progress {
                CallState::Waits { until } => Some(until),
                CallState::UnderWay | CallState::Done => None,
            });
        waits.min()
    }

    /// Starts every call that is needed and not under way.
    pub(crate) fn reconcile(&mut self, fence: &Fence) -> DispatchReport {
        let view = self.core.view();
        self.note_lease(fence.epoch, view.revision);
        let wanted = wanted(&view);
        self.progress.retain(|target, _| wanted.contains(target));
        let mut report = DispatchReport {
            wanted: wanted.len(),
            begun: 0,
        };
        let now = Instant::now();
        for target in wanted {
            let Some(allocation) = view.allocation(target.key.allocation) else {
                continue;
            };
            let calls = match self.progress.get(&target) {
                Some(calls) => *calls,
                None => Calls {
                    progress: CallState::Waits { until: now },
                    failures: 0,
                    may_run: !is_new(self.sole_since, allocation),
                },
            };
            match calls.progress {
                CallState::UnderWay | CallState::Done => continue,
                CallState::Waits { until } if until > now => continue,
                CallState::Waits { .. } => {}
            }
            self.begin(
                target.clone(),
                allocation.clone(),
                fence.clone(),
                calls.may_run,
            );
            let progress = CallState::UnderWay;
            self.progress.insert(target, Calls { progress, ..calls });
            report.begun += 1;
        }
        report
    }

    /// On a new epoch, treats every assignment so far as possibly launched by another dispatcher.
    fn note_lease(&mut self, epoch: u64, seen: Revision) {
        if self.sole_since.is_some_and(|alone| alone.epoch == epoch) {
            return;
        }
        self.forget();
        let granted = self.lease.granted_at(epoch);
        let since = granted.map(|granted| granted.max(seen));
        self.sole_since = Some(SoleSince { epoch, since });
    }

    fn begin(&mut self, target: Target, allocation: Arc<Allocation>, fence: Fence, launched: bool) {
        let (core, lease, places) = (
            self.core.clone(),
            self.lease.clone(),
            self.call_slots.clone(),
        );
        let boots = self.boots.clone();
        let checkpoint = workload::checkpoint(&self.checkpoints, &allocation);
        self.calls.spawn(target.clone(), async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await;
            let mut may_run = launched;
            let what = (&*allocation, checkpoint);
            let called = call_agent(&core, what, &target, fence.epoch, &mut may_run).await;
            if let (CallResult::Refused(refused), NeededCall::Launch) = (&called, target.need)
                && !matches!(refused, LaunchRefused::StaleEpoch { .. })
            {
                let what = RefusedLaunch {
                    target: &target,
                    refused,
                    never_started: !may_run,
                };
                refused::handle_refusal(&core, &lease, fence, &boots, what).await;
            }
            (target, called, may_run)
        });
    }

    /// Schedules the next call for a target.
    fn note(&mut self, target: Target, called: CallResult, may_run: bool) {
        let Some(Calls {
            progress: CallState::UnderWay,
            failures,
            may_run: known,
        }) = self.progress.get(&target).copied()
        else {
            return;
        };
        let is_walltime = matches!(target.need, NeededCall::Walltime { .. });
        let (pause, failures) = match called {
            CallResult::Answered if is_walltime => return self.mark_done(target),
            CallResult::Answered => (SETTLE, 0),
            CallResult::Failed(error) => {
                if failures == 0 {
                    let (node, allocation) = (&target.node, target.key.allocation);
                    let need = target.need;
                    tracing::info!(%node, %allocation, ?need, %error, "agent unreachable; trying again");
                }
                let failures = failures.saturating_add(1);
                (backoff(MIN_BACKOFF, MAX_BACKOFF, failures), failures)
            }
            CallResult::Refused(LaunchRefused::StaleEpoch { given, current }) => {
                let node = &target.node;
                tracing::warn!(given, current, %node, "agent reports another dispatcher");
                self.lease.report_doubt(given);
                (MAX_BACKOFF, failures)
            }
            // [`refused::handle_refusal`] has handled the refusal; if that failed, the launch is repeated.
            CallResult::Refused(_) if target.need == NeededCall::Launch => (SETTLE, 0),
            CallResult::Refused(refused) => {
                let refused = sanitize::shortened(refused.to_string());
                let (node, need) = (&target.node, target.need);
                tracing::warn!(%node, ?need, refused, "agent cannot carry out the request; trying again");
                let failures = failures.saturating_add(1);
                (backoff(MIN_BACKOFF, MAX_BACKOFF, failures), failures)
            }
        };
        let until = Instant::now() + pause;
        let calls = Calls {
            progress: CallState::Waits { until },
            failures,
            may_run: known || may_run,
        };
        self.progress.insert(target, calls);
    }

    fn mark_done(&mut self, target: Target) {
        if let Some(calls) = self.progress.get_mut(&target) {
            calls.progress = CallState::Done;
        }
    }
}

/// Whether no other dispatcher can have launched a rank of this allocation. While all its ranks are only assigned, its
/// last change was the assignment.
fn is_new(alone: Option<SoleSince>, allocation: &Allocation) -> bool {
    let mut ranks = allocation.ranks.iter();
    allocation.state == AllocationState::Starting
        && ranks.all(|rank| rank.phase == RankPhase::Assigned)
        && alone
            .and_then(|alone| alone.since)
            .is_some_and(|since| allocation.revision > since)
}

/// Returns every rank that needs a call according to the quorum.
fn wanted(view: &View) -> BTreeSet<Target> {
    let of_one = |allocation: &Arc<Allocation>| {
        let key = AttemptKey {
            allocation: allocation.id,
            attempt: allocation.attempt,
        };
        let ranks = (0..).zip(&allocation.ranks);
        let target = |(number, rank): (u32, &Rank)| {
            Some(Target {
                key,
                rank: number,
                node: rank.node.clone(),
                need: needs(allocation, &rank.phase)?,
            })
        };
        ranks.filter_map(target).collect::<Vec<_>>()
    };
    let moving = view.moving.iter().filter_map(|id| view.allocation(*id));
    moving.flat_map(of_one).collect()
}

/// Returns the call that a rank needs. A running allocation launches ranks when it grows and ends ranks when it
/// shrinks.
fn needs(allocation: &Allocation, phase: &RankPhase) -> Option<NeededCall> {
    let state = allocation.state;
    let is_stopping = state == AllocationState::Stopping;
    match phase {
        _ if !state.holds() => None,
        RankPhase::Assigned if !is_stopping => Some(NeededCall::Launch),
        RankPhase::Leaving { .. } => Some(NeededCall::Terminate),
        RankPhase::Assigned | RankPhase::Running { .. } if is_stopping => {
            Some(NeededCall::Terminate)
        }
        RankPhase::Running { .. } => walltime(allocation),
        _ => None,
    }
}

/// Returns the walltime change that the launch of a rank may not have carried.
fn walltime(allocation: &Allocation) -> Option<NeededCall> {
    let number = allocation.progress.walltime_changes;
    let walltime_ms = allocation.walltime_left_ms().filter(|_| number > 0)?;
    Some(NeededCall::Walltime {
        number,
        walltime_ms,
    })
}
