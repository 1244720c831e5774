//! Solver input of one vCluster: all of it for a new planner, or the difference for a running one.

use crate::{
    BaseView, Changes, Home, ViewNode,
    movement::Movement,
    site::{self, fill},
};
use lattice_placement::{ClusterView, Delta, LoanView, NodeFacts, PendingView};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, VclusterName,
    id::ReservationName,
    limit::SensitivePool,
    node::Node,
    reservation::{Reservation, ReservationSpec},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The solver's view of one vCluster, from scratch.
pub fn whole<N: ViewNode>(view: &BaseView<N>, vcluster: &VclusterName, age_ms: u64) -> ClusterView {
    let facts = |id: &_| view.node(id).map_or_else(NodeFacts::default, |n| n.facts());
    let records = ClusterView::of_records(
        vcluster,
        view.nodes.values().filter_map(|n| n.record()),
        view.allocations.values().map(|held| &**held),
        view.projects.values(),
        facts,
    );
    let mut cluster = ClusterView {
        revision: view.revision,
        age_ms,
        limit_policy: view.system.limit_policy,
        sensitive_pool: pool(view),
        on_loan: Loans::new(view, vcluster).all(),
        reserved: reserved(&view.reservations),
        ..records
    };
    // An array is not placed: its elements are. And what is promised nodes has them as they are free.
    cluster.pending.retain(|id, _| {
        let held = view.allocation(*id);
        held.is_some_and(|held| waits_for_plan(view, held, vcluster))
    });
    for array in view.arrays.ids().filter_map(|id| view.allocation(id)) {
        let elements = elements(array, vcluster);
        let waits = |id| (id, PendingView::from(&**array));
        cluster.pending.extend(elements.into_iter().map(waits));
    }
    fill(view, &mut cluster);
    let home = Home::of(&view.vclusters);
    for (id, pending) in &mut cluster.pending {
        if let Some(held) = view.waiting(*id) {
            home.tell(&held.spec, pending);
        }
    }
    cluster
}

/// A waiting allocation as its planner is given it.
pub fn waiting<N>(view: &BaseView<N>, home: &Home, held: &Allocation) -> PendingView {
    let mut known = site::pending(view, held);
    home.tell(&held.spec, &mut known);
    known
}

/// Nodes that a vCluster has lent, as its planner is given them.
pub(crate) struct Loans<'a, N> {
    view: &'a BaseView<N>,
    owner: &'a VclusterName,
    /// By borrower, how long a node takes to come back, milliseconds; computed at first use.
    release_after_ms: BTreeMap<&'a VclusterName, u64>,
}

impl<'a, N: ViewNode> Loans<'a, N> {
    pub(crate) fn new(view: &'a BaseView<N>, owner: &'a VclusterName) -> Self {
        Self {
            view,
            owner,
            release_after_ms: BTreeMap::new(),
        }
    }

    pub(crate) fn all(mut self) -> BTreeMap<NodeId, LoanView> {
        let nodes = self.view.nodes.iter();
        let loan = |(id, entry): (&NodeId, &'a Arc<N>)| Some((id.clone(), self.of(entry)?));
        nodes.filter_map(loan).collect()
    }

    /// A node of the owner's that another vCluster uses now.
    fn lent<'n>(&self, entry: &'n N) -> Option<&'n Node> {
        let record = entry.record();
        record.filter(|record| record.home == *self.owner && record.current != *self.owner)
    }

    pub(crate) fn of(&mut self, entry: &'a N) -> Option<LoanView> {
        let record = self.lent(entry)?;
        let after_ms = self.release_after_ms(&record.current);
        Some(LoanView::new(record, entry.facts(), after_ms))
    }

    /// The owner's grace, then the longest checkpoint that the settings of owner and borrower allow.
    fn release_after_ms(&mut self, borrower: &'a VclusterName) -> u64 {
        let (view, owner) = (self.view, self.owner);
        let known = self.release_after_ms.entry(borrower);
        *known.or_insert_with(|| {
            let owner = view.movement_of(owner);
            let longest_ms = |of: &Movement| of.checkpoint.deadlines(false).longest_ms();
            let borrower_ms = longest_ms(&view.movement_of(borrower));
            let grace_ms = owner.lend.return_grace_ms;
            grace_ms.saturating_add(longest_ms(&owner).max(borrower_ms))
        })
    }
}

