//! What this control knows of the cluster, as one immutable value: the replicated half, folded
//! from the quorum's watch, joined with what nodes gossip and how they answer.

mod node;
#[cfg(test)]
mod tests;

pub(crate) use node::{EXECUTOR_REASONS, Named, SILENT, United};
pub use node::{NodeEntry, Seen};

use crate::{
    baselines::Baselines,
    books::Hours,
    drift::Report,
    inputs::{Inputs, Promised, promise},
    plans::LastPlan,
};
use lattice_hwprobe::{DriftReport, Levels, NodeView};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis,
    VclusterName,
    allocation::{Rank, RankPhase},
    baseline::Brake,
    budget::TenantBudget,
    dag::Dag,
    id::{DagId, ReservationName},
    index::{ArrayIndex, PromiseIndex},
    node::{Lifecycle, Node},
    project::Project,
    reservation::Reservation,
    spec::Workload,
    vcluster::Vcluster,
    view::SystemView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The cluster at one moment. A reader holds it as long as it likes; a change makes a new one.
/// Parts that did not change are shared.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Grows with every published view, also when only gossip changed.
    pub version: u64,
    /// The replicated state it shows. 0 before the first read.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
    /// What holds for the whole cluster.
    pub system: SystemView,
    /// Every project, parents before children.
    pub projects: Arc<BTreeMap<ProjectPath, Project>>,
    /// Every node that is registered or gossips.
    pub nodes: Arc<BTreeMap<NodeId, Arc<NodeEntry>>>,
    /// Allocations that are not terminal.
    pub allocations: Arc<BTreeMap<AllocationId, Arc<Allocation>>>,
    /// Grows when a node's marks or its document change: what conformance compares.
    pub(crate) conformance_version: u64,
    /// Allocations that are Starting or Stopping, that grow or shrink, or whose walltime was changed while
    /// they run: few, however many wait.
    pub(crate) moving: Arc<BTreeSet<AllocationId>>,
    /// Allocations that write a checkpoint, or can.
    pub(crate) savers: Arc<BTreeSet<AllocationId>>,
    /// Allocations that are to be looked at by and by: suspended ones, and those with a deadline.
    pub(crate) dated: Arc<BTreeSet<AllocationId>>,
    /// Allocations whose number of nodes follows a metric.
    pub(crate) scaled: Arc<BTreeSet<AllocationId>>,
    /// Bandwidth that allocations which hold nodes were promised, by storage system.
    pub(crate) promised: Arc<Promised>,
    /// Arrays that have not ended.
    pub(crate) arrays: Arc<ArrayIndex>,
    /// Promised nodes: other allocations make room on them.
    pub(crate) room: Arc<PromiseIndex>,
    /// What the site's sources said last.
    pub inputs: Inputs,
    /// What the last cycles said of those that wait for vClusters that this control schedules.
    pub plan: Arc<LastPlan>,
    /// Who differs from the majority of its cohort, by the preimages at hand.
    pub drift: Arc<DriftReport>,
    /// Who is not what it is meant to be, by its baseline or else by its cohort.
    pub judged: Arc<Report>,
    /// Every vCluster of which somebody has said what it is.
    pub vclusters: Arc<BTreeMap<VclusterName, Vcluster>>,
    /// Graphs that run.
    pub dags: Arc<BTreeMap<DagId, Arc<Dag>>>,
    /// Nodes that are kept for some for a time.
    pub reservations: Arc<BTreeMap<ReservationName, Arc<Reservation>>>,
    /// What tenants are meant to use, and what an accounting system says of them.
    pub budgets: Arc<BTreeMap<ProjectPath, Arc<TenantBudget>>>,
    /// What tenants with a budget have used of it in the window.
    pub hours: Arc<BTreeMap<ProjectPath, Hours>>,
    /// Number of the last fact that this control was told of; 0 before it was told of any.
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

impl View {
    /// Says whether this control acts, by the leases it has.
    pub(crate) fn acts(&mut self) {
        self.acting = self.dispatches || !self.schedules.is_empty();
    }

    /// Puts an allocation's record in place.
    pub(crate) fn set_allocation(&mut self, record: Allocation) {
        use AllocationState::{Starting, Stopping};
        let (id, state) = (record.id, record.state);
        let is_moving =
            |rank: &Rank| matches!(rank.phase, RankPhase::Assigned | RankPhase::Leaving { .. });
        let resizes = || state.holds() && record.ranks.iter().any(is_moving);
        let is_told_more = state.holds() && record.course.walltime_changes > 0;
        if matches!(state, Starting | Stopping) || is_told_more || resizes() {
            Arc::make_mut(&mut self.moving).insert(id);
        } else if self.moving.contains(&id) {
            Arc::make_mut(&mut self.moving).remove(&id);
        }
        let saves = record.spec.terms.checkpoint.is_some() && state.holds();
        mark(&mut self.savers, id, saves);
        let scaled = record.spec.terms.scale.is_some() && !state.is_terminal();
        mark(&mut self.scaled, id, scaled);
        let dated = state == AllocationState::Suspended || record.spec.terms.deadline_at.is_some();
        mark(&mut self.dated, id, dated && !state.is_terminal());
        if record.spec.terms.array.is_some() {
            Arc::make_mut(&mut self.arrays).follow(&record);
        }
        let before = self.allocations.get(&id).map(Arc::as_ref);
        promise(&mut self.promised, before, Some(&record));
        let allocations = Arc::make_mut(&mut self.allocations);
        if state.is_terminal() {
            allocations.remove(&id);
        } else {
            allocations.insert(id, Arc::new(record));
        }
    }

    /// One node.
    pub fn node(&self, id: &NodeId) -> Option<&Arc<NodeEntry>> {
        self.nodes.get(id)
    }

    /// One allocation that is not terminal.
    pub fn allocation(&self, id: AllocationId) -> Option<&Arc<Allocation>> {
        self.allocations.get(&id)
    }

    /// The array among whose numbers this one is.
    pub(crate) fn array_of(&self, id: AllocationId) -> Option<&Arc<Allocation>> {
        self.allocation(self.arrays.array_of(id)?)
    }

    /// What waits for nodes under this number: an allocation, or the array of an element that has none yet.
    pub(crate) fn waiting(&self, id: AllocationId) -> Option<&Arc<Allocation>> {
        let held = match self.allocation(id) {
            Some(held) => held,
            None => self.array_of(id)?,
        };
        (held.state == AllocationState::Pending).then_some(held)
    }

    /// The workload of an allocation: an element runs its array's.
    pub(crate) fn workload<'a>(&'a self, allocation: &'a Allocation) -> &'a Workload {
        let element = allocation.course.element;
        let array = element.and_then(|element| self.allocation(element.array));
        array.map_or(&allocation.spec.workload, |array| &array.spec.workload)
    }

    /// A node's record became another.
    pub(crate) fn follow_promise(&mut self, before: Option<&Node>, after: &Node) {
        if PromiseIndex::is_concerned(before, after) {
            Arc::make_mut(&mut self.room).follow(before, after);
        }
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

/// Whether one is of a set.
fn mark(set: &mut Arc<BTreeSet<AllocationId>>, id: AllocationId, is_in: bool) {
    if set.contains(&id) == is_in {
        return;
    }
    let set = Arc::make_mut(set);
    match is_in {
        true => set.insert(id),
        false => set.remove(&id),
    };
}
