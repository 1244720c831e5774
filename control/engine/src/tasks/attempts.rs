//! Attempt reconciler: compares the attempts that agents run with those that the quorum has on record.
//!
//! *Lost*: a rank that is running according to the quorum but that its agent does not have. No agent would ever report
//! its end, so its allocation is stopped and the dispatcher ends every rank of it. The node is released only after the
//! agent has searched for the processes of that attempt and answered.
//!
//! *Orphan*: an attempt that an agent runs although its node is no longer held for that attempt. The attempt is ended.
//! Until it is gone, a drain reason of the dispatcher keeps the node out of service. If the
//! allocation was submitted after the backup from which the cluster was restored, the audit also has an entry: such
//! allocations have no record.
//!
//! Silence of an agent proves nothing: its node keeps its allocations.

use crate::{
    core::Core,
    error::ProposeError,
    keyed_tasks::{KeyedTasks, PanickedTask},
    sanitize,
    tasks::{
        faults, orphans,
        reconciler::{Reconciler, ReconcilerPace},
    },
};
use futures::future::join_all;
use lattice_agent_rpc::{AttemptKey, AttemptStatus, Terminate, attempt_names};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Allocation, AllocationState, Command, NodeId, Refusal,
    allocation::{Rank, RankPhase, StopCause},
    command::Fence,
    node::Holder,
    origin::AttemptOrigin,
};
use lattice_view::{NodeEntry, View};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

/// Delay before an agent that did not answer, that has an orphan, or with a comparison that is not finished, is queried
/// again.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Longest and shortest time between two passes.
const PERIOD: Duration = Duration::from_secs(1);
/// Timeout for an agent to begin to end an orphan.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of agents queried concurrently.
const MAX_CALLS: usize = 128;
/// Timeout for comparing the answer of one agent and acting on it.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of orphans of one agent that are ended in one round; the rest follow in later rounds.
const MAX_ENDED_PER_ROUND: usize = 16;
/// Maximum number of orphans of one node, among those that it reports now, that are examined for the audit: a faulty
/// agent could report any number.
const MAX_EXAMINED_PER_NODE: usize = 64;
/// Suffix of the drain reason of a node with orphans.
const ORPHAN_REASON_SUFFIX: &str = "still run here though nothing holds the node for them";

/// Running attempts by node, as recorded in the quorum.
type RunningAttempts = BTreeMap<NodeId, BTreeSet<AttemptKey>>;

/// State of an agent that causes an immediate query when it changes: agent start, node boot or holder of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AgentMark {
    generation: Option<u64>,
    boot: Option<String>,
    holder: Option<Holder>,
}

impl AgentMark {
    fn of(entry: &NodeEntry) -> Self {
        Self {
            generation: entry.gossip.as_ref().map(|seen| seen.generation),
            boot: entry.boot.clone(),
            holder: entry.record.as_ref().and_then(|record| record.holder),
        }
    }
}

/// Schedule of the queries to one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NextQuery {
    mark: AgentMark,
    next: Instant,
}

/// Orphans, by node, for which it is settled whether the audit needs an entry.
#[derive(Debug, Clone, Default)]
struct ExaminedOrphans(Arc<Mutex<BTreeMap<NodeId, ExaminedOfNode>>>);

#[derive(Debug, Default)]
struct ExaminedOfNode {
    settled: BTreeSet<AttemptKey>,
    /// The log has the message that this node reports more orphans than are examined.
    is_limit_logged: bool,
}

impl ExaminedOrphans {
    /// Orphans to examine in this round.
    fn due(&self, node: &NodeId, orphans: &[AttemptKey]) -> Vec<AttemptKey> {
        let mut examined = self.0.lock();
        let Some(of) = examined.get_mut(node) else {
            let due = orphans.iter().take(MAX_ENDED_PER_ROUND);
            return due.copied().collect();
        };
        let left = MAX_EXAMINED_PER_NODE.saturating_sub(of.settled.len());
        let mut unsettled = orphans.iter().filter(|key| !of.settled.contains(*key));
        if left > 0 {
            let due = unsettled.take(left.min(MAX_ENDED_PER_ROUND));
            return due.copied().collect();
        }
        if unsettled.next().is_some() && !of.is_limit_logged {
            of.is_limit_logged = true;
            let limit = MAX_EXAMINED_PER_NODE;
            tracing::warn!(%node, limit, "node reports more orphans than are examined for the audit");
        }
        Vec::new()
    }

