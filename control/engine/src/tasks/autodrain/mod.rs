//! Automatic draining: takes unfit nodes out of service and clears the drain reason once they are fit.
//!
//! Gossip alone drains no node. Further conditions apply to an automatic drain:
//! - the node confirms the cause in answer to a direct query;
//! - only a few nodes are drained per time window, then an operator must decide ([`brake`]);
//! - the quorum still has the node as a member at the time of the decision;
//! - for [`Cause::Conformance`], no baseline has changed since the query.
//!
//! Queries run concurrently with each other and with the pass. Each answer is handled when it arrives, against the
//! current view, so a silent node delays no other.
//!
//! Each cause has its own drain reason and never changes that of another. Clearing the last reason returns the node to
//! service, so the node passes the gate (`tasks/readmission.rs`) first.

mod brake;
mod cause;
mod node_queries;
#[cfg(test)]
mod tests;

use crate::tasks::{
    faults,
    node_evidence::NodeAccess,
    reconciler::{Reconciler, ReconcilerPace},
};
use brake::Brake;
pub(crate) use cause::Cause;
use lattice_quorum_types::{Applied, Command, NodeId, Revision, command::Fence, node::Node};
use lattice_view::View;
use node_queries::{DrainIntent, NodeAnswer, NodeQueries, candidates, is_member};
use std::{collections::BTreeSet, time::Duration};

/// Longest time between two passes.
const PERIOD: Duration = Duration::from_secs(5);
/// Shortest time between two passes; a rolling update changes many nodes at a time.
const SPACING: Duration = Duration::from_secs(1);
/// Delay before a node is queried again that did not answer, did not confirm the suspected cause, stays drained, or has
/// just been drained.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// Delay before a retry after a drain or a hold of the brake that was not committed, or a drain that rests on an
/// outdated state.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Result of one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoDrainReport {
    /// Nodes drained.
    pub(crate) drained: usize,
    /// Reasons cleared.
    pub(crate) cleared: usize,
    /// Queried nodes that did not confirm the suspected cause.
    pub(crate) unconfirmed: usize,
    /// Whether the brake was engaged.
    pub(crate) braked: bool,
}

/// Reconciler for automatic draining; see the module.
#[derive(Debug)]
pub struct AutoDrain {
    nodes: NodeAccess,
    queries: NodeQueries,
    brake: Brake,
}

impl Reconciler for AutoDrain {
    const NAME: &'static str = "autodrain";

    fn pace(&self) -> ReconcilerPace {
        ReconcilerPace {
            period: PERIOD,
            spacing: SPACING,
        }
    }

    async fn pass(&mut self, fence: Fence) {
        let report = self.act(&fence).await;
        if report != AutoDrainReport::default() {
            tracing::debug!(?report, "autodrain");
        }
        self.ask();
    }

    fn forget(&mut self) {
        *self = Self::new(self.nodes.clone());
    }

    async fn wakes(&mut self) {
        self.queries.receive().await;
    }
}

impl AutoDrain {
    /// New [`AutoDrain`]; it does nothing until it is run.
    pub fn new(nodes: NodeAccess) -> Self {
        Self {
            queries: NodeQueries::new(nodes.clone()),
            nodes,
            brake: Brake::default(),
        }
    }

    /// Queries the candidates, up to the concurrency limit, and handles every answer, however long the answers take.
    #[cfg(any(test, feature = "testing"))]
    pub async fn reconcile(&mut self, fence: Fence) -> AutoDrainReport {
        let mut report = AutoDrainReport::default();
        self.ask();
        while self.queries.under_way() > 0 {
            self.queries.receive().await;
            let more = self.act(&fence).await;
            report.drained += more.drained;
            report.cleared += more.cleared;
            report.unconfirmed += more.unconfirmed;
            report.braked |= more.braked;
        }
        report
    }

