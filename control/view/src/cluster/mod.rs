//! Cluster state of one control as one immutable value: the replicated half, updated from the quorum's watch, joined
//! with the gossip of the nodes and the results of pings and comparisons.

mod events;
mod reports;
#[cfg(test)]
mod tests;

pub use reports::PingOutcome;

use crate::{BaseView, baselines::Baselines, drift::ClusterDrift, node::NodeEntry, plan::LastPlan};
use lattice_conformance::{Digest, DriftReport, Inventory, Levels, NodeView, Schemas, fingerprint};
use lattice_quorum_types::{NodeId, UnixMillis, VclusterName, baseline::Brake, node::Lifecycle};
use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// Incremented when a node's marks or document or the baselines change, the inputs of conformance comparison.
    pub conformance_version: u64,
    /// Last plans of the vClusters that this control schedules, with the reasons why allocations wait.
    pub plan: Arc<LastPlan>,
    /// Nodes that differ from the majority of their cohort, by the preimages available.
    pub cohort_drift: Arc<DriftReport>,
    /// Nodes that differ from their baseline, or without one from their cohort.
    pub cluster_drift: Arc<ClusterDrift>,
    /// Number of the last usage record that this control has received since it last read the whole state; 0 before the
    /// first.
    pub usage_records: u64,
    /// Baselines in force.
    pub baselines: Arc<Baselines>,
    /// Set while automatic draining is stopped and waits for an operator.
    pub brake: Option<Arc<Brake>>,
    /// Time of the last release of the brake by an operator, if this control received that event.
    pub brake_released_at: Option<UnixMillis>,
    /// Gossip cells that this control has joined, with the number of agents seen in each.
    pub cells: Arc<BTreeMap<String, u64>>,
    /// Whether this control acts: it dispatches, or schedules a vCluster.
    pub acting: bool,
    /// Whether this control holds the dispatch lease.
    pub dispatches: bool,
    /// vClusters that this control schedules, with the epochs of their leases.
    pub schedules: Arc<BTreeMap<VclusterName, u64>>,
    /// Schemas in which the nodes are compared.
    levels: Arc<Levels>,
    /// Nodes with an input of conformance that changed since the last [`View::settle`].
    unsettled: BTreeSet<NodeId>,
}

impl From<BaseView<NodeEntry>> for View {
    fn from(base: BaseView<NodeEntry>) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }
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

impl View {
    /// Sets `acting` from the leases held.
    pub fn set_acting(&mut self) {
        self.acting = self.dispatches || !self.schedules.is_empty();
    }

    /// Every node that gossips, in the form used for drift and conformance groups.
    pub fn conformance(&self) -> Vec<NodeView> {
        let seen = self.nodes.values().filter(|node| node.gossip.is_some());
        seen.map(|node| node.compared()).collect()
    }

    /// A node in its present state, or in its last known state while it does not gossip.
    pub fn as_known(&self, id: &NodeId) -> Option<&NodeEntry> {
        let entry = self.nodes.get(id)?;
        match &entry.gossip {
            Some(_) => Some(entry),
            None => entry.last_known.as_deref(),
        }
    }

    /// All nodes to compare. A node that is down counts with its last known state until it is retired.
    pub fn as_known_all(&self) -> impl Iterator<Item = &NodeEntry> {
        let is_retired = |entry: &NodeEntry| {
            let record = entry.record.as_ref();
            record.is_some_and(|record| record.lifecycle == Lifecycle::Retired)
        };
        let ids = self.nodes.iter();
        ids.filter(move |(_, entry)| entry.gossip.is_some() || !is_retired(entry))
            .filter_map(|(id, _)| self.as_known(id))
    }

    /// Adds a node, or replaces it. [`View::settle`] then derives its conformance.
    pub fn insert(&mut self, entry: NodeEntry) {
        self.unsettled.insert(entry.id.clone());
        Arc::make_mut(&mut self.nodes).insert(entry.id.clone(), Arc::new(entry));
    }

    /// Changes a node, which is added if it is not in the view.
    pub(crate) fn edit(&mut self, id: &NodeId, change: impl FnOnce(&mut NodeEntry)) {
        let nodes = Arc::make_mut(&mut self.base.nodes);
        let entry = nodes
            .entry(id.clone())
            .or_insert_with(|| Arc::new(NodeEntry::new(id.clone())));
        change(Arc::make_mut(entry));
    }

    /// Derives the conformance of all nodes with changed inputs: the only writer of
    /// [`NodeConformance`](crate::node::NodeConformance). Call it once after the changes of a new view, before the view
    /// is published.
    pub fn settle(&mut self, now: UnixMillis) {
        let changed = std::mem::take(&mut self.unsettled);
        if changed.is_empty() {
            return;
        }
        let levels = std::mem::take(&mut self.levels);
        self.settle_nodes(changed.iter(), &levels, now);
        self.levels = Arc::new(self.current_levels());
        if self.levels == levels {
            return;
        }
        let dependent = self.nodes.values();
        let dependent = dependent.filter(|node| node.conformance().depends_on_levels());
        let dependent: Vec<NodeId> = dependent.map(|node| node.id.clone()).collect();
        let levels = self.levels.clone();
        self.settle_nodes(dependent.iter(), &levels, now);
    }

    /// Derives the conformance of these nodes. An entry with unchanged conformance stays shared with earlier views.
    fn settle_nodes<'a>(
        &mut self,
        ids: impl Iterator<Item = &'a NodeId>,
        levels: &Levels,
        now: UnixMillis,
    ) {
        let derived = ids.filter_map(|id| {
            let entry = self.nodes.get(id)?;
            let derived = entry.derived(levels);
            (derived != *entry.conformance()).then(|| (id.clone(), derived))
        });
        let derived: Vec<_> = derived.collect();
        if derived.is_empty() {
            return;
        }
        let nodes = Arc::make_mut(&mut self.base.nodes);
        for (id, derived) in derived {
            if let Some(entry) = nodes.get_mut(&id) {
                Arc::make_mut(entry).set_conformance(derived, now);
            }
        }
    }

    /// Schemas in which the nodes are compared. Without a node that publishes two schemas, every node has one form, and
    /// the levels are not needed.
    fn current_levels(&self) -> Levels {
        let depends = |node: &&Arc<NodeEntry>| node.conformance().depends_on_levels();
        if !self.nodes.values().any(|node| depends(&node)) {
            return Levels::default();
        }
        self.published_levels()
    }

    fn published_levels(&self) -> Levels {
        let seen = self.nodes.values().filter(|node| node.gossip.is_some());
        Levels::of(seen.map(|node| (node.marks(), node.earlier())))
    }

    /// Fingerprint of a node with this inventory, as used for comparison with all other nodes.
    pub fn fingerprint_of(&self, inventory: &Inventory) -> Option<Digest> {
        let levels = self.published_levels();
        let earlier = inventory.earlier(&Schemas::SHIPPED);
        fingerprint(&levels.marks(&inventory.marks(), &earlier)).digest()
    }

    /// Whether the effects of baselines on this node were computed from the present data.
    pub fn is_judged(&self, entry: &NodeEntry) -> bool {
        let effect = entry.baseline_effect.as_ref();
        self.baselines.is_empty()
            || effect.is_some_and(|effect| effect.is_of(entry, &self.baselines))
    }

    /// Number of keys in which a node differs from its baseline, or without one from the majority of its cohort. `None`
    /// where the node was compared with neither, or where no key differs but some data is unknown.
    pub fn drifted_keys(&self, id: &NodeId) -> Option<u32> {
        let judged = &self.cluster_drift;
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
