//! Reservations: nodes reserved for users and projects during a time window.

use lattice_quorum_types::{
    NodeId, ProjectPath, UnixMillis,
    id::ReservationName,
    reservation::{Reservation, ReservationSpec},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All reservations, by name and by reserved node. Expired reservations stay until an operator deletes them; they
/// reserve nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Reservations {
    by_name: BTreeMap<ReservationName, Reservation>,
    by_node: BTreeMap<NodeId, BTreeSet<ReservationName>>,
}

/// Allocation or node claim that requests a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeRequester<'a> {
    pub(crate) user: &'a str,
    pub(crate) project: &'a ProjectPath,
    /// Start of the requested use, which lasts `for_ms` milliseconds; `None` means for ever.
    pub(crate) now: UnixMillis,
    pub(crate) for_ms: Option<u64>,
}

impl Reservations {
    pub(crate) fn get(&self, name: &ReservationName) -> Option<&Reservation> {
        self.by_name.get(name)
    }

    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &Reservation> {
        self.by_name.values()
    }

    /// Reservation that keeps a node from this requester, if any.
    pub(crate) fn blocking_reservation(
        &self,
        node: &NodeId,
        wants: NodeRequester<'_>,
    ) -> Option<&ReservationName> {
        let mut names = self.by_node.get(node)?.iter();
        names.find(|name| {
            let spec = self.by_name.get(name).map(|found| &found.spec);
            spec.is_some_and(|spec| {
                spec.overlaps(wants.now, wants.for_ms) && !spec.permits(wants.user, wants.project)
            })
        })
    }

    pub(crate) fn set(&mut self, record: Reservation) {
        self.delete(&record.name);
        for node in &record.spec.nodes {
            let names = self.by_node.entry(node.clone()).or_default();
            names.insert(record.name.clone());
        }
        self.by_name.insert(record.name.clone(), record);
    }

    pub(crate) fn delete(&mut self, name: &ReservationName) {
        let Some(Reservation {
            spec: ReservationSpec { nodes, .. },
            ..
        }) = self.by_name.remove(name)
        else {
            return;
        };
        for node in nodes {
            if let Some(names) = self.by_node.get_mut(&node) {
                names.remove(name);
                if names.is_empty() {
                    self.by_node.remove(&node);
                }
            }
        }
    }
}
