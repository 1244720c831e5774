//! What this control knows of the cluster, as one immutable value: the replicated half, folded
//! from the quorum's watch, joined with what nodes gossip and how they answer.

mod node;
#[cfg(test)]
mod tests;

pub(crate) use node::{EXECUTOR_REASONS, Named, SILENT, United};
pub use node::{NodeEntry, Seen};

use crate::{baselines::Baselines, drift::Report, plans::LastPlan};
use lattice_hwprobe::{DriftReport, Levels, NodeView};
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

/// The cluster at one moment. A reader holds it as long as it likes; a change makes a new one.
/// Parts that did not change are shared.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Committed records and site inputs: what scheduling depends on. Its fields are read as the view's own.
    pub base: BaseView<NodeEntry>,
    /// Grows with every published view, also when only gossip changed.
    pub version: u64,
    /// Grows when a node's marks or its document change: what conformance compares.
    pub(crate) conformance_version: u64,
    /// What the last cycles said of those that wait for vClusters that this control schedules.
    pub plan: Arc<LastPlan>,
    /// Who differs from the majority of its cohort, by the preimages at hand.
    pub drift: Arc<DriftReport>,
    /// Who is not what it is meant to be, by its baseline or else by its cohort.
    pub judged: Arc<Report>,
    /// Number of the last usage fact that this control has received; 0 before the first.
    pub(crate) facts: u64,
    /// What nodes are meant to be.
    pub baselines: Arc<Baselines>,
    /// Set while automatic draining waits for a person.
    pub brake: Option<Arc<Brake>>,
    /// When a person last released it, where this control saw that.
    pub(crate) brake_released_at: Option<UnixMillis>,
    /// Gossip cells this control joined, with how many agents it sees in each.
    pub cells: Arc<BTreeMap<String, u64>>,
    /// Whether this control acts: it dispatches, or schedules a vCluster.
    pub acting: bool,
    /// Whether it dispatches (holds that lease).
    pub dispatches: bool,
    /// The vClusters that it schedules, with the epochs of their leases.
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
    /// Says whether this control acts, by the leases it has.
    pub(crate) fn acts(&mut self) {
        self.acting = self.dispatches || !self.schedules.is_empty();
    }

    /// Every node that gossips, as drift and groups see it.
    pub fn conformance(&self) -> Vec<NodeView> {
        let seen = self.nodes.values().filter(|node| node.seen.is_some());
        seen.map(|node| node.conformance()).collect()
    }

    /// A node as it is, or as it was known last while it gossips nothing.
    pub(crate) fn as_known(&self, id: &NodeId) -> Option<&NodeEntry> {
        let entry = self.nodes.get(id)?;
        match &entry.seen {
            Some(_) => Some(entry),
            None => entry.was.as_deref(),
        }
    }

    /// Everybody who is judged: a node that is down is what it was, until it is retired.
    pub(crate) fn as_known_all(&self) -> impl Iterator<Item = &NodeEntry> {
        let is_retired = |entry: &NodeEntry| {
            let record = entry.record.as_ref();
            record.is_some_and(|record| record.lifecycle == Lifecycle::Retired)
        };
        let ids = self.nodes.iter();
        ids.filter(move |(_, entry)| entry.seen.is_some() || !is_retired(entry))
            .filter_map(|(id, _)| self.as_known(id))
    }

    /// Finds anew in which schema each class is compared, and what every node's marks are there.
    pub(crate) fn settle_levels(&mut self) {
        let settles = |node: &&Arc<NodeEntry>| node.common.is_some() || !node.earlier().is_empty();
        if !self.nodes.values().any(|node| settles(&node)) {
            return;
        }
        let seen = self.nodes.values().filter(|node| node.seen.is_some());
        let levels = Levels::of(seen.map(|node| (node.marks(), node.earlier())));
        let common = |node: &NodeEntry| {
            // Who says nothing beside its marks has no others.
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

    /// Whether what follows from baselines for this node was found on what is known now.
    pub(crate) fn is_judged(&self, entry: &NodeEntry) -> bool {
        let effect = entry.effect.as_ref();
        self.baselines.is_empty()
            || effect.is_some_and(|effect| effect.is_of(entry, &self.baselines))
    }

    /// Keys in which a node differs from its baseline, or else from the majority of its cohort; `None`
    /// where it was held against neither, or none differs and not all that it is held to is known.
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
