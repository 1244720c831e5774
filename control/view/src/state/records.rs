//! Part of a control's view from which solver input is derived: committed records and site inputs.

use super::{
    array_names::ArrayNames,
    bandwidth::{Promised, promise},
    hours::Hours,
    inputs::Inputs,
};
use lattice_placement::NodeFacts;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationName, AllocationState, NodeId, ProjectPath, Revision,
    UnixMillis, VclusterName,
    allocation::{Rank, RankPhase},
    budget::TenantBudget,
    dag::Dag,
    id::{DagId, ReservationName},
    index::{ArrayIndex, PromiseIndex},
    limit::OnLimit,
    limit_policy::SystemView,
    node::Node,
    progress::ArrayElement,
    project::Project,
    reservation::Reservation,
    spec::Workload,
    vcluster::Vcluster,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Node of a view, with its committed record and the facts that placement uses.
pub trait ViewNode: Clone {
    /// Node without a record and without facts.
    fn unknown(id: NodeId) -> Self;

    /// Committed record of the node; `None` while the node is not registered.
    fn record(&self) -> Option<&Node>;

    /// Replaces the record and returns the former one.
    fn set_record(&mut self, record: Node) -> Option<Node>;

    /// Facts about the node that placement uses.
    fn facts(&self) -> NodeFacts;
}

/// Committed records and site inputs at one moment. Maps are shared with earlier views until they change.
#[derive(Debug, Clone)]
pub struct BaseView<N> {
    /// Revision of the replicated state that the view shows; 0 before the first read.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
    /// Settings and limits of the cluster.
    pub system: SystemView,
    /// Every project, parents before children.
    pub projects: Arc<BTreeMap<ProjectPath, Project>>,
    /// All nodes that are registered, or known only from gossip or, in a replay, from the description of the cluster.
    pub nodes: Arc<BTreeMap<NodeId, Arc<N>>>,
    /// Allocations that are not terminal.
    pub allocations: Arc<BTreeMap<AllocationId, Arc<Allocation>>>,
    /// Allocations that are starting or stopping, grow or shrink, or hold nodes with a changed walltime. The set is
    /// small even if many allocations wait.
    pub moving: Arc<BTreeSet<AllocationId>>,
    /// Allocations that hold nodes and have a checkpoint mode.
    pub checkpointable: Arc<BTreeSet<AllocationId>>,
    /// Allocations that are examined from time to time: suspended ones, and those with a deadline.
    pub examined_later: Arc<BTreeSet<AllocationId>>,
    /// Allocations with a number of nodes that follows a metric.
    pub scaled: Arc<BTreeSet<AllocationId>>,
    /// Bandwidth promised to allocations that hold nodes, by storage system.
    pub promised: Arc<Promised>,
    /// Arrays that have not ended.
    pub arrays: Arc<ArrayIndex>,
    /// Names of array elements, also of arrays that have ended.
    pub array_names: Arc<ArrayNames>,
    /// Promised nodes, and the allocations for which they are promised.
    pub promises: Arc<PromiseIndex>,
    /// Latest values from the site's sources.
    pub inputs: Inputs,
    /// Every vCluster that has a definition.
    pub vclusters: Arc<BTreeMap<VclusterName, Vcluster>>,
    /// DAGs that have not ended.
    pub dags: Arc<BTreeMap<DagId, Arc<Dag>>>,
    /// Reservations: nodes that operators keep for some users or projects during a time window.
    pub reservations: Arc<BTreeMap<ReservationName, Arc<Reservation>>>,
    /// Shares and budgets of tenants, and credits that an accounting system reports.
    pub budgets: Arc<BTreeMap<ProjectPath, Arc<TenantBudget>>>,
    /// Handling of submits that do not fit with the present usage, by tenant; absent tenants refuse them. The quorum
    /// applies it; the view only shows it.
    pub on_limits: Arc<BTreeMap<ProjectPath, OnLimit>>,
    /// Used hours of tenants with a budget or credit.
    pub hours: Arc<BTreeMap<ProjectPath, Hours>>,
}

impl<N> Default for BaseView<N> {
    fn default() -> Self {
        Self {
            revision: Revision::default(),
            at: UnixMillis::default(),
            system: SystemView::default(),
            projects: Arc::default(),
            nodes: Arc::default(),
            allocations: Arc::default(),
            moving: Arc::default(),
            checkpointable: Arc::default(),
            examined_later: Arc::default(),
            scaled: Arc::default(),
            promised: Arc::default(),
            arrays: Arc::default(),
            array_names: Arc::default(),
            promises: Arc::default(),
            inputs: Inputs::default(),
            vclusters: Arc::default(),
            dags: Arc::default(),
            reservations: Arc::default(),
            budgets: Arc::default(),
            on_limits: Arc::default(),
            hours: Arc::default(),
        }
    }
}

