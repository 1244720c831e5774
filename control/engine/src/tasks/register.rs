//! Node registration: an agent that gossips a complete first reading becomes a node of the cluster, if the site allows
//! it.
//!
//! Gossip only names candidates. The document is fetched from the agent itself, and its node passes the gate before it
//! accepts jobs.

use crate::{
    keyed_tasks::{KeyedTasks, PanickedTask},
    sanitize,
    tasks::{
        faults,
        node_evidence::{Freshness, NodeAccess},
        readmission::{self, GateError, ReportedFailure},
        reconciler::{Reconciler, ReconcilerPace},
    },
};
use lattice_conformance::Class;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Command, Envelope, NodeId, VclusterName, command::Fence, node::Lifecycle,
};
use lattice_view::{NodeEntry, View};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, timeout};

/// The agents of a starting cluster appear together.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(5),
    spacing: Duration::from_millis(100),
};
/// Delay before the next query of an agent that was not reached, or of a node that passed and is still joining.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Maximum number of nodes queried concurrently.
const MAX_CALLS: usize = 256;
/// Time within which answers are collected and proposed together.
const BATCH_WINDOW: Duration = Duration::from_millis(20);

pub(crate) type GateAnswer = (NodeId, Result<(), GateError>);

/// State of one joining node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryState {
    Asking,
    Waits { until: Instant },
}

/// Registration reconciler; see the module.
#[derive(Debug)]
pub struct Register {
    nodes: NodeAccess,
    /// vCluster of newly registered nodes.
    vcluster: VclusterName,
    progress: BTreeMap<NodeId, QueryState>,
    /// Reason last written for each node that does not pass.
    reported: BTreeMap<NodeId, ReportedFailure>,
    gates: KeyedTasks<NodeId, GateAnswer>,
    /// Answers received but not yet returned.
    received: Vec<GateAnswer>,
    /// Answers for the next pass.
    answered: Vec<GateAnswer>,
}

/// Result of one round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RegisterReport {
    /// Nodes registered.
    pub(crate) registered: Vec<NodeId>,
    /// Nodes accepted for jobs.
    pub(crate) readied: Vec<NodeId>,
    /// Nodes that did not pass, and commands that were rejected or not answered; all are retried.
    pub(crate) failed: usize,
}

/// Effect of a proposed command, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Registers,
    Explains,
    Readies,
}

impl Reconciler for Register {
    const NAME: &'static str = "register";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        let answered = std::mem::take(&mut self.answered);
        if !answered.is_empty() {
            let report = self.admit(fence, answered).await;
            if report != RegisterReport::default() {
                tracing::info!(?report, "register");
            }
        }
        self.reconcile();
    }

    fn forget(&mut self) {
        self.gates = KeyedTasks::new();
        self.received.clear();
        self.answered.clear();
        self.progress.clear();
    }

    async fn wakes(&mut self) {
        let answered = self.answered().await;
        self.answered.extend(answered);
    }
}