    fn insert(&self, node: &NodeId, key: AttemptKey) {
        let mut examined = self.0.lock();
        let of = examined.entry(node.clone()).or_default();
        of.settled.insert(key);
    }

    /// Keeps only the orphans that the node reports now: the others have ended, and count no longer.
    fn retain(&self, node: &NodeId, reported: &[AttemptKey]) {
        let mut examined = self.0.lock();
        let Some(of) = examined.get_mut(node) else {
            return;
        };
        let reported: BTreeSet<AttemptKey> = reported.iter().copied().collect();
        of.settled.retain(|key| reported.contains(key));
        if of.settled.is_empty() {
            examined.remove(node);
        }
    }
}

/// Attempt reconciler; see the module. Each agent is queried and compared in its own task with a timeout, so an agent
/// that hangs or answers wrongly delays no other agent.
#[derive(Debug)]
pub struct Attempts {
    core: Arc<Core>,
    asked: BTreeMap<NodeId, NextQuery>,
    under_way: BTreeSet<NodeId>,
    queries: KeyedTasks<(NodeId, AgentMark), Answered>,
    call_slots: Arc<Semaphore>,
    examined: ExaminedOrphans,
}

/// Result of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AttemptsReport {
    /// Agents that answered.
    pub(crate) asked: usize,
    /// Agents that did not answer.
    pub(crate) silent: usize,
    /// Allocations being stopped because an agent lost the record of a rank.
    pub(crate) stopped: usize,
    /// Attempts being ended because their node is not held for them.
    pub(crate) orphans: usize,
}

/// A queried agent, its state at the time of the query, and the result; `None` without a usable answer.
type Answered = (NodeId, AgentMark, Option<AttemptComparison>);

/// Result of comparing the answer of one agent.
#[derive(Debug, Clone, Copy, Default)]
struct AttemptComparison {
    stopped: usize,
    orphans: usize,
    /// Some action failed or is incomplete, so the agent is queried again soon.
    unfinished: bool,
}

impl Reconciler for Attempts {
    const NAME: &'static str = "attempts";

    fn pace(&self) -> ReconcilerPace {
        let period = PERIOD.min(self.core.timings.attempts_every);
        ReconcilerPace {
            period,
            spacing: period,
        }
    }

    async fn pass(&mut self, fence: Fence) {
        self.reconcile(&fence);
    }

    fn forget(&mut self) {
        // Queries under way are dropped as well: they were made under a lease that is over.
        self.queries = KeyedTasks::new();
        self.under_way.clear();
        self.asked.clear();
    }

    /// Records each answer when it arrives, and schedules the next query of its agent.
    async fn wakes(&mut self) {
        while let Some(answered) = self.queries.join_next().await {
            let report = self.note(answered);
            if report.stopped + report.orphans > 0 {
                tracing::warn!(?report, "attempts of agent differ from quorum state");
            }
        }
        std::future::pending().await
    }
}