    /// Queries every candidate, up to the concurrency limit.
    fn ask(&mut self) {
        let (view, bmcs) = (self.nodes.core.view(), &self.nodes.readings);
        self.brake.update(&view, self.nodes.core.now());
        if !self.brake.is_held(&view) {
            self.queries
                .ask_for(&view, DrainIntent::Drain, |cause, entry| {
                    cause.own_reason(entry).is_none() && cause.suspects(bmcs, entry)
                });
        }
        self.queries
            .ask_for(&view, DrainIntent::Clear, |cause, entry| {
                let is_free = entry.record.as_ref().is_some_and(|r| r.holder.is_none());
                cause.own_reason(entry).is_some() && is_free && cause.may_be_over(&view, entry)
            });
    }

    /// Handles received answers. If more nodes confirm than may be drained, the first answers are used.
    async fn act(&mut self, fence: &Fence) -> AutoDrainReport {
        let mut report = AutoDrainReport::default();
        let mut beyond = Vec::new();
        for answer in self.queries.answers() {
            match (answer.intent, answer.result.clone()) {
                (DrainIntent::Drain, Ok(reason)) => {
                    if self.exceeds_budget(&answer) {
                        beyond.push(answer);
                    } else if self.drain_one(fence, &answer, reason).await {
                        report.drained += 1;
                    }
                }
                (DrainIntent::Drain, Err(why)) => {
                    let (node, cause) = (&answer.entry.id, answer.cause);
                    tracing::debug!(%node, ?cause, why, "fault not confirmed; node not drained");
                    report.unconfirmed += 1;
                    self.queries.schedule_requery(&answer, ASK_AGAIN);
                }
                (DrainIntent::Clear, said) => {
                    report.cleared += usize::from(self.clear_one(fence, &answer, said).await);
                }
            }
        }
        if !beyond.is_empty() {
            report.braked = self.engage_brake(fence, beyond).await;
        }
        report
    }

    /// Whether the drain is still wanted: meanwhile the brake may have been engaged, a baseline changed, or the
    /// suspicion ended.
    fn is_wanted(&self, view: &View, answer: &NodeAnswer) -> bool {
        let node = &answer.entry.id;
        !self.brake.is_held(view)
            && answer
                .cause
                .is_drain_current(&self.nodes.readings, view, answer.number, node)
    }

    /// Whether draining this node would exceed the budget.
    fn exceeds_budget(&mut self, answer: &NodeAnswer) -> bool {
        let (view, now) = (self.nodes.core.view(), self.nodes.core.now());
        self.brake.update(&view, now);
        record(&view, answer).is_some_and(brake::counts)
            && self.is_wanted(&view, answer)
            && !self.brake.is_being_drained(&view, &answer.entry.id)
            && self.brake.left(&view, now) == 0
    }

    async fn drain_one(&mut self, fence: &Fence, answer: &NodeAnswer, reason: String) -> bool {
        let (node, cause) = (&answer.entry.id, answer.cause);
        let view = self.nodes.core.view();
        let now = record(&view, answer);
        let is_wanted = self.is_wanted(&view, answer) && !self.brake.is_being_drained(&view, node);
        let Some(now) = now.filter(|_| is_wanted) else {
            self.queries.schedule_requery(answer, TRY_AGAIN);
            return false;
        };
        // The current revision is expected, because the drain was found to be wanted on the current view. Every
        // assignment and release changes the record, and the answer may have taken most of a minute.
        let written = self.write(fence, answer, Some(reason.clone()), Some(now.revision));
        match written.await {
            Ok(applied) => {
                tracing::warn!(%node, ?cause, reason, "node drained automatically");
                let counts = brake::counts(now);
                let when = (applied.revision, self.nodes.core.now());
                self.brake.drained(node.clone(), cause, when, counts);
                // The node has just confirmed the cause; whether it is over is checked later.
                self.queries.schedule_requery(answer, ASK_AGAIN);
                true
            }
            Err(error) => {
                tracing::warn!(%node, ?cause, error, "node not drained yet");
                self.queries.schedule_requery(answer, TRY_AGAIN);
                false
            }
        }
    }