impl Register {
    /// New [`Register`]; it does nothing until it is run.
    pub fn new(nodes: NodeAccess, vcluster: VclusterName) -> Self {
        Self {
            nodes,
            vcluster,
            progress: BTreeMap::new(),
            reported: BTreeMap::new(),
            gates: KeyedTasks::new(),
            received: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Resolves when queried nodes have answered or failed. Cancel safe: answers already received are kept, because a
    /// node with a lost answer would stay marked as being queried forever.
    pub(crate) async fn answered(&mut self) -> Vec<GateAnswer> {
        if self.received.is_empty() {
            match self.gates.join_next().await {
                None => return std::future::pending().await,
                Some(ended) => self.take(ended),
            }
        }
        let more = async {
            while let Some(ended) = self.gates.join_next().await {
                self.take(ended);
            }
        };
        let _ = timeout(BATCH_WINDOW, more).await;
        std::mem::take(&mut self.received)
    }

    /// Keeps an answer. If a query panicked, its node is queried again after a pause.
    fn take(&mut self, ended: Result<GateAnswer, PanickedTask<NodeId>>) {
        match ended {
            Ok(answer) => self.received.push(answer),
            Err(PanickedTask { key: node, error }) => {
                tracing::error!(%node, %error, "node query task panicked");
                let until = Instant::now() + ASK_AGAIN.min(self.nodes.core.timings.gate_every);
                self.progress.insert(node, QueryState::Waits { until });
            }
        }
    }

    /// Queries every joining node that is due. Returns the number queried.
    pub(crate) fn reconcile(&mut self) -> usize {
        if self.nodes.core.view_age_ms().is_none() {
            return 0;
        }
        let (view, now) = (self.nodes.core.view(), Instant::now());
        self.progress
            .retain(|node, _| view.node(node).is_some_and(|entry| joins(entry)));
        self.reported
            .retain(|node, _| view.node(node).is_some_and(|entry| joins(entry)));
        let mut asked = 0;
        for entry in view.nodes.values().filter(|entry| joins(entry)) {
            let is_due = match self.progress.get(&entry.id) {
                None => true,
                Some(QueryState::Asking) => false,
                Some(QueryState::Waits { until }) => *until <= now,
            };
            if !is_due || self.gates.len() >= MAX_CALLS {
                continue;
            }
            let (nodes, node) = (self.nodes.clone(), entry.id.clone());
            self.progress.insert(node.clone(), QueryState::Asking);
            self.gates.spawn(node.clone(), async move {
                let passed = readmission::check(&nodes, &node, &Freshness::Recent).await;
                (node, passed)
            });
            asked += 1;
        }
        asked
    }

    /// Registers the nodes that answered, and sets those that passed to ready.
    pub(crate) async fn admit(
        &mut self,
        fence: Fence,
        answered: Vec<GateAnswer>,
    ) -> RegisterReport {
        let mut report = RegisterReport::default();
        let view = self.nodes.core.view();
        let (mut envelopes, mut about) = (Vec::new(), Vec::new());
        for (node, passed) in answered {
            let pause = match &passed {
                Ok(()) => ASK_AGAIN,
                Err(error) if error.is_verdict() => self.nodes.core.timings.gate_every,
                Err(_) => ASK_AGAIN,
            };
            if let Err(error) = &passed {
                tracing::warn!(%node, %error, "node not accepted yet");
                report.failed += 1;
            }
            let until = Instant::now() + pause.min(self.nodes.core.timings.gate_every);
            self.progress
                .insert(node.clone(), QueryState::Waits { until });
            for (step, envelope) in self.steps(&view, &fence, &node, passed) {
                envelopes.push(envelope);
                about.push((node.clone(), step));
            }
        }
        if envelopes.is_empty() {
            return report;
        }
        match self.nodes.core.store.propose(envelopes).await {
            Ok(answers) => {
                for ((id, step), answer) in about.into_iter().zip(answers) {
                    match (answer, step) {
                        (Ok(_), Step::Registers) => report.registered.push(id),
                        (Ok(_), Step::Readies) => report.readied.push(id),
                        (Ok(_), Step::Explains) => {}
                        (Err(refusal), _) => {
                            tracing::warn!(node = %id, %refusal, "node not registered");
                            report.failed += 1;
                        }
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "nodes not registered yet");
                report.failed += about.len();
            }
        }
        report
    }

    /// Commands that follow from a node's answer.
    fn steps(
        &mut self,
        view: &View,
        fence: &Fence,
        node: &NodeId,
        passed: Result<(), GateError>,
    ) -> Vec<(Step, Envelope)> {
        let Some(entry) = view.node(node).filter(|entry| joins(entry)) else {
            return Vec::new();
        };
        let propose = |command| {
            let fence = Some(fence.clone());
            self.nodes
                .core
                .envelope(self.nodes.core.service(), None, fence, command)
        };
        let mut steps = Vec::new();
        if entry.record.is_none() {
            let command = Command::RegisterNode {
                node: node.clone(),
                vcluster: self.vcluster.clone(),
            };
            steps.push((Step::Registers, propose(command)));
        }
        let known = faults::own_reason(entry);
        let says_no = match &passed {
            Err(error) if error.is_verdict() => {
                let said = self.reported.get(node);
                if known.is_some() && said.is_some_and(|said| said.covers(error)) {
                    return steps;
                }
                self.reported
                    .insert(node.clone(), ReportedFailure::now(error));
                Some(sanitize::shortened(error.to_string()))
            }
            Err(_) => return steps,
            Ok(()) => None,
        };
        if known != says_no.as_deref() {
            let envelope = faults::drain_envelope(&self.nodes.core, fence.clone(), node, says_no);
            steps.push((Step::Explains, envelope));
        }
        if passed.is_ok() {
            let command = Command::SetLifecycle {
                node: node.clone(),
                lifecycle: Lifecycle::Ready,
            };
            steps.push((Step::Readies, propose(command)));
        }
        steps
    }
}

/// Whether to query the node: it is alive, its reading is complete, and it has not been accepted yet.
fn joins(node: &NodeEntry) -> bool {
    let lifecycle = node.record.as_ref().map(|record| record.lifecycle);
    node.liveness == Liveness::Alive
        && lifecycle.is_none_or(|lifecycle| lifecycle == Lifecycle::Joining)
        && has_complete_reading(node)
}

/// Whether the first reading of the node is complete. The node must have published a state for every standing class
/// (including unreadable and disabled ones). The document of the node must be available: fetched from the node itself
/// and verified, now or earlier.
fn has_complete_reading(node: &NodeEntry) -> bool {
    node.document.is_some()
        && Class::ALWAYS_PUBLISHED
            .iter()
            .all(|class| node.marks().contains_key(class))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::tasks::testing::{id, world::World};

    #[tokio::test]
    async fn panicked_query_is_repeated_alone() {
        let world = World::new();
        let vcluster = VclusterName::new("default").unwrap();
        let mut register = Register::new(world.nodes(), vcluster);
        for node in ["n1", "n2", "n3"] {
            register.progress.insert(id(node), QueryState::Asking);
        }
        register.gates.spawn(id("n1"), std::future::pending());
        register.gates.spawn(id("n2"), async { panic!("a bug") });
        register
            .gates
            .spawn(id("n3"), async { (id("n3"), Ok::<(), GateError>(())) });
        let mut answered = Vec::new();
        // The panicked query and the answer may arrive in two batches.
        while answered.is_empty() || register.gates.len() > 1 {
            let batch = register.answered().await;
            answered.extend(batch.into_iter().map(|(node, _)| node));
        }
        assert_eq!(answered, [id("n3")]);
        assert_eq!(register.progress[&id("n1")], QueryState::Asking);
        let panicked = register.progress[&id("n2")];
        assert!(matches!(panicked, QueryState::Waits { .. }), "{panicked:?}");
        assert_eq!(register.gates.len(), 1);
    }
}
