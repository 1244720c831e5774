//! Dispatch: every rank of a Starting allocation is launched, every rank of a Stopping one is
//! ended, each by calls to its agent that are repeated until the quorum shows the effect. Agents
//! answer repeats with the existing outcome, so repeating is free of harm.

use crate::{
    core::Core,
    error::{AgentError, ProposeError},
    tasks::{activation::Activation, faults, lease::Lease, reboots},
    view::View,
    words,
};
use lattice_quorum_types::{
    Allocation, AllocationState, Command, NodeId, Refusal,
    allocation::{RankExit, RankPhase, StopCause},
    command::Fence,
    wire::{AttemptKey, AttemptStatus, Launch, LaunchRefused, Terminate},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(1);
/// Many events come together when ranks report; they are looked at together.
const SPACING: Duration = Duration::from_millis(2);
/// How long an agent may take to record an attempt and answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// An answered call is repeated when the quorum still shows no effect of it after this long.
const SETTLE: Duration = Duration::from_secs(5);
/// First wait after a failed call; doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// Longest wait after a failed call.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Calls at a time. Each carries the names of all nodes of its allocation.
const MAX_CALLS: usize = 256;

/// What a rank needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Launch,
    Terminate,
}

/// One rank on its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    key: AttemptKey,
    rank: u32,
    node: NodeId,
    need: Need,
}

/// Where the calls for one target stand.
#[derive(Debug, Clone, Copy)]
enum Progress {
    UnderWay { failures: u32 },
    Waits { until: Instant, failures: u32 },
}

/// How a call ended.
enum Called {
    Answered,
    Failed(AgentError),
    Refused(LaunchRefused),
}

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DispatchReport {
    /// Ranks that need a call.
    pub(crate) wanted: usize,
    /// Calls begun now.
    pub(crate) begun: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Dispatch {
    core: Arc<Core>,
    lease: Arc<Lease>,
    progress: BTreeMap<Target, Progress>,
    calls: JoinSet<(Target, Called)>,
    places: Arc<Semaphore>,
}

impl Dispatch {
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>) -> Self {
        Self {
            core,
            lease,
            progress: BTreeMap::new(),
            calls: JoinSet::new(),
            places: Arc::new(Semaphore::new(MAX_CALLS)),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING).with_lease(&self.lease);
        loop {
            let next_try = self.next_try();
            tokio::select! {
                () = activation.next() => {}
                Some(joined) = self.calls.join_next() => {
                    match joined {
                        Ok((target, called)) => self.note(target, called),
                        Err(error) => {
                            tracing::error!(%error, "a call broke down; all are made again");
                            self.progress.clear();
                        }
                    }
                    continue;
                }
                () = due(next_try) => {}
            }
            match self.lease.fence() {
                Some(fence) => {
                    self.reconcile(&fence);
                }
                None => self.progress.clear(),
            }
        }
    }

    fn next_try(&self) -> Option<Instant> {
        let waits = self
            .progress
            .values()
            .filter_map(|progress| match progress {
                Progress::Waits { until, .. } => Some(*until),
                Progress::UnderWay { .. } => None,
            });
        waits.min()
    }

    /// Begins every call that is needed and not under way.
    pub(crate) fn reconcile(&mut self, fence: &Fence) -> DispatchReport {
        let view = self.core.view();
        let wanted = wanted(&view);
        self.progress.retain(|target, _| wanted.contains(target));
        let mut report = DispatchReport {
            wanted: wanted.len(),
            begun: 0,
        };
        let now = Instant::now();
        for target in wanted {
            let failures = match self.progress.get(&target) {
                Some(Progress::UnderWay { .. }) => continue,
                Some(Progress::Waits { until, .. }) if *until > now => continue,
                Some(Progress::Waits { failures, .. }) => *failures,
                None => 0,
            };
            let Some(allocation) = view.allocation(target.key.allocation) else {
                continue;
            };
            let (core, allocation) = (self.core.clone(), allocation.clone());
            let (lease, fence, call) = (self.lease.clone(), fence.clone(), target.clone());
            let places = self.places.clone();
            self.calls.spawn(async move {
                // It is never closed.
                let _place = places.acquire_owned().await;
                let called = call_agent(&core, &allocation, &call, fence.epoch).await;
                if let (Called::Refused(refused), Need::Launch) = (&called, call.need)
                    && !matches!(refused, LaunchRefused::StaleEpoch { .. })
                {
                    stop(&core, &lease, fence, &call, refused).await;
                }
                (call, called)
            });
            self.progress
                .insert(target, Progress::UnderWay { failures });
            report.begun += 1;
        }
        report
    }

    /// Decides when a target is looked at again.
    fn note(&mut self, target: Target, called: Called) {
        let Some(Progress::UnderWay { failures }) = self.progress.get(&target).copied() else {
            return;
        };
        let (pause, failures) = match called {
            Called::Answered => (SETTLE, 0),
            Called::Failed(error) => {
                if failures == 0 {
                    let (node, allocation) = (&target.node, target.key.allocation);
                    let need = target.need;
                    tracing::info!(%node, %allocation, ?need, %error, "agent not reached; trying again");
                }
                (backoff(failures), failures.saturating_add(1))
            }
            Called::Refused(LaunchRefused::StaleEpoch { given, current }) => {
                let node = &target.node;
                tracing::warn!(given, current, %node, "an agent says that another dispatcher has spoken");
                self.lease.is_doubted(given);
                (MAX_BACKOFF, failures)
            }
            // Its allocation is being stopped.
            Called::Refused(_) if target.need == Need::Launch => (SETTLE, 0),
            Called::Refused(refused) => {
                let refused = words::shortened(refused.to_string());
                tracing::warn!(node = %target.node, refused, "agent cannot end a rank; trying again");
                (backoff(failures), failures.saturating_add(1))
            }
        };
        let until = Instant::now() + pause;
        self.progress
            .insert(target, Progress::Waits { until, failures });
    }
}

