//! Changes between two views, and the delta that a vCluster's planner is given of them.
//!
//! A control compares two published views ([`Changes::between`]): entries that both share are skipped. A replay has
//! one view, changed in place, and records what each event replaced ([`Changes::note`]). From there on both take the
//! same path.

use crate::{
    BaseView, Former, Home, ViewNode,
    site::{self, left},
    solver::{Loans, elements, pool, waits_for_plan},
    standing::tenants,
};
use lattice_placement::{
    Delta, Fraction, LevelView, NodeView, PendingView, RunningView, StorageView, TenantView,
};
use lattice_quorum_types::{
    Allocation, AllocationId, Event, NodeId, ProjectPath, VclusterName, event::EventKind,
    id::ReservationName, node::Node, vcluster::Vcluster,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Keys of what differs between an earlier view and the present one.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Nodes, each with the vCluster that had lent it before.
    nodes: BTreeMap<NodeId, Option<VclusterName>>,
    allocations: BTreeSet<AllocationId>,
    /// Arrays, each with its former record.
    arrays: BTreeMap<AllocationId, Option<Arc<Allocation>>>,
    /// Allocations that are promised nodes since, or no longer.
    promises: BTreeSet<AllocationId>,
    projects: BTreeSet<ProjectPath>,
    reservations: BTreeSet<ReservationName>,
    before: Before,
}

/// What is compared by value: a handful of entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Before {
    pub(crate) vclusters: Arc<BTreeMap<VclusterName, Vcluster>>,
    pub(crate) data_ready: Arc<BTreeMap<AllocationId, Fraction>>,
    pub(crate) storage: BTreeMap<String, StorageView>,
    pub(crate) tenants: BTreeMap<ProjectPath, TenantView>,
}

impl Before {
    fn of<N: ViewNode>(view: &BaseView<N>) -> Self {
        Self {
            vclusters: view.vclusters.clone(),
            data_ready: view.inputs.data_ready.clone(),
            storage: left(view),
            tenants: tenants(view),
        }
    }
}

/// The vCluster that has lent a node.
fn lender(record: Option<&Node>) -> Option<&VclusterName> {
    let lent = record.filter(|record| record.home != record.current);
    lent.map(|record| &record.home)
}

impl Changes {
    /// Nothing has changed yet in this view.
    pub fn since<N: ViewNode>(view: &BaseView<N>) -> Self {
        Self {
            before: Before::of(view),
            ..Self::default()
        }
    }

    /// What differs between two views.
    pub fn between<N: ViewNode>(old: &BaseView<N>, new: &BaseView<N>) -> Self {
        let mut changes = Self::since(old);
        if !Arc::ptr_eq(&old.nodes, &new.nodes) {
            for id in changed(&old.nodes, &new.nodes, Arc::ptr_eq) {
                let before = old.node(id).and_then(|entry| entry.record());
                changes.nodes.insert(id.clone(), lender(before).cloned());
            }
        }
        if !Arc::ptr_eq(&old.allocations, &new.allocations) {
            let differ = changed(&old.allocations, &new.allocations, Arc::ptr_eq);
            changes.allocations.extend(differ);
            let arrays = old.arrays.ids().chain(new.arrays.ids());
            for id in arrays.filter(|id| changes.allocations.contains(id)) {
                changes.arrays.insert(id, old.allocation(id).cloned());
            }
        }
        if !Arc::ptr_eq(&old.room, &new.room) {
            let came = new.room.ids().filter(|id| !old.room.is_promised(*id));
            let went = old.room.ids().filter(|id| !new.room.is_promised(*id));
            changes.promises.extend(came.chain(went));
        }
        if !Arc::ptr_eq(&old.projects, &new.projects) {
            let differ = changed(&old.projects, &new.projects, |a, b| a == b);
            changes.projects.extend(differ.into_iter().cloned());
        }
        if !Arc::ptr_eq(&old.reservations, &new.reservations) {
            let differ = changed(&old.reservations, &new.reservations, Arc::ptr_eq);
            changes.reservations.extend(differ.into_iter().cloned());
        }
        changes
    }

    /// Records an [expanded](BaseView::expanded) event and what it [replaced](BaseView::apply).
    pub fn note(&mut self, event: &Event, former: Former) {
        match (&event.kind, former) {
            (EventKind::Allocation { record, .. }, Former::Allocation(before)) => {
                self.allocations.insert(record.id);
                if record.spec.terms.array.is_some() {
                    self.arrays.entry(record.id).or_insert(before);
                }
            }
            (EventKind::Node { record }, Former::Node(before)) => {
                let before = before.as_ref();
                let promised = before.and_then(|node| node.promised);
                if promised != record.promised {
                    self.promises
                        .extend(promised.into_iter().chain(record.promised));
                }
                let known = self.nodes.entry(record.id.clone());
                known.or_insert_with(|| lender(before).cloned());
            }
            (EventKind::Project { record }, _) => {
                self.projects.insert(record.path.clone());
            }
            (EventKind::ProjectDeleted { path }, _) => {
                self.projects.insert(path.clone());
            }
            (EventKind::Reservation { record }, _) => {
                self.reservations.insert(record.name.clone());
            }
            (EventKind::ReservationDeleted { name }, _) => {
                self.reservations.insert(name.clone());
            }
            // Compared by value, or nothing that a planner is given.
            _ => {}
        }
    }