impl Attempts {
    /// New [`Attempts`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            asked: BTreeMap::new(),
            under_way: BTreeSet::new(),
            queries: KeyedTasks::new(),
            call_slots: Arc::new(Semaphore::new(MAX_CALLS)),
            examined: ExaminedOrphans::default(),
        }
    }

    /// Queries every agent that is due; stops allocations with lost ranks and ends orphans. Returns the number of
    /// queries started.
    pub(crate) fn reconcile(&mut self, fence: &Fence) -> usize {
        let view = self.core.view();
        let mut running = running(&view);
        self.asked.retain(|node, _| view.node(node).is_some());
        let due = due(&view, &running, &self.asked, Instant::now());
        let mut begun = 0;
        for (node, mark) in due {
            if !self.under_way.insert(node.clone()) {
                continue;
            }
            let expected = running.remove(&node).unwrap_or_default();
            let (core, fence, places) = (self.core.clone(), fence.clone(), self.call_slots.clone());
            let examined = self.examined.clone();
            let key = (node.clone(), mark.clone());
            self.queries.spawn(key, async move {
                // The semaphore is never closed.
                let _place = places.acquire_owned().await;
                let compared = ask(&core, &fence, &node, &expected, &examined).await;
                (node, mark, compared)
            });
            begun += 1;
        }
        begun
    }

    /// Schedules the next query of an agent.
    fn note(
        &mut self,
        answered: Result<Answered, PanickedTask<(NodeId, AgentMark)>>,
    ) -> AttemptsReport {
        let mut report = AttemptsReport::default();
        let (node, mark, compared) = match answered {
            Ok(answered) => answered,
            Err(PanickedTask { key, error }) => {
                let (node, mark) = key;
                tracing::error!(%node, %error, "attempt query task panicked, the agent is queried again");
                (node, mark, None)
            }
        };
        let every = self.core.timings.attempts_every;
        let mut wait = RETRY_DELAY.min(every);
        match compared {
            Some(compared) => {
                report.asked = 1;
                (report.stopped, report.orphans) = (compared.stopped, compared.orphans);
                if !compared.unfinished {
                    wait = every;
                }
            }
            None => report.silent = 1,
        }
        self.under_way.remove(&node);
        let next = Instant::now() + wait;
        self.asked.insert(node, NextQuery { mark, next });
        report
    }

    /// Runs one complete round.
    #[cfg(test)]
    pub(crate) async fn round(&mut self, fence: &Fence) -> AttemptsReport {
        self.reconcile(fence);
        let mut sum = AttemptsReport::default();
        while let Some(answered) = self.queries.join_next().await {
            let one = self.note(answered);
            sum.asked += one.asked;
            sum.silent += one.silent;
            sum.stopped += one.stopped;
            sum.orphans += one.orphans;
        }
        sum
    }
}

/// Queries one agent and compares its answer. `None`: the agent gave no usable answer in time.
async fn ask(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    expected: &BTreeSet<AttemptKey>,
    examined: &ExaminedOrphans,
) -> Option<AttemptComparison> {
    let statuses = orphans::list(core, node).await;
    let statuses = statuses
        .inspect_err(|error| tracing::debug!(%node, %error, "attempts of agent not available"))
        .ok()?;
    let compared = compare(core, fence, node, (expected, statuses.as_slice()), examined);
    let compared = timeout(COMPARE_TIMEOUT, compared).await;
    Some(compared.unwrap_or(AttemptComparison {
        unfinished: true,
        ..AttemptComparison::default()
    }))
}