/// An agent will not start a rank. Where its node cannot run anything, the node is kept out and the
/// allocation put back; else the allocation cannot run as it is. When this fails the launch is tried
/// again, and refused again.
async fn stop(core: &Core, lease: &Lease, fence: Fence, target: &Target, refused: &LaunchRefused) {
    let id = target.key.allocation;
    if let LaunchRefused::OtherBoot { expected, current } = refused
        && words::is_boot_id(current)
    {
        let boots = (expected.as_str(), current.as_str());
        let reported = reboots::report_refused(core, &fence, &target.node, target.key, boots).await;
        if let Err(error) = reported {
            tracing::warn!(%id, %error, "a lost rank is not reported yet; the launch is tried again");
        }
        return;
    }
    let cause = if is_fault_of_node(&core.view(), &target.node, refused) {
        let reason = words::shortened(refused.to_string());
        // First, or the allocation would get the same node again.
        if let Err(error) = faults::keep_out(core, fence.clone(), &target.node, &reason).await {
            tracing::warn!(node = %target.node, %error, "not kept out yet; the launch is tried again");
            return;
        }
        StopCause::NodeFault {
            node: target.node.clone(),
            reason,
        }
    } else {
        StopCause::RankFailed {
            rank: target.rank,
            exit: RankExit::SpawnFailed {
                reason: words::shortened(format!("node {}: {refused}", target.node)),
            },
        }
    };
    let command = Command::Stop { id, cause };
    match core.propose_as_service(Some(fence), command).await {
        Ok(_) => {}
        Err(ProposeError::Refused(Refusal::StaleEpoch { given, .. })) => lease.is_over(given),
        // It stopped for another reason in the meantime.
        Err(ProposeError::Refused(refusal)) => tracing::debug!(%id, %refusal, "not stopped"),
        Err(error) => tracing::warn!(%id, %error, "not stopped yet; the launch is tried again"),
    }
}

