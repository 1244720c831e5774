//! Node queries for automatic draining: whether a drain reason holds, or is over.
//!
//! Queries run concurrently up to a limit, and a slow node delays no other. This module does not decide what follows
//! from an answer.

use super::cause::Cause;
use crate::{
    bmc::Readings,
    keyed_tasks::{KeyedTasks, PanickedTask},
    tasks::{
        node_evidence::{Answer, Freshness, NodeAccess},
        readmission,
    },
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    NodeId, Revision,
    node::{Lifecycle, Node},
};
use lattice_view::{NodeEntry, View};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// Maximum number of nodes queried concurrently to confirm a cause; the same limit applies separately to clearing. Each
/// query makes the node read its hardware again.
const MAX_CALLS: usize = 16;
/// Time within which answers are collected and handled together.
const BATCH_WINDOW: Duration = Duration::from_millis(20);

/// Pause before a node is queried again after its query panicked.
const PANIC_PAUSE: Duration = Duration::from_secs(5);

/// Purpose of a query. Queries that take a node out of service come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DrainIntent {
    /// Confirm a suspected drain cause.
    Drain,
    /// Confirm that the cause of a drain is over.
    Clear,
}

/// A node that was queried, and its answer.
#[derive(Debug)]
pub(super) struct NodeAnswer {
    pub(super) intent: DrainIntent,
    pub(super) cause: Cause,
    /// Node entry at the time of the query.
    pub(super) entry: Arc<NodeEntry>,
    /// Number of the baseline set at the time of the query.
    pub(super) number: u64,
    /// Whether the cause was suspected at the time of the query (see [`Cause::suspects`]).
    was_suspect: bool,
    /// `Ok`: the reason to drain the node, or that its drain reason may be cleared. `Err`: why not.
    pub(super) result: Result<String, String>,
}

/// Condition after which a node is queried again.
#[derive(Debug)]
enum RequeryCondition {
    /// The pause is over, or the suspicion against the node has changed.
    Pause { until: Instant, was_suspect: bool },
    /// A view that includes this revision is available. An earlier view still contains the cleared reason.
    Shown(Revision),
}

impl RequeryCondition {
    fn is_over(&self, bmcs: &Readings, view: &View, now: Instant, of: &(Cause, NodeId)) -> bool {
        match self {
            Self::Pause { until, was_suspect } => {
                let (cause, node) = of;
                let suspects = view.node(node).map(|entry| cause.suspects(bmcs, entry));
                *until <= now || suspects != Some(*was_suspect)
            }
            Self::Shown(written) => view.revision >= *written,
        }
    }
}

/// Key of a query's task.
#[derive(Debug)]
struct QueryKey {
    of: (Cause, NodeId),
    was_suspect: bool,
}

/// Queries under way and answers received.
#[derive(Debug)]
pub(super) struct NodeQueries {
    nodes: NodeAccess,
    waits: BTreeMap<(Cause, NodeId), RequeryCondition>,
    /// Queries under way.
    under_way: BTreeMap<(Cause, NodeId), DrainIntent>,
    asks: KeyedTasks<QueryKey, NodeAnswer>,
    /// Answers that were received but not yet handled.
    unhandled: Vec<NodeAnswer>,
}

impl NodeQueries {
    pub(super) fn new(nodes: NodeAccess) -> Self {
        Self {
            nodes,
            waits: BTreeMap::new(),
            under_way: BTreeMap::new(),
            asks: KeyedTasks::new(),
            unhandled: Vec::new(),
        }
    }

    /// Queries the nodes that satisfy `is_candidate`, up to the concurrency limit.
    pub(super) fn ask_for(
        &mut self,
        view: &Arc<View>,
        wanted: DrainIntent,
        is_candidate: impl Fn(Cause, &NodeEntry) -> bool,
    ) {
        let now = Instant::now();
        let bmcs = &self.nodes.readings;
        self.waits
            .retain(|key, wait| !wait.is_over(bmcs, view, now, key));
        let others = self.under_way.values().filter(|other| **other == wanted);
        let free = MAX_CALLS.saturating_sub(others.count());
        let due = candidates(view, is_candidate).filter(|(cause, entry)| {
            let key = (*cause, entry.id.clone());
            !self.under_way.contains_key(&key) && !self.waits.contains_key(&key)
        });
        let due: Vec<(Cause, Arc<NodeEntry>)> = due.take(free).collect();
        for (cause, entry) in due {
            let (nodes, view) = (self.nodes.clone(), view.clone());
            let was_suspect = cause.suspects(&nodes.readings, &entry);
            let of = (cause, entry.id.clone());
            self.under_way.insert(of.clone(), wanted);
            self.asks.spawn(QueryKey { of, was_suspect }, async move {
                let said = match wanted {
                    DrainIntent::Drain => match cause.ask(&nodes, &view, &entry).await {
                        Answer::Drains(reason) => Ok(reason),
                        Answer::Healthy => Err("it reports no fault".to_owned()),
                        Answer::Unknown(why) => Err(why),
                    },
                    DrainIntent::Clear => may_clear(&nodes, &view, cause, &entry).await,
                };
                let number = view.baselines.generation;
                NodeAnswer {
                    intent: wanted,
                    cause,
                    entry,
                    number,
                    was_suspect,
                    result: said,
                }
            });
        }
    }

