//! Cluster state of this control as one immutable value: the replicated half, updated from the quorum's watch, joined
//! with the gossip of the nodes and the results of pings.

mod drift_state;
mod last_plan;
mod node;
#[cfg(test)]
mod tests;

pub use drift_state::{BaselineEffect, DriftReference, DriftedNode, Report, Unknown};
pub use last_plan::{LastPlan, NotAssigned, Planned};
pub use node::{BmcFaults, EXECUTOR_REASONS, MergedMark, SILENT};
pub use node::{GossipedNode, NodeEntry};

use crate::baselines::Baselines;
use lattice_conformance::{DriftReport, Levels, NodeView};
use lattice_placement::NodeFacts;
use lattice_quorum_types::{
    NodeId, UnixMillis, VclusterName,
    baseline::Brake,
    node::{Lifecycle, Node},
};
use lattice_view::{BaseView, ViewNode};
use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// The cluster at one moment. A reader may hold a view for any time; a change creates a new view. Unchanged parts are
/// shared.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Committed records and site inputs, the inputs of scheduling. Available as fields of the view through `Deref`.
    pub base: BaseView<NodeEntry>,
    /// Incremented with every published view, also when only gossip changed.
    pub version: u64,
    /// Incremented when a node's marks or document change, the inputs of conformance comparison.
    pub(crate) conformance_version: u64,
    /// Last plans of the vClusters that this control schedules, with the reasons why allocations wait.
    pub plan: Arc<LastPlan>,
    /// Nodes that differ from the majority of their cohort, by the preimages available.
    pub drift: Arc<DriftReport>,
    /// Nodes that differ from their baseline, or without one from their cohort.
    pub judged: Arc<Report>,
    /// Number of the last usage record that this control has received; 0 before the first.
    pub(crate) facts: u64,
    /// Baselines in force.
    pub baselines: Arc<Baselines>,
    /// Set while automatic draining is stopped and waits for an operator.
    pub brake: Option<Arc<Brake>>,
    /// Time of the last release of the brake by an operator, if this control received that event.
    pub(crate) brake_released_at: Option<UnixMillis>,
    /// Gossip cells that this control has joined, with the number of agents seen in each.
    pub cells: Arc<BTreeMap<String, u64>>,
    /// Whether this control acts: it dispatches, or schedules a vCluster.
    pub acting: bool,
    /// Whether this control holds the dispatch lease.
    pub dispatches: bool,
    /// vClusters that this control schedules, with the epochs of their leases.
    pub schedules: Arc<BTreeMap<VclusterName, u64>>,
}

impl Deref for View {
    type Target = BaseView<NodeEntry>;

    fn deref(&self) -> &Self::Target {
        &self.base
    }
}

impl DerefMut for View {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.base
    }
}

impl ViewNode for NodeEntry {
    fn unknown(id: NodeId) -> Self {
        Self::new(id)
    }

    fn record(&self) -> Option<&Node> {
        self.record.as_ref()
    }

    fn set_record(&mut self, record: Node) -> Option<Node> {
        self.record.replace(record)
    }

    fn facts(&self) -> NodeFacts {
        self.facts()
    }
}

impl View {
    /// Sets `acting` from the leases held.
    pub(crate) fn acts(&mut self) {
        self.acting = self.dispatches || !self.schedules.is_empty();
    }

    /// Every node that gossips, in the form used for drift and conformance groups.
    pub fn conformance(&self) -> Vec<NodeView> {
        let seen = self.nodes.values().filter(|node| node.seen.is_some());
        seen.map(|node| node.conformance()).collect()
    }

    /// A node in its present state, or in its last known state while it does not gossip.
    pub fn as_known(&self, id: &NodeId) -> Option<&NodeEntry> {
        let entry = self.nodes.get(id)?;
        match &entry.seen {
            Some(_) => Some(entry),
            None => entry.was.as_deref(),
        }
    }

    /// All nodes to compare. A node that is down counts with its last known state until it is retired.
    pub(crate) fn as_known_all(&self) -> impl Iterator<Item = &NodeEntry> {
        let is_retired = |entry: &NodeEntry| {
            let record = entry.record.as_ref();
            record.is_some_and(|record| record.lifecycle == Lifecycle::Retired)
        };
        let ids = self.nodes.iter();
        ids.filter(move |(_, entry)| entry.seen.is_some() || !is_retired(entry))
            .filter_map(|(id, _)| self.as_known(id))
    }

    /// Determines again in which schema each class is compared, and every node's marks in it.
    pub(crate) fn settle_levels(&mut self) {
        let settles = |node: &&Arc<NodeEntry>| node.common.is_some() || !node.earlier().is_empty();
        if !self.nodes.values().any(|node| settles(&node)) {
            return;
        }
        let seen = self.nodes.values().filter(|node| node.seen.is_some());
        let levels = Levels::of(seen.map(|node| (node.marks(), node.earlier())));
        let common = |node: &NodeEntry| {
            // A node without earlier marks has no other form.
            let common = (node.seen.is_some() && !node.earlier().is_empty())
                .then(|| levels.marks(node.marks(), node.earlier()));
            common.filter(|common| common != node.marks())
        };
        let others: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|(id, node)| {
                let common = common(node);
                (node.common.as_deref() != common.as_ref()).then(|| (id.clone(), common))
            })
            .collect();
        if others.is_empty() {
            return;
        }
        let nodes = Arc::make_mut(&mut self.nodes);
        for (id, common) in others {
            if let Some(node) = nodes.get_mut(&id) {
                Arc::make_mut(node).common = common.map(Arc::new);
            }
        }
    }

    /// Whether the effects of baselines on this node were computed from the present data.
    pub(crate) fn is_judged(&self, entry: &NodeEntry) -> bool {
        let effect = entry.effect.as_ref();
        self.baselines.is_empty()
            || effect.is_some_and(|effect| effect.is_of(entry, &self.baselines))
    }

    /// Number of keys in which a node differs from its baseline, or without one from the majority of its cohort. `None`
    /// where the node was compared with neither, or where no key differs but some data is unknown.
    pub fn drifted_keys(&self, id: &NodeId) -> Option<u32> {
        let judged = &self.judged;
        let first = judged.drifted.partition_point(|d| d.node < *id);
        let of_node = judged.drifted[first..].iter();
        let of_node = of_node.take_while(|d| d.node == *id).count();
        let is_whole = || {
            let first = judged.unknown.partition_point(|u| u.node < *id);
            let has_unknown = judged.unknown.get(first).is_some_and(|u| u.node == *id);
            judged.compared.contains(id) && !judged.pending.contains(id) && !has_unknown
        };
        (of_node > 0 || is_whole()).then(|| u32::try_from(of_node).unwrap_or(u32::MAX))
    }
}