/// Whether the agent would refuse any other work as well.
fn is_fault_of_node(view: &View, node: &NodeId, refused: &LaunchRefused) -> bool {
    match refused {
        LaunchRefused::JournalFailed { .. } => true,
        LaunchRefused::UserNotAllowed { .. } => {
            view.node(node).is_some_and(|node| node.takes_no_work())
        }
        // It is only asked where what it names as its boot is none.
        LaunchRefused::OtherBoot { .. } => true,
        LaunchRefused::StaleEpoch { .. } => false,
    }
}

/// Every rank that needs a call, by what the quorum shows.
fn wanted(view: &View) -> BTreeSet<Target> {
    let of_one = |allocation: &Arc<Allocation>| {
        let need = match allocation.state {
            AllocationState::Starting => Need::Launch,
            AllocationState::Stopping => Need::Terminate,
            _ => return Vec::new(),
        };
        let key = AttemptKey {
            allocation: allocation.id,
            attempt: allocation.attempt,
        };
        let needs_it = |phase: &RankPhase| match need {
            Need::Launch => *phase == RankPhase::Assigned,
            Need::Terminate => !matches!(phase, RankPhase::Ended { .. }),
        };
        let ranks = (0..).zip(&allocation.ranks);
        let needy = ranks.filter(|(_, rank)| needs_it(&rank.phase));
        let target = |(number, rank): (u32, &lattice_quorum_types::allocation::Rank)| Target {
            key,
            rank: number,
            node: rank.node.clone(),
            need,
        };
        needy.map(target).collect()
    };
    let moving = view.moving.iter().filter_map(|id| view.allocation(*id));
    moving.flat_map(of_one).collect()
}

/// Calls until there is an answer or a failure; begins anew where the agent is now when it turns up
/// at another address meanwhile.
async fn call_agent(core: &Core, allocation: &Allocation, target: &Target, epoch: u64) -> Called {
    let mut inputs = core.inputs();
    loop {
        let view = core.view();
        let called_at = addr(&view, &target.node);
        let moved = async {
            while inputs.changed().await.is_ok() {
                if addr(&core.view(), &target.node) != called_at {
                    return;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            called = call_at(core, &view, allocation, target, epoch) => return called,
            () = moved => {}
        }
    }
}

fn addr(view: &View, node: &NodeId) -> Option<SocketAddr> {
    view.node(node)?.addr()
}

async fn call_at(
    core: &Core,
    view: &View,
    allocation: &Allocation,
    target: &Target,
    epoch: u64,
) -> Called {
    let (agents, node) = (&core.agents, &target.node);
    let answered: Result<Result<AttemptStatus, LaunchRefused>, AgentError> = match target.need {
        Need::Launch => {
            let assigned = allocation.ranks.get(target.rank as usize);
            let request = Launch {
                key: target.key,
                epoch,
                revision: allocation.revision,
                user: allocation.user.clone(),
                project: allocation.spec.project.to_string(),
                nodes: allocation.nodes().cloned().collect(),
                rank: target.rank,
                workload: allocation.spec.workload.clone(),
                walltime_ms: allocation.spec.walltime_ms,
                boot: assigned.and_then(|rank| rank.boot.clone()),
                sensitive: allocation.spec.sensitive,
            };
            agents.call(view, node, &request, CALL_TIMEOUT).await
        }
        Need::Terminate => {
            let request = Terminate {
                key: target.key,
                epoch,
            };
            agents.call(view, node, &request, CALL_TIMEOUT).await
        }
    };
    match answered {
        Ok(Ok(_)) => Called::Answered,
        Ok(Err(refused)) => Called::Refused(refused),
        Err(error) => Called::Failed(error),
    }
}

fn backoff(failures: u32) -> Duration {
    MIN_BACKOFF
        .saturating_mul(2_u32.saturating_pow(failures.min(8)))
        .min(MAX_BACKOFF)
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
