//! What agents run, compared with what the quorum has them run.
//!
//! *Lost*: a rank that runs by the quorum's account and that its agent does not know. Nobody would
//! ever report its end, so its allocation is stopped, and the dispatcher ends every rank of it; the
//! node goes back only when the agent, having looked for its processes, has answered for that
//! attempt.
//!
//! *Orphan*: an attempt that runs at an agent whose node is not held for it any more. It is ended,
//! and until it is gone the node is kept out by a drain reason of the dispatcher's.
//!
//! A silent agent says nothing: its node keeps what it holds.

use crate::{
    core::Core,
    error::ProposeError,
    tasks::{
        faults, orphans,
        reconciler::{Pace, Reconciler},
    },
    view::{NodeEntry, View},
    words,
};
use futures::future::join_all;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Allocation, AllocationState, Command, NodeId, Refusal,
    allocation::{Rank, RankPhase, StopCause},
    command::Fence,
    node::Holder,
    wire::{AttemptKey, AttemptStatus, Terminate},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinSet},
    time::{Instant, timeout},
};

/// An agent that did not answer, or has an orphan, is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Looks at least, and at most, this often.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an agent may take to begin to end an orphan.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Agents asked at a time.
const MAX_CALLS: usize = 128;
/// How long what one agent said may take to be compared and acted on.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(15);
/// Orphans of one agent that are ended at once; the others follow.
const ENDED_AT_ONCE: usize = 16;
/// How the drain reason of a node with orphans ends.
const NOT_HELD: &str = "still run here though nothing holds the node for them";

/// What runs where, as the quorum has it.
type Running = BTreeMap<NodeId, BTreeSet<AttemptKey>>;

/// When it changes, an agent is asked at once: another run of it, another boot, another holder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    generation: Option<u64>,
    boot: Option<String>,
    holder: Option<Holder>,
}

impl Mark {
    fn of(entry: &NodeEntry) -> Self {
        Self {
            generation: entry.seen.as_ref().map(|seen| seen.generation),
            boot: entry.boot.clone(),
            holder: entry.record.as_ref().and_then(|record| record.holder),
        }
    }
}

/// When an agent is asked next.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    mark: Mark,
    next: Instant,
}

/// See the module. Each agent is asked and compared in a task of its own, under a deadline: one that
/// hangs or lies delays no other.
#[derive(Debug)]
pub(crate) struct Attempts {
    core: Arc<Core>,
    asked: BTreeMap<NodeId, Asked>,
    under_way: BTreeSet<NodeId>,
    asks: JoinSet<(NodeId, Mark, Option<Compared>)>,
    places: Arc<Semaphore>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AttemptsReport {
    /// Agents that answered.
    pub(crate) asked: usize,
    /// Agents that did not.
    pub(crate) silent: usize,
    /// Allocations that are being stopped for a lost record.
    pub(crate) stopped: usize,
    /// Attempts that are being ended because their node is not held for them.
    pub(crate) orphans: usize,
}

/// What came of one agent's answer.
#[derive(Debug, Clone, Copy, Default)]
struct Compared {
    stopped: usize,
    orphans: usize,
    /// Something is left to do.
    unfinished: bool,
}

impl Reconciler for Attempts {
    const NAME: &'static str = "attempts";

    fn pace(&self) -> Pace {
        let period = PERIOD.min(self.core.timings.attempts_every);
        Pace {
            period,
            spacing: period,
        }
    }

    async fn pass(&mut self, fence: Fence) {
        self.reconcile(&fence);
    }

    fn forget(&mut self) {
        // With what is under way: it was asked for under a lease that is over.
        self.asks = JoinSet::new();
        self.under_way.clear();
        self.asked.clear();
    }

    /// An answer is taken down as it comes; when its agent is asked again is for the next pass.
    async fn wakes(&mut self) {
        while let Some(answered) = self.asks.join_next().await {
            let report = self.note(answered);
            if report.stopped + report.orphans > 0 {
                tracing::warn!(?report, "an agent runs other than what it should");
            }
        }
        std::future::pending().await
    }
}

impl Attempts {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            asked: BTreeMap::new(),
            under_way: BTreeSet::new(),
            asks: JoinSet::new(),
            places: Arc::new(Semaphore::new(MAX_CALLS)),
        }
    }

    /// Asks every agent that is due. What it lost is stopped, and what is not its own is ended.
    /// Returns how many are asked now.
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
            let (core, fence, places) = (self.core.clone(), fence.clone(), self.places.clone());
            self.asks.spawn(async move {
                // It is never closed.
                let _place = places.acquire_owned().await;
                let compared = ask(&core, &fence, &node, &expected).await;
                (node, mark, compared)
            });
            begun += 1;
        }
        begun
    }

    /// Decides when an agent is asked again.
    fn note(
        &mut self,
        answered: Result<(NodeId, Mark, Option<Compared>), JoinError>,
    ) -> AttemptsReport {
        let mut report = AttemptsReport::default();
        let (node, mark, compared) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                // Whose it was is not known: all are asked again.
                tracing::error!(%error, "asking an agent for its attempts broke down");
                self.asks = JoinSet::new();
                self.under_way.clear();
                return report;
            }
        };
        let every = self.core.timings.attempts_every;
        let mut wait = ASK_AGAIN.min(every);
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
        self.asked.insert(node, Asked { mark, next });
        report
    }

    /// One whole round.
    #[cfg(test)]
    pub(crate) async fn round(&mut self, fence: &Fence) -> AttemptsReport {
        self.reconcile(fence);
        let mut sum = AttemptsReport::default();
        while let Some(answered) = self.asks.join_next().await {
            let one = self.note(answered);
            sum.asked += one.asked;
            sum.silent += one.silent;
            sum.stopped += one.stopped;
            sum.orphans += one.orphans;
        }
        sum
    }
}

