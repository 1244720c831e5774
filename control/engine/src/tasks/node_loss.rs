//! Node loss reconciler: stops an allocation that holds a node which has been unreachable for long.
//!
//! The other ranks of the allocation are ended. The lost node stays held until its processes are known to be gone: by a
//! report of its agent, another boot id, or an operator's statement.
//!
//! Until a node has answered once, its address rests on gossip. A forged address is detected here: the real agent keeps
//! its certified connection to control.

use crate::{
    core::Core,
    tasks::reconciler::{Reconciler, ReconcilerPace},
};
use lattice_mesh::Role;
use lattice_placement::Liveness;
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, NodeId, allocation::StopCause, command::Fence,
};
use lattice_view::View;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// No caller waits for this reconciler.
const PACE: ReconcilerPace = ReconcilerPace {
    period: Duration::from_secs(1),
    spacing: Duration::from_millis(500),
};

/// Node loss reconciler; see the module.
#[derive(Debug)]
pub struct NodeLoss {
    core: Arc<Core>,
    /// Time for which a node must be unreachable before its allocation is stopped.
    stop_after: Duration,
    /// Time since which this control, while holding the lease, has seen each node as unreachable.
    since: BTreeMap<NodeId, Instant>,
}

impl Reconciler for NodeLoss {
    const NAME: &'static str = "node loss";

    fn pace(&self) -> ReconcilerPace {
        PACE
    }

    async fn pass(&mut self, fence: Fence) {
        self.reconcile(&fence).await;
    }

    fn forget(&mut self) {
        self.since.clear();
    }
}

impl NodeLoss {
    /// New [`NodeLoss`]; it does nothing until it is run.
    pub fn new(core: Arc<Core>, stop_after: Duration) -> Self {
        Self {
            core,
            stop_after,
            since: BTreeMap::new(),
        }
    }

    /// Stops the allocations that are due. Returns the number stopped.
    pub(crate) async fn reconcile(&mut self, fence: &Fence) -> usize {
        let view = self.core.view();
        let mut stopped = 0;
        let due = self.due(&view, Instant::now());
        let connected = match due.is_empty() {
            true => BTreeSet::new(),
            false => connected(&self.core),
        };
        for (node, id) in due {
            if connected.contains(node.as_str()) {
                tracing::warn!(%node, %id, "node is unreachable for its peers, but its agent \
                    answers this control; allocation not stopped");
                continue;
            }
            let after_s = self.stop_after.as_secs();
            tracing::error!(%node, %id, after_s, "node unreachable beyond the limit; stopping \
                its allocation");
            let cause = StopCause::NodeLost { node };
            let command = Command::Stop { id, cause };
            match self
                .core
                .propose_as_service(Some(fence.clone()), command)
                .await
            {
                Ok(_) => stopped += 1,
                Err(error) => tracing::warn!(%id, %error, "allocation not stopped yet"),
            }
        }
        stopped
    }

    /// Allocations on nodes that have been unreachable for long enough.
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

/// Agents with an open connection. The idle timeout is 30 s, so each agent has sent data within that time.
fn connected(core: &Core) -> BTreeSet<String> {
    let peers = core.agents.mesh().connections().into_iter();
    let agents = peers.filter(|peer| peer.role() == Role::Agent);
    agents.map(|peer| peer.id().to_owned()).collect()
}
