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
    tasks::{activation::Activation, faults, lease::Lease, orphans},
    view::{NodeEntry, View},
};
use futures::StreamExt;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Allocation, AllocationState, Command, NodeId, Refusal,
    allocation::{Rank, RankPhase, StopCause},
    command::Fence,
    node::Holder,
    view::{Answer, Query},
    wire::{AttemptKey, AttemptStatus, Terminate},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// An agent that did not answer, or has an orphan, is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Looks at least, and at most, this often.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an agent may take to begin to end an orphan.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Agents asked at a time.
const MAX_CALLS: usize = 64;

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

/// See the module.
#[derive(Debug)]
pub(crate) struct Attempts {
    core: Arc<Core>,
    lease: Arc<Lease>,
    asked: BTreeMap<NodeId, Asked>,
}

/// What one round did.
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

impl Attempts {
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>) -> Self {
        Self {
            core,
            lease,
            asked: BTreeMap::new(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let period = PERIOD.min(self.core.timings.attempts_every);
        let mut activation = Activation::new(&self.core, period, period).with_lease(&self.lease);
        loop {
            activation.next().await;
            match self.lease.fence() {
                Some(fence) => {
                    let report = self.reconcile(&fence).await;
                    if report.stopped + report.orphans > 0 {
                        tracing::warn!(?report, "agents run other than what they should");
                    }
                }
                None => self.asked.clear(),
            }
        }
    }

    /// Asks every agent that is due, stops what it lost, and ends what is not its own.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> AttemptsReport {
        let view = self.core.view();
        let running = running(&view);
        self.asked.retain(|node, _| view.node(node).is_some());
        let due = due(&view, &running, &self.asked, Instant::now());
        let core = &self.core;
        let ask = |(node, mark): (NodeId, Mark)| async move {
            let told = orphans::list(core, &node).await;
            (node, mark, told)
        };
        let mut answers =
            futures::stream::iter(due.into_iter().map(ask)).buffer_unordered(MAX_CALLS);
        let mut report = AttemptsReport::default();
        let every = self.core.timings.attempts_every;
        while let Some((node, mark, told)) = answers.next().await {
            let mut wait = ASK_AGAIN.min(every);
            if let Ok(told) = told {
                let expected = running.get(&node);
                let compared = compare(core, fence, &node, expected, &told).await;
                report.asked += 1;
                report.stopped += compared.stopped;
                report.orphans += compared.orphans;
                if !compared.unfinished {
                    wait = every;
                }
            } else {
                report.silent += 1;
            }
            let next = Instant::now() + wait;
            self.asked.insert(node, Asked { mark, next });
        }
        report
    }
}

async fn compare(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    expected: Option<&BTreeSet<AttemptKey>>,
    told: &[AttemptStatus],
) -> Compared {
    let mut compared = Compared::default();
    let known: BTreeSet<AttemptKey> = told.iter().map(|status| status.key).collect();
    for key in expected.into_iter().flatten() {
        if known.contains(key) {
            continue;
        }
        match stop_lost(core, fence, node, *key).await {
            Ok(stopped) => compared.stopped += usize::from(stopped),
            Err(error) => {
                compared.unfinished = true;
                tracing::warn!(%node, id = %key.allocation, %error, "not stopped yet");
            }
        }
    }
    match orphans::among(core, node, told).await {
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
    let reason = format!("{names} still run here though nothing holds the node for them");
    match faults::keep_out(core, fence.clone(), node, &reason).await {
        // Where there is no record nothing is assigned either.
        Ok(_) | Err(ProposeError::Refused(Refusal::UnknownNode { .. })) => {}
        Err(error) => tracing::warn!(%node, %error, "not kept out yet"),
    }
    for key in orphans {
        let request = Terminate {
            key: *key,
            epoch: fence.epoch,
        };
        let view = core.view();
        let called = core.agents.call(&view, node, &request, CALL_TIMEOUT);
        match called.await {
            Ok(Ok(_)) => {}
            Ok(Err(refused)) => tracing::warn!(%node, %refused, "an orphan is not ended yet"),
            Err(error) => tracing::warn!(%node, %error, "an orphan is not ended yet"),
        }
    }
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

/// Stops an allocation one of whose agents does not know its rank. `false`: it ended meanwhile.
async fn stop_lost(
    core: &Core,
    fence: &Fence,
    node: &NodeId,
    lost: AttemptKey,
) -> Result<bool, ProposeError> {
    // The agent forgets an end once it is committed, so a read that begins after its answer shows
    // it; the view may not yet.
    let id = lost.allocation;
    let present = match core.read(Query::Allocation { id }).await? {
        Answer::Allocation(Some(present)) => present,
        _ => return Ok(false),
    };
    let still_runs =
        key(&present) == lost && running_ranks(&present).any(|rank| rank.node == *node);
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
