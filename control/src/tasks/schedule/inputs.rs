//! What the solver is given of one vCluster: the whole of it, or what differs between two views.

use crate::{
    inputs,
    movement::{Home, Movement},
    view::{NodeEntry, View},
};
use lattice_placement::{
    ClusterView, Delta, LevelView, LoanView, NodeFacts, NodeView, PendingView, RunningView,
};
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
pub(crate) fn whole(view: &View, vcluster: &VclusterName, age_ms: u64) -> ClusterView {
    let facts = |id: &_| view.node(id).map_or_else(NodeFacts::default, |n| n.facts());
    let records = ClusterView::of_records(
        vcluster,
        view.nodes.values().filter_map(|n| n.record.as_ref()),
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
    inputs::fill(view, &mut cluster);
    let home = Home::of(view);
    for (id, pending) in &mut cluster.pending {
        if let Some(held) = view.waiting(*id) {
            home.tell(&held.spec, pending);
        }
    }
    cluster
}

/// What waits, as its planner is told.
pub(super) fn waiting(view: &View, home: &Home, held: &Allocation) -> PendingView {
    let mut known = inputs::pending(view, held);
    home.tell(&held.spec, &mut known);
    known
}

/// What a vCluster has lent, as its planner is told.
struct Loans<'a> {
    view: &'a View,
    owner: &'a VclusterName,
    /// By borrower, how long a node takes to come back, milliseconds; found once somebody asks.
    release_after_ms: BTreeMap<&'a VclusterName, u64>,
}

impl<'a> Loans<'a> {
    fn new(view: &'a View, owner: &'a VclusterName) -> Self {
        Self {
            view,
            owner,
            release_after_ms: BTreeMap::new(),
        }
    }

