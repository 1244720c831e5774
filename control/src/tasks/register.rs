//! Registration: an agent that gossips a whole first reading becomes a node of the cluster, where
//! the site allows that. Whoever gossips was enrolled; what it claims to be decides nothing here.

use crate::{
    core::Core,
    tasks::{activation::Activation, lease::Lease},
    view::NodeEntry,
};
use lattice_hwprobe::Class;
use lattice_quorum_types::{Command, NodeId, VclusterName, command::Fence, node::Lifecycle};
use std::{sync::Arc, time::Duration};

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(5);
/// A starting cluster's agents appear together.
const SPACING: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Register {
    core: Arc<Core>,
    lease: Arc<Lease>,
    /// Where new nodes go.
    vcluster: VclusterName,
}

/// What one round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RegisterReport {
    /// Made known.
    pub(crate) registered: Vec<NodeId>,
    /// Accepted for work.
    pub(crate) readied: Vec<NodeId>,
    /// The quorum did not take it; tried again.
    pub(crate) failed: usize,
}

impl Register {
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>, vcluster: VclusterName) -> Self {
        Self {
            core,
            lease,
            vcluster,
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING).with_lease(&self.lease);
        loop {
            activation.next().await;
            if let Some(fence) = self.lease.fence() {
                let report = self.reconcile(fence).await;
                if report != RegisterReport::default() {
                    tracing::info!(?report, "register");
                }
            }
        }
    }

    /// Registers whoever has a whole reading, and readies whoever is joining.
    pub(crate) async fn reconcile(&self, fence: Fence) -> RegisterReport {
        let mut report = RegisterReport::default();
        if self.core.view_age_ms().is_none() {
            return report;
        }
        let (mut envelopes, mut about) = (Vec::new(), Vec::new());
        let service = self.core.service();
        for node in self.core.view().nodes.values() {
            if !has_whole_reading(node) {
                continue;
            }
            let id = node.id.clone();
            let lifecycle = node.record.as_ref().map(|record| record.lifecycle);
            let mut propose = |command, registers| {
                let fence = Some(fence.clone());
                envelopes.push(self.core.envelope(service.clone(), None, fence, command));
                about.push((id.clone(), registers));
            };
            if lifecycle.is_none() {
                let command = Command::RegisterNode {
                    node: node.id.clone(),
                    vcluster: self.vcluster.clone(),
                };
                propose(command, true);
            }
            if lifecycle.is_none_or(|lifecycle| lifecycle == Lifecycle::Joining) {
                let command = Command::SetLifecycle {
                    node: node.id.clone(),
                    lifecycle: Lifecycle::Ready,
                };
                propose(command, false);
            }
        }
        if envelopes.is_empty() {
            return report;
        }
        match self.core.store.propose(envelopes).await {
            Ok(answers) => {
                for ((id, registers), answer) in about.into_iter().zip(answers) {
                    match (answer, registers) {
                        (Ok(_), true) => report.registered.push(id),
                        (Ok(_), false) => report.readied.push(id),
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
}

/// It has published every class, complete or not, and its document was verified: placement knows
/// what it is.
fn has_whole_reading(node: &NodeEntry) -> bool {
    node.document.is_some()
        && Class::ALL
            .iter()
            .all(|class| node.marks().contains_key(class))
}