    /// Clears the drain reason if its cause is over. The reason of another cause stays.
    async fn clear_one(
        &mut self,
        fence: &Fence,
        answer: &NodeAnswer,
        said: Result<String, String>,
    ) -> bool {
        let (node, cause) = (&answer.entry.id, answer.cause);
        let outcome = match said {
            // The revision at the time of the query is expected: the answer of the node was about that state.
            Ok(_) => {
                let expected = answer.entry.record.as_ref().map(|record| record.revision);
                self.write(fence, answer, None, expected).await
            }
            Err(why) => Err(why),
        };
        match outcome {
            Ok(applied) => {
                tracing::info!(%node, ?cause, "cause of automatic drain ended");
                self.queries.record_cleared(answer, applied.revision);
                true
            }
            Err(reason) => {
                tracing::info!(%node, ?cause, reason, "node stays drained");
                self.queries.schedule_requery(answer, ASK_AGAIN);
                false
            }
        }
    }

    /// Sets or clears the drain reason on the node record of revision `expected`.
    async fn write(
        &self,
        fence: &Fence,
        answer: &NodeAnswer,
        reason: Option<String>,
        expected: Option<Revision>,
    ) -> Result<Applied, String> {
        let (core, owner, node) = (&self.nodes.core, answer.cause.owner(), &answer.entry.id);
        let envelope = faults::envelope(core, owner, fence.clone(), node, reason, expected);
        let written = faults::propose_envelope(core, envelope).await;
        written.map_err(|error| error.to_string())
    }

    /// Engages the brake, so that further drains need an operator.
    async fn engage_brake(&mut self, fence: &Fence, mut beyond: Vec<NodeAnswer>) -> bool {
        let view = self.nodes.core.view();
        beyond.retain(|answer| self.is_wanted(&view, answer));
        // The service of the most urgent cause among the blocked drains is the principal.
        let Some(cause) = beyond.first().map(|answer| answer.cause) else {
            return false;
        };
        let reason = self.brake_reason(&view, &beyond);
        tracing::error!(reason, "automatic draining stopped by its safety limit");
        let command = Command::HoldBrake { reason };
        let principal = faults::principal(cause.owner());
        let envelope = self
            .nodes
            .core
            .envelope(principal, None, Some(fence.clone()), command);
        match faults::propose_envelope(&self.nodes.core, envelope).await {
            Ok(applied) => {
                self.brake.record_engaged(applied.revision);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "safety stop of automatic draining not committed yet");
                for answer in &beyond {
                    self.queries.schedule_requery(answer, TRY_AGAIN);
                }
                false
            }
        }
    }

    /// Reason shown to the operator: nodes that confirmed a cause, and separately how many others are suspected.
    fn brake_reason(&self, view: &View, beyond: &[NodeAnswer]) -> String {
        let (nodes, now) = (brake::nodes(view), self.nodes.core.now());
        let of = |cause: Cause| {
            let held_up = beyond.iter().filter(|answer| answer.cause == cause);
            let held_up: BTreeSet<NodeId> = held_up.map(|answer| answer.entry.id.clone()).collect();
            if held_up.is_empty() {
                return None;
            }
            let mut confirmed = self.brake.drained_for(view, cause, now);
            confirmed.extend(held_up);
            let suspects = candidates(view, |of, entry| {
                of == cause
                    && of.own_reason(entry).is_none()
                    && of.suspects(&self.nodes.readings, entry)
                    && !confirmed.contains(&entry.id)
                    && !self.queries.waits(of, &entry.id)
            });
            Some(cause.describe(confirmed.len(), suspects.count(), nodes))
        };
        let causes: Vec<String> = Cause::ALL.into_iter().filter_map(of).collect();
        format!(
            "{}; limit: {} automatic drains in {} minutes; an operator must release the brake",
            causes.join(", and "),
            brake::max_drains(nodes),
            brake::WINDOW_MS / 60_000
        )
    }
}

/// Record of the queried node in that view; `None` if it is no longer a member.
fn record<'v>(view: &'v View, answer: &NodeAnswer) -> Option<&'v Node> {
    let entry = view.node(&answer.entry.id)?;
    entry.record.as_ref().filter(|record| is_member(record))
}