/// Compares the answer of an agent with the quorum. However many differences an agent reports, they cost one quorum
/// read: a view that contains everything committed before the answer arrived.
async fn compare(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    (expected, statuses): (&BTreeSet<AttemptKey>, &[AttemptStatus]),
    examined: &ExaminedOrphans,
) -> AttemptComparison {
    let mut compared = AttemptComparison::default();
    let known: BTreeSet<AttemptKey> = statuses.iter().map(|status| status.key).collect();
    let is_lost = |key: &&AttemptKey| !known.contains(*key);
    if expected.iter().all(|key| !is_lost(&key))
        && orphans::not_held(&core.view(), node, statuses).is_empty()
    {
        examined.retain(node, &[]);
        return compared;
    }
    let present = match core.present_view().await {
        Ok(present) => present,
        Err(error) => {
            compared.unfinished = true;
            tracing::warn!(%node, %error, "attempts of agent cannot be verified yet");
            return compared;
        }
    };
    for key in expected.iter().filter(is_lost) {
        match stop_lost(core, &present, fence, node, *key).await {
            Ok(stopped) => compared.stopped += usize::from(stopped),
            Err(error) => {
                compared.unfinished = true;
                tracing::warn!(%node, id = %key.allocation, %error, "allocation with lost rank not stopped yet");
            }
        }
    }
    let suspects = orphans::not_held(&present, node, statuses);
    match orphans::still_reported(core, node, suspects).await {
        Ok(orphans) if orphans.is_empty() => examined.retain(node, &[]),
        Ok(orphans) => {
            examined.retain(node, &orphans);
            compared.orphans = orphans.len();
            compared.unfinished = true;
            // With its end, the agent forgets the origin of an attempt.
            let due =
                orphans::with_origins(core, &present, node, examined.due(node, &orphans)).await;
            // Reading a long audit may take longer than this comparison may, and must not delay the end.
            tokio::join!(
                end_orphans(core, fence, node, &orphans),
                note_unknown(core, fence, node, due, examined),
            );
        }
        Err(error) => {
            compared.unfinished = true;
            tracing::warn!(%node, %error, "attempts of agent cannot be verified yet");
        }
    }
    compared
}

/// Writes an audit entry for each orphan of an allocation that was submitted after the backup from which the cluster was
/// restored: it has no record, and its work is lost. An orphan that cannot be examined now is examined in a later round.
/// `orphans`: those to examine, with their origins.
async fn note_unknown(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    orphans: Vec<(AttemptKey, Option<AttemptOrigin>)>,
    examined: &ExaminedOrphans,
) {
    for (key, origin) in orphans {
        let id = key.allocation;
        match core.skipped_numbers(id).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                examined.insert(node, key);
                continue;
            }
            Err(error) => {
                tracing::warn!(%node, %id, %error, "orphaned attempt not examined yet");
                continue;
            }
        }
        let command = Command::NoteUnknownAttempt {
            node: node.clone(),
            allocation: id,
            attempt: key.attempt,
            origin,
        };
        // The principal and the key are the same for every control, so one entry is written.
        let once = format!("unknown-attempt/{node}/{id}/{}", key.attempt);
        let by = faults::principal(faults::OWNER);
        let envelope = core.envelope(by, Some(once), Some(fence.clone()), command);
        match faults::propose_envelope(core, envelope).await {
            Ok(_) => {
                tracing::error!(%node, %id, attempt = key.attempt, "agent runs an allocation without a record");
                examined.insert(node, key);
            }
            // The allocation has a record after all, or another control wrote the entry with another origin.
            Err(ProposeError::Refused(Refusal::Invalid { .. } | Refusal::KeyReused { .. })) => {
                examined.insert(node, key);
            }
            Err(error) => {
                tracing::warn!(%node, %id, %error, "unknown attempt not in the audit yet")
            }
        }
    }
}

/// Drains the node, then has its agent end the orphans. Both steps repeat until the orphans are gone;
/// [`faults::Readmit`] clears the drain reason.
async fn end_orphans(core: &Core, fence: &Fence, node: &NodeId, orphans: &[AttemptKey]) {
    let view = core.view();
    let names = attempt_names(orphans, &|id| view.name_of(id));
    tracing::error!(%node, orphans = names, "agent runs orphaned attempts; ending them");
    let known = view
        .node(node)
        .and_then(|entry| faults::own_reason(entry))
        .is_some_and(|reason| reason.ends_with(ORPHAN_REASON_SUFFIX));
    if !known {
        let reason = format!("{names} {ORPHAN_REASON_SUFFIX}");
        match faults::drain_for_fault(core, fence.clone(), node, &reason).await {
            // A node without a record has no assignments either.
            Ok(()) | Err(ProposeError::Refused(Refusal::UnknownNode { .. })) => {}
            Err(error) => tracing::warn!(%node, %error, "node not drained yet"),
        }
    }
    let ending = orphans.iter().take(MAX_ENDED_PER_ROUND).map(|key| async {
        let request = Terminate {
            key: *key,
            epoch: fence.epoch,
        };
        match core.agents.call(&view, node, &request, CALL_TIMEOUT).await {
            Ok(Ok(_)) => {}
            Ok(Err(refused)) => {
                let refused = sanitize::shortened(refused.text(&|id| view.name_of(id)));
                tracing::warn!(%node, refused, "orphaned attempt not ended yet");
            }
            Err(error) => tracing::warn!(%node, %error, "orphaned attempt not ended yet"),
        }
    });
    join_all(ending).await;
}

