//! Work whose record its agent has lost: nobody would ever report its end. What the quorum takes
//! for running is compared with what each agent knows; an allocation with a rank that its agent
//! does not know is stopped, and the dispatcher ends every rank of it. Its nodes go back only when
//! the agent has answered for that attempt.
//!
//! A silent agent says nothing: its node keeps what it holds.

use crate::{
    core::Core,
    error::ProposeError,
    tasks::{activation::Activation, lease::Lease},
    view::View,
};
use futures::StreamExt;
use lattice_quorum_types::{
    Allocation, AllocationState, Command, NodeId, Refusal,
    allocation::{RankPhase, StopCause},
    command::Fence,
    view::{Answer, Query},
    wire::{AttemptKey, ListAttempts},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Every agent is asked this often. One that was started anew is asked at once.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// An agent that did not answer is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Looks at least, and at most, this often.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an agent may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Agents asked at a time.
const MAX_CALLS: usize = 64;

/// What runs where, as the quorum has it.
type Running = BTreeMap<NodeId, BTreeSet<AttemptKey>>;

/// When an agent is asked next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    /// The run of the agent that was asked.
    generation: u64,
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AttemptsReport {
    /// Agents that answered.
    pub(crate) asked: usize,
    /// Agents that did not.
    pub(crate) silent: usize,
    /// Allocations that are being stopped for a lost record.
    pub(crate) stopped: usize,
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
        let mut activation = Activation::new(&self.core, PERIOD, PERIOD).with_lease(&self.lease);
        loop {
            activation.next().await;
            match self.lease.fence() {
                Some(fence) => {
                    let report = self.reconcile(&fence).await;
                    if report.stopped > 0 {
                        tracing::warn!(?report, "records of running work were lost");
                    }
                }
                None => self.asked.clear(),
            }
        }
    }

    /// Asks every agent that is due, and stops what it lost.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> AttemptsReport {
        let view = self.core.view();
        let running = running(&view);
        self.asked.retain(|node, _| running.contains_key(node));
        let due = due(&view, &running, &self.asked, Instant::now());
        let core = &self.core;
        let ask = |(node, generation): (NodeId, u64)| {
            let view = &view;
            async move {
                let answer = core.agents.call(view, &node, &ListAttempts, CALL_TIMEOUT);
                (node.clone(), generation, answer.await)
            }
        };
        let mut answers =
            futures::stream::iter(due.into_iter().map(ask)).buffer_unordered(MAX_CALLS);
        let mut report = AttemptsReport::default();
        while let Some((node, generation, answer)) = answers.next().await {
            let mut wait = ASK_AGAIN;
            if let Ok(known) = answer {
                let known: BTreeSet<AttemptKey> = known.iter().map(|status| status.key).collect();
                let expected = running.get(&node).into_iter().flatten();
                report.asked += 1;
                wait = ASK_EVERY;
                for key in expected.filter(|key| !known.contains(key)) {
                    match stop_lost(core, fence, &node, *key).await {
                        Ok(stopped) => report.stopped += usize::from(stopped),
                        Err(error) => {
                            wait = ASK_AGAIN;
                            tracing::warn!(%node, id = %key.allocation, %error, "not stopped yet");
                        }
                    }
                }
            } else {
                report.silent += 1;
            }
            let next = Instant::now() + wait;
            self.asked.insert(node, Asked { generation, next });
        }
        report
    }
}

/// Every rank that runs. One that is only assigned is launched again and again anyway, and in an
/// allocation that stops every rank is ended again and again.
fn running(view: &View) -> Running {
    let holders = view.nodes.values();
    let holders = holders.filter_map(|node| node.record.as_ref()?.holder);
    let ids: BTreeSet<_> = holders.map(|holder| holder.allocation).collect();
    let mut running = Running::new();
    for allocation in ids.into_iter().filter_map(|id| view.allocation(id)) {
        let key = key(allocation);
        for node in running_ranks(allocation) {
            running.entry(node.clone()).or_default().insert(key);
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

fn running_ranks(allocation: &Allocation) -> impl Iterator<Item = &NodeId> {
    let state = allocation.state;
    let counts = state.holds() && state != AllocationState::Stopping;
    let ranks = allocation
        .ranks
        .iter()
        .filter(move |rank| counts && matches!(rank.phase, RankPhase::Running { .. }));
    ranks.map(|rank| &rank.node)
}

/// Whom to ask now, with the run of its agent.
fn due(
    view: &View,
    running: &Running,
    asked: &BTreeMap<NodeId, Asked>,
    now: Instant,
) -> Vec<(NodeId, u64)> {
    let is_due = |node: &NodeId| {
        let generation = view.node(node)?.seen.as_ref()?.generation;
        let due = asked
            .get(node)
            .is_none_or(|asked| asked.generation != generation || asked.next <= now);
        due.then(|| (node.clone(), generation))
    };
    running.keys().filter_map(is_due).collect()
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
    let still_runs = key(&present) == lost && running_ranks(&present).any(|n| n == node);
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