    fn all(mut self) -> BTreeMap<NodeId, LoanView> {
        let nodes = self.view.nodes.iter();
        let loan = |(id, entry): (&NodeId, &'a Arc<NodeEntry>)| Some((id.clone(), self.of(entry)?));
        nodes.filter_map(loan).collect()
    }

    /// A node of the owner's that another vCluster uses now.
    fn lent<'n>(&self, entry: &'n NodeEntry) -> Option<&'n Node> {
        let record = entry.record.as_ref();
        record.filter(|record| record.home == *self.owner && record.current != *self.owner)
    }

    fn of(&mut self, entry: &'a NodeEntry) -> Option<LoanView> {
        let record = self.lent(entry)?;
        let after_ms = self.release_after_ms(&record.current);
        Some(LoanView::new(record, entry.facts(), after_ms))
    }

    /// The owner's grace, then a checkpoint: as long as it may take by its own word or by the borrower's.
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

    /// What is lent otherwise than in the view before; `nodes` are those whose entries differ.
    fn since<'n>(
        mut self,
        old: &View,
        nodes: impl Iterator<Item = &'n NodeId>,
    ) -> BTreeMap<NodeId, Option<LoanView>> {
        let mut changes = BTreeMap::new();
        for id in nodes {
            let was = old
                .nodes
                .get(id)
                .is_some_and(|entry| self.lent(entry).is_some());
            let is = self.view.nodes.get(id).and_then(|entry| self.of(entry));
            if was || is.is_some() {
                changes.insert(id.clone(), is);
            }
        }
        if !Arc::ptr_eq(&old.vclusters, &self.view.vclusters) {
            // They may take longer now, or less long.
            let all = self.all();
            changes.extend(all.into_iter().map(|(id, loan)| (id, Some(loan))));
        }
        changes
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
/// a hundred thousand equal pieces of work would say no more.
const ELEMENTS_AT_ONCE: usize = 1000;

/// Elements of an array that may be placed now, and have no allocation yet: the first ones.
pub(crate) fn elements(array: &Allocation, vcluster: &VclusterName) -> BTreeSet<AllocationId> {
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
fn waits_for_plan(view: &View, held: &Allocation, vcluster: &VclusterName) -> bool {
    held.state == AllocationState::Pending
        && held.spec.vcluster == *vcluster
        && held.course.tally.is_none()
        && !view.room.is_promised(held.id)
}

/// Of the whole cluster, and not only of what one vCluster is shown. Where nobody limits it, it is not
/// counted: it would be another number, and so another plan, with each job.
fn pool(view: &View) -> SensitivePool {
    let size = view.system.limits.sensitive_pool_size;
    if size.is_none() {
        return SensitivePool::default();
    }
    let nodes = view.nodes.values().filter_map(|n| n.record.as_ref());
    let allocations = view.allocations.values().map(|a| &**a);
    SensitivePool::count(size, nodes, allocations)
}

/// What differs between two views, for one vCluster. Entries shared by both are not looked at.
pub(crate) fn delta(old: &View, new: &View, vcluster: &VclusterName, age_ms: u64) -> Delta {
    let mut delta = Delta {
        revision: new.revision,
        age_ms,
        limit_policy: new.system.limit_policy,
        sensitive_pool: pool(new),
        ..Delta::default()
    };
    if !Arc::ptr_eq(&old.nodes, &new.nodes) {
        let node = |entry: &Arc<NodeEntry>| {
            let record = entry.record.as_ref().filter(|r| r.current == *vcluster)?;
            Some(NodeView::new(record, entry.facts()))
        };
        delta.nodes = changed(&old.nodes, &new.nodes, Arc::ptr_eq, node);
    }
    delta.on_loan = Loans::new(new, vcluster).since(old, delta.nodes.keys());
    if !Arc::ptr_eq(&old.reservations, &new.reservations) {
        let (a, b) = (&old.reservations, &new.reservations);
        delta.reserved = changed(a, b, Arc::ptr_eq, |known| Some(known.spec.clone()));
    }
    if !Arc::ptr_eq(&old.allocations, &new.allocations) {
        let (a, b) = (&old.allocations, &new.allocations);
        delta.pending = changed(a, b, Arc::ptr_eq, |allocation| {
            let waits = waits_for_plan(new, allocation, vcluster);
            waits.then(|| PendingView::from(&**allocation))
        });
        follow_elements(old, new, vcluster, &mut delta);
        delta.running = changed(a, b, Arc::ptr_eq, |allocation| {
            let holds = allocation.state.holds();
            holds.then(|| RunningView::from(&**allocation))
        });
    }
    if !Arc::ptr_eq(&old.room, &new.room) {
        let came = new.room.ids().filter(|id| !old.room.is_promised(*id));
        let went = old.room.ids().filter(|id| !new.room.is_promised(*id));
        for id in came.chain(went) {
            let held = new.allocation(id);
            let waits = held.filter(|held| waits_for_plan(new, held, vcluster));
            let waits = waits.map(|held| PendingView::from(&**held));
            delta.pending.insert(id, waits);
        }
    }
    if !Arc::ptr_eq(&old.projects, &new.projects) {
        let same = |a: &_, b: &_| a == b;
        delta.levels = changed(&old.projects, &new.projects, same, |project| {
            Some(LevelView::from(project))
        });
    }
    inputs::follow(old, new, vcluster, &mut delta);
    follow_home(old, new, vcluster, &mut delta);
    delta
}

/// Who keeps to the vCluster's own nodes: of all that is news, and of all that waits where another rule holds.
fn follow_home(old: &View, new: &View, vcluster: &VclusterName, delta: &mut Delta) {
    let is_same_rule = Arc::ptr_eq(&old.vclusters, &new.vclusters);
    if delta.pending.is_empty() && is_same_rule {
        return;
    }
    let home = Home::of(new);
    if !is_same_rule && Home::of(old) != home {
        let waits = new.allocations.values();
        let waits = waits.filter(|held| waits_for_plan(new, held, vcluster));
        let waits = waits.map(|held| (held.id, held));
        let arrays = new.arrays.ids().filter_map(|id| new.allocation(id));
        let elements = arrays.flat_map(|array| {
            elements(array, vcluster)
                .into_iter()
                .map(move |id| (id, array))
        });
        for (id, held) in waits.chain(elements) {
            let known = delta.pending.entry(id);
            known.or_insert_with(|| Some(inputs::pending(new, held)));
        }
    }
    for (id, pending) in &mut delta.pending {
        if let (Some(pending), Some(held)) = (pending, new.waiting(*id)) {
            home.tell(&held.spec, pending);
        }
    }
}

/// Adds to `delta` the elements that may be placed since, and those that may not any more. Those that have
/// allocations of their own by now are in it already.
fn follow_elements(old: &View, new: &View, vcluster: &VclusterName, delta: &mut Delta) {
    let arrays: BTreeSet<AllocationId> = old.arrays.ids().chain(new.arrays.ids()).collect();
    for id in arrays {
        let (was, is) = (old.allocation(id), new.allocation(id));
        if let (Some(was), Some(is)) = (was, is)
            && Arc::ptr_eq(was, is)
        {
            continue;
        }
        let of = |array: Option<&Arc<Allocation>>| {
            array.map_or_else(BTreeSet::new, |array| elements(array, vcluster))
        };
        let (before, after) = (of(was), of(is));
        for gone in before.difference(&after) {
            delta.pending.entry(*gone).or_insert(None);
        }
        let Some(is) = is else { continue };
        let waits = PendingView::from(&**is);
        // All of them are as their array is: another walltime is that of each.
        let is_same = was.is_some_and(|was| PendingView::from(&**was) == waits);
        let news = after.iter().filter(|id| !is_same || !before.contains(id));
        delta
            .pending
            .extend(news.map(|id| (*id, Some(waits.clone()))));
    }
}

/// Whether a delta changes anything that a plan depends on. Entries that are as they were do not: nodes
/// of other vClusters, those that answered another ping, records that only have another revision.
pub(crate) fn changes(delta: &Delta, known: &ClusterView) -> bool {
    let Delta {
        // They tell how fresh a plan is.
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

/// Entries of `new` that are not the `same` as in `old`, and those that are gone. Both are walked
/// side by side, in key order.
fn changed<K: Ord + Clone, V, W>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    same: impl Fn(&V, &V) -> bool,
    show: impl Fn(&V) -> Option<W>,
) -> BTreeMap<K, Option<W>> {
    let mut changes = BTreeMap::new();
    let mut old = old.iter().peekable();
    for (key, value) in new {
        while let Some((gone, _)) = old.next_if(|(known, _)| *known < key) {
            changes.insert(gone.clone(), None);
        }
        let known = old.next_if(|(known, _)| *known == key);
        if !known.is_some_and(|(_, known)| same(known, value)) {
            changes.insert(key.clone(), show(value));
        }
    }
    changes.extend(old.map(|(gone, _)| (gone.clone(), None)));
    changes
}
