//! Reservation windows of operators. As in the quorum, a job is kept off a node if the job would overlap a time for
//! which the node is reserved for others. Two rules are stricter here:
//!
//! - A job that names no reservation is kept off all windows, even if its user could use one. Reserved nodes are for
//!   jobs that name the reservation.
//! - A job that names a reservation gets only nodes of that reservation, and starts only within the window. The job is
//!   kept off those of the nodes that are also reserved for others at the time.

use super::index::Index;
use crate::{bits::BitSet, explain::Blocker, walltime::NEVER};
use lattice_quorum_types::{
    NodeId, ProjectPath, UnixMillis, id::ReservationName, reservation::ReservationSpec,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Requester that names a reservation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationRequester {
    pub(crate) name: ReservationName,
    pub(crate) user: String,
    pub(crate) project: ProjectPath,
}

/// Effect of naming a reservation, as positions among all windows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReservationChoice {
    /// The named window, if it exists and admits the requester.
    pub(crate) own: Option<usize>,
    /// Windows that share nodes with the named window and do not admit the requester.
    pub(crate) off: Arc<[usize]>,
}

/// One reservation.
#[derive(Debug)]
pub(crate) struct ReservationWindow {
    pub(crate) name: ReservationName,
    /// Start, Unix milliseconds.
    pub(crate) from: u64,
    /// End, exclusive, Unix milliseconds; [`NEVER`] if it has none.
    pub(crate) until: u64,
    /// Index positions of the reserved nodes that exist in this view.
    pub(crate) nodes: Vec<usize>,
    /// Specification, without nodes and reason.
    spec: ReservationSpec,
}

impl ReservationWindow {
    fn new(name: &ReservationName, spec: &ReservationSpec, index: &Index) -> Self {
        let numbers = |name: &NodeId| index.find(name);
        Self {
            name: name.clone(),
            // Always below `NEVER`, so that even a window with the latest possible start overlaps jobs without an end.
            from: spec.from.0.min(NEVER - 1),
            until: spec.until.map_or(NEVER, |until| until.0),
            nodes: spec.nodes.iter().filter_map(numbers).collect(),
            spec: ReservationSpec {
                nodes: BTreeSet::new(),
                reason: String::new(),
                users: spec.users.clone(),
                projects: spec.projects.clone(),
                ..*spec
            },
        }
    }

    fn is_for(&self, naming: &ReservationRequester) -> bool {
        self.spec.permits(&naming.user, &naming.project)
    }

    /// Whether the window is in effect at a time.
    pub(crate) fn holds(&self, at: u64) -> bool {
        self.from <= at && at < self.until
    }

    /// Reason why a job cannot start now that would overlap the window. `unbounded`: the job has no walltime.
    pub(crate) fn blocker(&self, now: u64, unbounded: bool) -> Blocker {
        Blocker::KeptFor {
            name: self.name.clone(),
            from: self.spec.from,
            until: self.spec.until,
            unbounded: unbounded && self.from > now,
        }
    }
}

/// All windows, by name.
#[derive(Debug, Default)]
pub(crate) struct Windows(Vec<ReservationWindow>);

impl Windows {
    pub(crate) fn new(
        reserved: &BTreeMap<ReservationName, ReservationSpec>,
        index: &Index,
    ) -> Self {
        let window = |(name, spec): (&ReservationName, &ReservationSpec)| {
            ReservationWindow::new(name, spec, index)
        };
        Self(reserved.iter().map(window).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, place: usize) -> &ReservationWindow {
        &self.0[place]
    }

    fn find(&self, name: &ReservationName) -> Option<usize> {
        self.0.binary_search_by(|window| window.name.cmp(name)).ok()
    }

    /// Effect of naming a reservation. Another window keeps the job off only if it shares nodes with the named one and
    /// does not admit the requester. A requester admitted by both waits for neither.
    pub(crate) fn named(&self, naming: &ReservationRequester) -> ReservationChoice {
        let found = self.find(&naming.name);
        let own = found.filter(|place| self.0[*place].is_for(naming));
        let mine: BTreeSet<usize> = match own {
            Some(own) => self.0[own].nodes.iter().copied().collect(),
            None => BTreeSet::new(),
        };
        let keeps = |window: &ReservationWindow| {
            !window.is_for(naming) && window.nodes.iter().any(|n| mine.contains(n))
        };
        let off = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, window)| keeps(window));
        ReservationChoice {
            own,
            off: off.map(|(place, _)| place).collect(),
        }
    }

    /// Nodes that a job naming a reservation may use.
    pub(crate) fn nodes_of(&self, named: &ReservationChoice, size: usize) -> BitSet {
        let own = named.own.map(|own| self.0[own].nodes.iter().copied());
        BitSet::collect(size, own.into_iter().flatten())
    }

    /// Reason why a job that names a reservation cannot use it now, whatever the state of its nodes.
    pub(crate) fn blocker(&self, naming: &ReservationRequester, now: u64) -> Option<Blocker> {
        let name = naming.name.clone();
        let Some(own) = self.find(&naming.name).map(|own| &self.0[own]) else {
            return Some(Blocker::ReservationGone { name });
        };
        if !own.is_for(naming) {
            return Some(Blocker::ReservationNotFor {
                name,
                user: naming.user.clone(),
                project: naming.project.clone(),
            });
        }
        if own.until <= now {
            let at = UnixMillis(own.until);
            return Some(Blocker::ReservationOver { name, at });
        }
        let at = own.spec.from;
        (own.from > now).then_some(Blocker::ReservationLater { name, at })
    }
}
