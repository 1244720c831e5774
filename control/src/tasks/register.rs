//! Registration: an agent that gossips a whole first reading becomes a node of the cluster, where
//! the site allows that. Gossip only says whom to ask: the document was fetched from the agent
//! itself, and the agent answers for its health gate before its node is accepted for work.

use crate::{
    core::Core,
    tasks::{
        faults,
        gate::{self, GateError, Said},
        reconciler::{Pace, Reconciler},
        told::Freshness,
    },
    view::{NodeEntry, View},
    words,
};
use lattice_hwprobe::Class;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    Command, Envelope, NodeId, VclusterName, command::Fence, node::Lifecycle,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

/// A starting cluster's agents appear together.
const PACE: Pace = Pace {
    period: Duration::from_secs(5),
    spacing: Duration::from_millis(100),
};
/// An agent that could not be asked is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Nodes asked at a time.
const MAX_CALLS: usize = 256;
/// Answers that come together are proposed together.
const TOGETHER: Duration = Duration::from_millis(20);

pub(crate) type Asked = (NodeId, Result<(), GateError>);

/// Where one joining node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Asking,
    Waits { until: Instant },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Register {
    core: Arc<Core>,
    /// Where new nodes go.
    vcluster: VclusterName,
    progress: BTreeMap<NodeId, Progress>,
    /// What stands written of those that do not pass.
    said: BTreeMap<NodeId, Said>,
    gates: JoinSet<Asked>,
    /// Answers that have come and were not handed on yet.
    heard: Vec<Asked>,
    /// Answers that the next pass acts on.
    answered: Vec<Asked>,
}

/// What one round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RegisterReport {
    /// Made known.
    pub(crate) registered: Vec<NodeId>,
    /// Accepted for work.
    pub(crate) readied: Vec<NodeId>,
    /// The quorum did not take it, or the node did not pass; tried again.
    pub(crate) failed: usize,
}

/// What a command of ours does, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Registers,
    Explains,
    Readies,
}

impl Reconciler for Register {
    const NAME: &'static str = "register";

    fn pace(&self) -> Pace {
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
        self.gates.abort_all();
        self.heard.clear();
        self.answered.clear();
        self.progress.clear();
    }

    async fn wakes(&mut self) {
        let answered = self.answered().await;
        self.answered.extend(answered);
    }
}

impl Register {
    pub(crate) fn new(core: Arc<Core>, vcluster: VclusterName) -> Self {
        Self {
            core,
            vcluster,
            progress: BTreeMap::new(),
            said: BTreeMap::new(),
            gates: JoinSet::new(),
            heard: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Resolves when nodes that were asked have answered, or cannot. What has come is kept when
    /// this is dropped before it resolves: a node whose answer were lost would be asked for ever.
    pub(crate) async fn answered(&mut self) -> Vec<Asked> {
        let (gates, heard) = (&mut self.gates, &mut self.heard);
        if heard.is_empty() {
            match gates.join_next().await {
                None => return std::future::pending().await,
                Some(Ok(first)) => heard.push(first),
                Some(Err(error)) => {
                    // Whose it was is not known: all are asked again.
                    if error.is_panic() {
                        tracing::error!(%error, "asking a node broke down");
                    }
                    self.progress.retain(|_, p| *p != Progress::Asking);
                    return Vec::new();
                }
            }
        }
        let more = async {
            while let Some(next) = gates.join_next().await {
                heard.extend(next);
            }
        };
        let _ = timeout(TOGETHER, more).await;
        std::mem::take(heard)
    }

    /// Asks every node that would join and was not asked yet. Returns how many.
    pub(crate) fn reconcile(&mut self) -> usize {
        if self.core.view_age_ms().is_none() {
            return 0;
        }
        let (view, now) = (self.core.view(), Instant::now());
        self.progress
            .retain(|node, _| view.node(node).is_some_and(|entry| joins(entry)));
        self.said
            .retain(|node, _| view.node(node).is_some_and(|entry| joins(entry)));
        let mut asked = 0;
        for entry in view.nodes.values().filter(|entry| joins(entry)) {
            let is_due = match self.progress.get(&entry.id) {
                None => true,
                Some(Progress::Asking) => false,
                Some(Progress::Waits { until }) => *until <= now,
            };
            if !is_due || self.gates.len() >= MAX_CALLS {
                continue;
            }
            let (core, node) = (self.core.clone(), entry.id.clone());
            self.progress.insert(node.clone(), Progress::Asking);
            self.gates.spawn(async move {
                let passed = gate::check(&core, &node, &Freshness::Recent).await;
                (node, passed)
            });
            asked += 1;
        }
        asked
    }

    /// Registers those that answered, and readies those of them that passed.
    pub(crate) async fn admit(&mut self, fence: Fence, answered: Vec<Asked>) -> RegisterReport {
        let mut report = RegisterReport::default();
        let view = self.core.view();
        let (mut envelopes, mut about) = (Vec::new(), Vec::new());
        for (node, passed) in answered {
            let pause = match &passed {
                Ok(()) => ASK_AGAIN,
                Err(error) if error.is_verdict() => self.core.timings.gate_every,
                Err(_) => ASK_AGAIN,
            };
            if let Err(error) = &passed {
                tracing::warn!(%node, %error, "node is not accepted for work yet");
                report.failed += 1;
            }
            let until = Instant::now() + pause.min(self.core.timings.gate_every);
            self.progress
                .insert(node.clone(), Progress::Waits { until });
            for (step, envelope) in self.steps(&view, &fence, &node, passed) {
                envelopes.push(envelope);
                about.push((node.clone(), step));
            }
        }
        if envelopes.is_empty() {
            return report;
        }
        match self.core.store.propose(envelopes).await {
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

    /// What follows from a node's answer.
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
            self.core
                .envelope(self.core.service(), None, fence, command)
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
                let said = self.said.get(node);
                if known.is_some() && said.is_some_and(|said| said.covers(error)) {
                    return steps;
                }
                self.said.insert(node.clone(), Said::now(error));
                Some(words::shortened(error.to_string()))
            }
            Err(_) => return steps,
            Ok(()) => None,
        };
        if known != says_no.as_deref() {
            let envelope = faults::drain_envelope(&self.core, fence.clone(), node, says_no);
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

/// Whether it is to be asked: it answers, placement knows what it is, and nobody accepted it yet.
fn joins(node: &NodeEntry) -> bool {
    let lifecycle = node.record.as_ref().map(|record| record.lifecycle);
    node.liveness == Liveness::Alive
        && lifecycle.is_none_or(|lifecycle| lifecycle == Lifecycle::Joining)
        && has_whole_reading(node)
}

/// It has said something of every standing class, be it that it could not be read or is switched off,
/// and its document was fetched from itself and verified.
fn has_whole_reading(node: &NodeEntry) -> bool {
    node.document.is_some()
        && Class::STANDING
            .iter()
            .all(|class| node.marks().contains_key(class))
}