    /// Resolves when queried nodes have answered or failed. Cancel safe: answers already received are kept.
    pub(super) async fn receive(&mut self) {
        if self.unhandled.is_empty() {
            match self.asks.join_next().await {
                None => return std::future::pending().await,
                Some(ended) => self.take(ended),
            }
        }
        let more = async {
            while let Some(ended) = self.asks.join_next().await {
                self.take(ended);
            }
        };
        let _ = timeout(BATCH_WINDOW, more).await;
    }

    fn take(&mut self, ended: Result<NodeAnswer, PanickedTask<QueryKey>>) {
        match ended {
            Ok(answer) => {
                self.under_way.remove(&key(&answer));
                self.unhandled.push(answer);
            }
            // The node is queried again after a pause.
            Err(PanickedTask { key, error }) => {
                let QueryKey { of, was_suspect } = key;
                tracing::error!(node = %of.1, %error, "node query task panicked");
                self.under_way.remove(&of);
                let until = Instant::now() + PANIC_PAUSE;
                let wait = RequeryCondition::Pause { until, was_suspect };
                self.waits.insert(of, wait);
            }
        }
    }

    /// Returns the answers received since the last call; those that take nodes out of service come first.
    pub(super) fn answers(&mut self) -> Vec<NodeAnswer> {
        while let Some(ended) = self.asks.try_join_next() {
            self.take(ended);
        }
        let mut answer = std::mem::take(&mut self.unhandled);
        answer.sort_by_key(|answer| (answer.intent, answer.cause));
        answer
    }

    /// Schedules the next query of this node after `pause`.
    pub(super) fn schedule_requery(&mut self, answer: &NodeAnswer, pause: Duration) {
        let wait = RequeryCondition::Pause {
            until: Instant::now() + pause,
            was_suspect: answer.was_suspect,
        };
        self.waits.insert(key(answer), wait);
    }

    /// Marks the drain reason as cleared in revision `written`. The node is not queried again before the view includes
    /// that revision.
    pub(super) fn record_cleared(&mut self, answer: &NodeAnswer, written: Revision) {
        self.waits
            .insert(key(answer), RequeryCondition::Shown(written));
    }

    /// Whether the node was queried and waits for the next query.
    pub(super) fn waits(&self, cause: Cause, node: &NodeId) -> bool {
        self.waits.contains_key(&(cause, node.clone()))
    }

    /// Ends every pause, as if its time had passed.
    #[cfg(test)]
    pub(super) fn forget_pauses(&mut self) {
        self.waits.clear();
    }

    /// Number of queries under way.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

fn key(answer: &NodeAnswer) -> (Cause, NodeId) {
    (answer.cause, answer.entry.id.clone())
}

/// Whether the node is a member of the cluster: neither joining nor retired.
pub(super) fn is_member(record: &Node) -> bool {
    !matches!(record.lifecycle, Lifecycle::Joining | Lifecycle::Retired)
}

/// Alive members that satisfy `is_one`, by cause.
pub(super) fn candidates(
    view: &View,
    is_one: impl Fn(Cause, &NodeEntry) -> bool,
) -> impl Iterator<Item = (Cause, Arc<NodeEntry>)> {
    let all = Cause::ALL.into_iter();
    let all = all.flat_map(|cause| view.nodes.values().map(move |entry| (cause, entry)));
    let found = all.filter(move |(cause, entry)| {
        let is_member = entry.record.as_ref().is_some_and(is_member);
        entry.liveness == Liveness::Alive && is_member && is_one(*cause, entry)
    });
    found.map(|(cause, entry)| (cause, entry.clone()))
}

/// Checks whether the drain reason may be cleared. If other reasons remain, the answer of the node that this cause is
/// over suffices. Clearing the last reason returns the node to service, so the full gate check applies.
async fn may_clear(
    nodes: &NodeAccess,
    view: &View,
    cause: Cause,
    entry: &NodeEntry,
) -> Result<String, String> {
    let drains = entry.record.iter().flat_map(|record| &record.drain);
    if drains.count() > 1 {
        return match cause.ask(nodes, view, entry).await {
            Answer::Healthy => Ok(String::new()),
            Answer::Drains(why) | Answer::Unknown(why) => Err(why),
        };
    }
    let passed = readmission::check(nodes, &entry.id, &Freshness::NOW).await;
    passed
        .map(|()| String::new())
        .map_err(|error| error.to_string())
}