/// All of the site: a planner leaves out nodes that it does not know.
fn reserved(
    reservations: &BTreeMap<ReservationName, Arc<Reservation>>,
) -> BTreeMap<ReservationName, ReservationSpec> {
    let spec =
        |(name, known): (&ReservationName, &Arc<Reservation>)| (name.clone(), known.spec.clone());
    reservations.iter().map(spec).collect()
}

/// Elements of one array that a plan looks at. Those behind them come in as these are placed: a plan with
/// a hundred thousand equal pieces of work would give no more information.
const ELEMENTS_AT_ONCE: usize = 1000;

/// Elements of an array that may be placed now, and have no allocation yet: the first ones.
pub fn elements(array: &Allocation, vcluster: &VclusterName) -> BTreeSet<AllocationId> {
    let waits = array.state == AllocationState::Pending && array.spec.vcluster == *vcluster;
    let (Some(spec), Some(tally)) = (&array.spec.terms.array, &array.course.tally) else {
        return BTreeSet::new();
    };
    if !waits {
        return BTreeSet::new();
    }
    let most = spec
        .max_running()
        .map_or(u32::MAX, |most| most.saturating_sub(tally.alive));
    let most = usize::try_from(most)
        .unwrap_or(usize::MAX)
        .min(ELEMENTS_AT_ONCE);
    let pending = tally.pending.iter().take(most);
    spec.numbers(array.id).of_ascending(pending).collect()
}

/// Whether an allocation of its own waits for the next plan of this vCluster.
pub(crate) fn waits_for_plan<N>(
    view: &BaseView<N>,
    held: &Allocation,
    vcluster: &VclusterName,
) -> bool {
    held.state == AllocationState::Pending
        && held.spec.vcluster == *vcluster
        && held.course.tally.is_none()
        && !view.room.is_promised(held.id)
}

/// Nodes in sensitive use in the whole cluster. Without a limit they are not counted: each job would change the number,
/// and so cause another plan.
pub(crate) fn pool<N: ViewNode>(view: &BaseView<N>) -> SensitivePool {
    let size = view.system.limits.sensitive_pool_size;
    if size.is_none() {
        return SensitivePool::default();
    }
    let nodes = view.nodes.values().filter_map(|n| n.record());
    let allocations = view.allocations.values().map(|a| &**a);
    SensitivePool::count(size, nodes, allocations)
}

/// What differs between two views, for one vCluster.
pub fn delta<N: ViewNode>(
    old: &BaseView<N>,
    new: &BaseView<N>,
    vcluster: &VclusterName,
    age_ms: u64,
) -> Delta {
    Changes::between(old, new).delta(new, vcluster, age_ms)
}

/// Whether a delta changes anything that a plan depends on. Entries that are as they were do not: nodes
/// of other vClusters, those that answered another ping, records that only have another revision.
pub fn changes(delta: &Delta, known: &ClusterView) -> bool {
    let Delta {
        // They show how fresh a plan is.
        revision: _,
        age_ms: _,
        nodes,
        on_loan,
        reserved,
        pending,
        running,
        levels,
        limit_policy,
        sensitive_pool,
        tenants,
        storage,
        power,
        energy_price,
    } = delta;
    *limit_policy != known.limit_policy
        || *sensitive_pool != known.sensitive_pool
        || *energy_price != known.energy_price
        || differs(nodes, &known.nodes)
        || differs(on_loan, &known.on_loan)
        || differs(reserved, &known.reserved)
        || differs(pending, &known.pending)
        || differs(running, &known.running)
        || differs(levels, &known.levels)
        || differs(tenants, &known.tenants)
        || differs(storage, &known.storage)
        || differs(power, &known.power)
}

fn differs<K: Ord, V: PartialEq>(changes: &BTreeMap<K, Option<V>>, known: &BTreeMap<K, V>) -> bool {
    (changes.iter()).any(|(key, value)| known.get(key) != value.as_ref())
}
