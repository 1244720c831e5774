//! Work on nodes that are gone: an allocation that holds a node which has been unreachable for
//! long is stopped. Its other ranks are ended; the lost node stays held until its processes are
//! known to be gone, by its agent's report, another boot id, or a person's word.

use crate::{
    core::Core,
    tasks::{activation::Activation, lease::Lease},
    view::View,
};
use lattice_placement::Liveness;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, NodeId, allocation::StopCause, command::Fence,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Looks at least this often.
const PERIOD: Duration = Duration::from_secs(1);
/// Nobody waits for it.
const SPACING: Duration = Duration::from_millis(500);

/// See the module.
#[derive(Debug)]
pub(crate) struct NodeLoss {
    core: Arc<Core>,
    lease: Arc<Lease>,
    /// How long a node is unreachable before its allocation is stopped.
    stop_after: Duration,
    /// Since when this control, holding the lease, knows nodes as unreachable.
    since: BTreeMap<NodeId, Instant>,
}

impl NodeLoss {
    pub(crate) fn new(core: Arc<Core>, lease: Arc<Lease>, stop_after: Duration) -> Self {
        Self {
            core,
            lease,
            stop_after,
            since: BTreeMap::new(),
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let mut activation = Activation::new(&self.core, PERIOD, SPACING).with_lease(&self.lease);
        loop {
            activation.next().await;
            match self.lease.fence() {
                Some(fence) => {
                    self.reconcile(&fence).await;
                }
                None => self.since.clear(),
            }
        }
    }

    /// Stops what is due. Returns how many.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> usize {
        let view = self.core.view();
        let mut stopped = 0;
        for (node, id) in self.due(&view, Instant::now()) {
            let after_s = self.stop_after.as_secs();
            tracing::error!(%node, %id, after_s, "its node has been unreachable for long; stopping it");
            let cause = StopCause::NodeLost { node };
            let command = Command::Stop { id, cause };
            match self
                .core
                .propose_as_service(Some(fence.clone()), command)
                .await
            {
                Ok(_) => stopped += 1,
                Err(error) => tracing::warn!(%id, %error, "not stopped yet"),
            }
        }
        stopped
    }

    fn due(&mut self, view: &View, now: Instant) -> Vec<(NodeId, AllocationId)> {
        let is_lost = |node: &NodeId| {
            let entry = view.node(node);
            entry.is_some_and(|entry| entry.liveness == Liveness::Unreachable)
        };
        self.since.retain(|node, _| is_lost(node));
        let mut due = Vec::new();
        for entry in view.nodes.values().filter(|entry| is_lost(&entry.id)) {
            let since = *self.since.entry(entry.id.clone()).or_insert(now);
            if now.saturating_duration_since(since) < self.stop_after {
                continue;
            }
            let holder = entry.record.as_ref().and_then(|record| record.holder);
            let held = holder.and_then(|holder| view.allocation(holder.allocation));
            if let Some(held) = held
                && held.state.holds()
                && held.state != AllocationState::Stopping
            {
                due.push((entry.id.clone(), held.id));
            }
        }
        due
    }
}