    /// What a vCluster's planner is given of them; `new` is the present view, as old as this.
    pub fn delta<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        age_ms: u64,
    ) -> Delta {
        let mut delta = Delta {
            revision: new.revision,
            age_ms,
            limit_policy: new.system.limit_policy,
            sensitive_pool: pool(new),
            ..Delta::default()
        };
        self.follow_nodes(new, vcluster, &mut delta);
        for name in &self.reservations {
            let known = new.reservations.get(name).map(|known| known.spec.clone());
            delta.reserved.insert(name.clone(), known);
        }
        let waits = |id: AllocationId| {
            let held = new.allocation(id);
            let waits = held.filter(|held| waits_for_plan(new, held, vcluster));
            waits.map(|held| PendingView::from(&**held))
        };
        for id in &self.allocations {
            delta.pending.insert(*id, waits(*id));
            let holds = new.allocation(*id).filter(|held| held.state.holds());
            let running = holds.map(|held| RunningView::from(&**held));
            delta.running.insert(*id, running);
        }
        self.follow_elements(new, vcluster, &mut delta);
        for id in &self.promises {
            delta.pending.insert(*id, waits(*id));
        }
        for path in &self.projects {
            let level = new.projects.get(path).map(LevelView::from);
            delta.levels.insert(path.clone(), level);
        }
        site::follow(&self.before, new, vcluster, &mut delta);
        self.follow_home(new, vcluster, &mut delta);
        delta
    }

    /// Nodes that the vCluster uses, and those that it has lent.
    fn follow_nodes<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        delta: &mut Delta,
    ) {
        let mut loans = Loans::new(new, vcluster);
        // Collected in their order, which a map takes over without a search for each.
        let nodes = self.nodes.iter().map(|(id, lent_by)| {
            let entry = new.nodes.get(id);
            let own = entry.and_then(|entry| {
                let record = entry.record().filter(|r| r.current == *vcluster)?;
                Some(NodeView::new(record, entry.facts()))
            });
            let loan = entry.and_then(|entry| loans.of(&**entry));
            if loan.is_some() || lent_by.as_ref() == Some(vcluster) {
                delta.on_loan.insert(id.clone(), loan);
            }
            (id.clone(), own)
        });
        delta.nodes = nodes.collect();
        if !Arc::ptr_eq(&self.before.vclusters, &new.vclusters) {
            // They may take longer now, or less long.
            let all = loans.all();
            let all = all.into_iter().map(|(id, loan)| (id, Some(loan)));
            delta.on_loan.extend(all);
        }
    }

    /// Elements that may be placed since, and those that may not any more. Those that have allocations of their own
    /// by now are in the delta already.
    fn follow_elements<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        delta: &mut Delta,
    ) {
        for (id, was) in &self.arrays {
            let is = new.allocation(*id);
            let of = |array: Option<&Arc<Allocation>>| {
                array.map_or_else(BTreeSet::new, |array| elements(array, vcluster))
            };
            let (before, after) = (of(was.as_ref()), of(is));
            for gone in before.difference(&after) {
                delta.pending.entry(*gone).or_insert(None);
            }
            let Some(is) = is else { continue };
            let waits = PendingView::from(&**is);
            // All of them are as their array is: another walltime is that of each.
            let is_same = (was.as_ref()).is_some_and(|was| PendingView::from(&**was) == waits);
            let news = after.iter().filter(|id| !is_same || !before.contains(id));
            let news = news.map(|id| (*id, Some(waits.clone())));
            delta.pending.extend(news);
        }
    }

    /// Work that keeps to the vCluster's own nodes: of all that is news, and of all that waits where another rule holds.
    fn follow_home<N: ViewNode>(
        &self,
        new: &BaseView<N>,
        vcluster: &VclusterName,
        delta: &mut Delta,
    ) {
        let is_same_rule = Arc::ptr_eq(&self.before.vclusters, &new.vclusters);
        if delta.pending.is_empty() && is_same_rule {
            return;
        }
        let home = Home::of(&new.vclusters);
        if !is_same_rule && Home::of(&self.before.vclusters) != home {
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
                known.or_insert_with(|| Some(site::pending(new, held)));
            }
        }
        for (id, pending) in &mut delta.pending {
            if let (Some(pending), Some(held)) = (pending, new.waiting(*id)) {
                home.tell(&held.spec, pending);
            }
        }
    }
}

/// Keys of entries of `new` that are not the `same` as in `old`, and of those that are gone. Both are walked side by
/// side, in key order.
fn changed<'a, K: Ord, V>(
    old: &'a BTreeMap<K, V>,
    new: &'a BTreeMap<K, V>,
    same: impl Fn(&V, &V) -> bool,
) -> Vec<&'a K> {
    let mut keys = Vec::new();
    let mut old = old.iter().peekable();
    for (key, value) in new {
        while let Some((gone, _)) = old.next_if(|(known, _)| *known < key) {
            keys.push(gone);
        }
        let known = old.next_if(|(known, _)| *known == key);
        if !known.is_some_and(|(_, known)| same(known, value)) {
            keys.push(key);
        }
    }
    keys.extend(old.map(|(gone, _)| gone));
    keys
}