/// `None`: it did not answer in time.
async fn ask(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    expected: &BTreeSet<AttemptKey>,
) -> Option<Compared> {
    let told = orphans::list(core, node).await;
    let told = told
        .inspect_err(|error| tracing::debug!(%node, %error, "attempts not had"))
        .ok()?;
    let compared = timeout(COMPARE_TIMEOUT, compare(core, fence, node, expected, &told)).await;
    Some(compared.unwrap_or(Compared {
        unfinished: true,
        ..Compared::default()
    }))
}

/// One read of the quorum serves for all that differs, however much an agent claims: a view that
/// shows everything committed before its answer came.
async fn compare(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    expected: &BTreeSet<AttemptKey>,
    told: &[AttemptStatus],
) -> Compared {
    let mut compared = Compared::default();
    let known: BTreeSet<AttemptKey> = told.iter().map(|status| status.key).collect();
    let is_lost = |key: &&AttemptKey| !known.contains(*key);
    if expected.iter().all(|key| !is_lost(&key))
        && orphans::not_held(&core.view(), node, told).is_empty()
    {
        return compared;
    }
    let present = match core.present_view().await {
        Ok(present) => present,
        Err(error) => {
            compared.unfinished = true;
            tracing::warn!(%node, %error, "it cannot be told yet whether its attempts are its own");
            return compared;
        }
    };
    for key in expected.iter().filter(is_lost) {
        match stop_lost(core, &present, fence, node, *key).await {
            Ok(stopped) => compared.stopped += usize::from(stopped),
            Err(error) => {
                compared.unfinished = true;
                tracing::warn!(%node, id = %key.allocation, %error, "not stopped yet");
            }
        }
    }
    let suspects = orphans::not_held(&present, node, told);
    match orphans::still_run(core, node, suspects).await {
        Ok(orphans) if orphans.is_empty() => {}
        Ok(orphans) => {
            compared.orphans = orphans.len();
            compared.unfinished = true;
            end_orphans(core, fence, node, &orphans).await;
        }
        Err(error) => {
            compared.unfinished = true;
            tracing::warn!(%node, %error, "it cannot be told yet whether its attempts are its own");
        }
    }
    compared
}

/// Keeps the node out, then has its agent end what is not its own. Both are repeated until it is
/// gone; the drain reason is cleared by [`faults::readmit`].
async fn end_orphans(core: &Core, fence: &Fence, node: &NodeId, orphans: &[AttemptKey]) {
    let names = orphans::names(orphans);
    tracing::error!(%node, orphans = names, "it runs what its node is not held for; ending it");
    let view = core.view();
    let known = view
        .node(node)
        .and_then(|entry| faults::own_reason(entry))
        .is_some_and(|reason| reason.ends_with(NOT_HELD));
    if !known {
        let reason = format!("{names} {NOT_HELD}");
        match faults::keep_out(core, fence.clone(), node, &reason).await {
            // Where there is no record nothing is assigned either.
            Ok(()) | Err(ProposeError::Refused(Refusal::UnknownNode { .. })) => {}
            Err(error) => tracing::warn!(%node, %error, "not kept out yet"),
        }
    }
    let ending = orphans.iter().take(ENDED_AT_ONCE).map(|key| async {
        let request = Terminate {
            key: *key,
            epoch: fence.epoch,
        };
        match core.agents.call(&view, node, &request, CALL_TIMEOUT).await {
            Ok(Ok(_)) => {}
            Ok(Err(refused)) => {
                let refused = words::shortened(refused.to_string());
                tracing::warn!(%node, refused, "an orphan is not ended yet");
            }
            Err(error) => tracing::warn!(%node, %error, "an orphan is not ended yet"),
        }
    });
    join_all(ending).await;
}

/// Every rank that runs. One that is only assigned is launched again and again anyway, and in an
/// allocation that stops every rank is ended again and again. One of a boot that is over is known
/// to be gone, and reported by [`crate::tasks::reboots`].
fn running(view: &View) -> Running {
    let holders = view.nodes.values();
    let holders = holders.filter_map(|node| node.record.as_ref()?.holder);
    let ids: BTreeSet<_> = holders.map(|holder| holder.allocation).collect();
    let mut running = Running::new();
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

/// Whom to ask now. Agents that should run nothing are asked only while they answer.
fn due(
    view: &View,
    running: &Running,
    asked: &BTreeMap<NodeId, Asked>,
    now: Instant,
) -> Vec<(NodeId, Mark)> {
    let is_due = |entry: &Arc<NodeEntry>| {
        let counts = entry.liveness == Liveness::Alive || running.contains_key(&entry.id);
        let mark = Mark::of(entry);
        let due = asked
            .get(&entry.id)
            .is_none_or(|asked| asked.mark != mark || asked.next <= now);
        (counts && due && entry.addr().is_some()).then(|| (entry.id.clone(), mark))
    };
    view.nodes.values().filter_map(is_due).collect()
}

/// Stops an allocation one of whose agents does not know its rank. `false`: it ended meanwhile. The
/// agent forgets an end once it is committed, so a view that is newer than its answer shows it.
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
    tracing::error!(%node, %id, attempt = lost.attempt, "its agent has no record of a rank that runs");
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
