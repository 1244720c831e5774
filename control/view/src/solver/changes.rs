//! Changes between two views, from which the delta for a planner is computed.
//!
//! A control compares two published views ([`Changes::between`]); entries that both views share are skipped. A replay
//! updates one view in place, and records the value that each event replaced ([`Changes::note`]).

use super::site::remaining_bandwidth;
use crate::{
    standing::tenants,
    state::{BaseView, FormerValue, ViewNode},
};
use lattice_placement::{Fraction, StorageView, TenantView};
use lattice_quorum_types::{
    Allocation, AllocationId, Event, NodeId, ProjectPath, VclusterName, event::EventKind,
    id::ReservationName, node::Node, vcluster::Vcluster,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Keys of the entries that differ between an earlier view and the present one.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Changed nodes, each with the vCluster that had lent the node in the earlier view.
    pub(super) nodes: BTreeMap<NodeId, Option<VclusterName>>,
    pub(super) allocations: BTreeSet<AllocationId>,
    /// Changed job arrays, each with its former record.
    pub(super) arrays: BTreeMap<AllocationId, Option<Arc<Allocation>>>,
    /// Allocations that have got a promise of nodes, or have lost it.
    pub(super) promises: BTreeSet<AllocationId>,
    pub(super) projects: BTreeSet<ProjectPath>,
    pub(super) reservations: BTreeSet<ReservationName>,
    pub(super) before: ComparedEntries,
}

/// Parts of the earlier view with few entries, which are compared by value.
#[derive(Debug, Clone, Default)]
pub(super) struct ComparedEntries {
    pub(super) vclusters: Arc<BTreeMap<VclusterName, Vcluster>>,
    pub(super) data_ready: Arc<BTreeMap<AllocationId, Fraction>>,
    pub(super) storage: BTreeMap<String, StorageView>,
    pub(super) tenants: BTreeMap<ProjectPath, TenantView>,
}

impl ComparedEntries {
    fn of<N: ViewNode>(view: &BaseView<N>) -> Self {
        Self {
            vclusters: view.vclusters.clone(),
            data_ready: view.inputs.data_ready.clone(),
            storage: remaining_bandwidth(view),
            tenants: tenants(view),
        }
    }
}

/// vCluster that has lent the node; `None` if the node is not lent.
fn lender(record: Option<&Node>) -> Option<&VclusterName> {
    let lent = record.filter(|record| record.home != record.current);
    lent.map(|record| &record.home)
}

impl Changes {
    /// No changes yet, relative to this view.
    pub fn since<N: ViewNode>(view: &BaseView<N>) -> Self {
        Self {
            before: ComparedEntries::of(view),
            ..Self::default()
        }
    }

    /// Changes from the view `old` to the view `new`.
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
        if !Arc::ptr_eq(&old.promises, &new.promises) {
            let came = new
                .promises
                .ids()
                .filter(|id| !old.promises.is_promised(*id));
            let went = old
                .promises
                .ids()
                .filter(|id| !new.promises.is_promised(*id));
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

    /// Records an [expanded](BaseView::expanded) event with the value that the event [replaced](BaseView::apply).
    pub fn note(&mut self, event: &Event, former: FormerValue) {
        match (&event.kind, former) {
            (EventKind::Allocation { record, .. }, FormerValue::Allocation(before)) => {
                self.allocations.insert(record.id);
                if record.spec.terms.array.is_some() {
                    self.arrays.entry(record.id).or_insert(before);
                }
            }
            (EventKind::Node { record }, FormerValue::Node(before)) => {
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
            // Other events change entries that are compared by value, or that planners do not use.
            _ => {}
        }
    }
}

/// Keys of entries of `new` that are missing in `old` or not the `same`, and of entries of `old` that are missing in
/// `new`. Walks both maps together, in key order.
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