impl<N> BaseView<N> {
    /// Replaces the record of an allocation, or removes it if the new state is final. Returns the former record.
    pub fn set_allocation(
        &mut self,
        record: impl Into<Arc<Allocation>>,
    ) -> Option<Arc<Allocation>> {
        use AllocationState::{Starting, Stopping};
        let record = record.into();
        let (id, state) = (record.id, record.state);
        let is_moving =
            |rank: &Rank| matches!(rank.phase, RankPhase::Assigned | RankPhase::Leaving { .. });
        let resizes = || state.holds() && record.ranks.iter().any(is_moving);
        let has_new_walltime = state.holds() && record.progress.walltime_changes > 0;
        let moves = matches!(state, Starting | Stopping) || has_new_walltime || resizes();
        set_membership(&mut self.moving, id, moves);
        let saves = record.spec.terms.checkpoint.is_some() && state.holds();
        set_membership(&mut self.checkpointable, id, saves);
        let scaled = record.spec.terms.scale.is_some() && !state.is_terminal();
        set_membership(&mut self.scaled, id, scaled);
        let dated = state == AllocationState::Suspended || record.spec.terms.deadline_at.is_some();
        set_membership(&mut self.examined_later, id, dated && !state.is_terminal());
        if record.spec.terms.array.is_some() {
            Arc::make_mut(&mut self.arrays).follow(&record);
            if !self.array_names.has(id) {
                Arc::make_mut(&mut self.array_names).add(&record);
            }
        }
        let allocations = Arc::make_mut(&mut self.allocations);
        let before = match state.is_terminal() {
            true => allocations.remove(&id),
            false => allocations.insert(id, record.clone()),
        };
        promise(&mut self.promised, before.as_deref(), Some(&record));
        before
    }

    /// Node with this id; `None` if unknown.
    pub fn node(&self, id: &NodeId) -> Option<&Arc<N>> {
        self.nodes.get(id)
    }

    /// Allocation with this id; `None` if unknown or terminal.
    pub fn allocation(&self, id: AllocationId) -> Option<&Arc<Allocation>> {
        self.allocations.get(&id)
    }

    /// Array of which this id is an element.
    pub fn array_of(&self, id: AllocationId) -> Option<&Arc<Allocation>> {
        self.allocation(self.arrays.array_of(id)?)
    }

    /// Whether [`Self::name_of`] knows what this id stands for.
    pub fn has_name_of(&self, id: AllocationId) -> bool {
        self.allocation(id).is_some() || self.element(id).is_some()
    }

    /// Name of an allocation in texts. An element of an array that ended before this control was started, or long ago,
    /// is named by its number.
    pub fn name_of(&self, id: AllocationId) -> AllocationName {
        if let Some(allocation) = self.allocation(id) {
            return allocation.name();
        }
        AllocationName::new(id, self.element(id))
    }

    /// Place of an element in its array.
    fn element(&self, id: AllocationId) -> Option<ArrayElement> {
        let Some(array) = self.array_of(id) else {
            return self.array_names.element(id);
        };
        Some(ArrayElement {
            array: array.id,
            index: array.element_numbers()?.index_of(id)?,
        })
    }

    /// Record that waits for nodes under this id: an allocation, or the array of an element without an allocation of
    /// its own.
    pub fn waiting(&self, id: AllocationId) -> Option<&Arc<Allocation>> {
        let held = match self.allocation(id) {
            Some(held) => held,
            None => self.array_of(id)?,
        };
        (held.state == AllocationState::Pending).then_some(held)
    }

    /// Workload of an allocation; for an element, the workload of its array.
    pub fn workload<'a>(&'a self, allocation: &'a Allocation) -> &'a Workload {
        let element = allocation.progress.element;
        let array = element.and_then(|element| self.allocation(element.array));
        array.map_or(&allocation.spec.workload, |array| &array.spec.workload)
    }

    /// Updates the promised nodes after a node's record was replaced.
    pub fn follow_promise(&mut self, before: Option<&Node>, after: &Node) {
        if PromiseIndex::is_concerned(before, after) {
            Arc::make_mut(&mut self.promises).follow(before, after);
        }
    }
}

impl<N: ViewNode> BaseView<N> {
    /// Number of nodes that a vCluster owns.
    pub fn owned_by(&self, vcluster: &VclusterName) -> u32 {
        let records = self.nodes.values().filter_map(|node| node.record());
        let owned = records.filter(|record| record.home == *vcluster).count();
        u32::try_from(owned).unwrap_or(u32::MAX)
    }
}

/// Adds an id to a set or removes it.
fn set_membership(set: &mut Arc<BTreeSet<AllocationId>>, id: AllocationId, is_in: bool) {
    if set.contains(&id) == is_in {
        return;
    }
    let set = Arc::make_mut(set);
    match is_in {
        true => set.insert(id),
        false => set.remove(&id),
    };
}