/// Returns every running rank by node. A rank that is only assigned is left out: the dispatcher repeats its launch
/// anyway, as it repeats the termination of ranks in a stopping allocation. A rank of an earlier boot is left out as
/// well: it is gone, and [`crate::tasks::reboots`] reports it.
fn running(view: &View) -> RunningAttempts {
    let holders = view.nodes.values();
    let holders = holders.filter_map(|node| node.record.as_ref()?.holder);
    let ids: BTreeSet<_> = holders.map(|holder| holder.allocation).collect();
    let mut running = RunningAttempts::new();
    for allocation in ids.into_iter().filter_map(|id| view.allocation(id)) {
        let key = key(allocation);
        let is_over = |rank: &&Rank| {
            let now = view.node(&rank.node).and_then(|entry| entry.boot.as_ref());
            rank.boot.is_some() && now.is_some() && rank.boot.as_ref() != now
        };
        for rank in running_ranks(allocation).filter(|rank| !is_over(rank)) {
            running.entry(rank.node.clone()).or_default().insert(key);
        }
    }
    running
}

fn key(allocation: &Allocation) -> AttemptKey {
    AttemptKey {
        allocation: allocation.id,
        attempt: allocation.attempt,
    }
}

fn running_ranks(allocation: &Allocation) -> impl Iterator<Item = &Rank> {
    let state = allocation.state;
    let counts = state.holds() && state != AllocationState::Stopping;
    let runs = move |rank: &&Rank| counts && matches!(rank.phase, RankPhase::Running { .. });
    allocation.ranks.iter().filter(runs)
}

/// Returns the agents to query now. Agents that should run nothing are queried only while they are alive.
fn due(
    view: &View,
    running: &RunningAttempts,
    asked: &BTreeMap<NodeId, NextQuery>,
    now: Instant,
) -> Vec<(NodeId, AgentMark)> {
    let is_due = |entry: &Arc<NodeEntry>| {
        let counts = entry.liveness == Liveness::Alive || running.contains_key(&entry.id);
        let mark = AgentMark::of(entry);
        let due = asked
            .get(&entry.id)
            .is_none_or(|asked| asked.mark != mark || asked.next <= now);
        (counts && due && entry.addr().is_some()).then(|| (entry.id.clone(), mark))
    };
    view.nodes.values().filter_map(is_due).collect()
}

/// Stops an allocation when one of its agents has lost a rank. `false`: the attempt or its rank on this node has ended
/// meanwhile, or the allocation is no longer in a state to be stopped. The agent forgets an end only after its commit,
/// so a view newer than the answer of the agent shows that end.
async fn stop_lost(
    core: &Core,
    present: &View,
    fence: &Fence,
    node: &NodeId,
    lost: AttemptKey,
) -> Result<bool, ProposeError> {
    let id = lost.allocation;
    let still_runs = present.allocation(id).is_some_and(|present| {
        key(present) == lost && running_ranks(present).any(|rank| rank.node == *node)
    });
    if !still_runs {
        return Ok(false);
    }
    tracing::error!(%node, %id, attempt = lost.attempt, "agent has no record of a running rank");
    let node = node.clone();
    let command = Command::Stop {
        id,
        cause: StopCause::NodeLost { node },
    };
    match core.propose_as_service(Some(fence.clone()), command).await {
        Ok(_) => Ok(true),
        Err(ProposeError::Refused(Refusal::WrongState { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
