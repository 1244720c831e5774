//! Nodes that administrators keep for some for a time. It is the quorum's rule: work stays off a node if it
//! would run into a time for which the node is kept for others. Two things are narrower here:
//!
//! - Work that names no reservation stays off all of them, also where its user could use one: what is reserved
//!   is there for those who say that they come for it.
//! - Work that names one has its nodes, while it holds, and is kept off by what others have of these.

use crate::{bits::BitSet, explain::Blocker, index::Index, machine::NEVER};
use lattice_quorum_types::{
    NodeId, ProjectPath, UnixMillis, id::ReservationName, reservation::ReservationSpec,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Work that names a reservation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Naming {
    pub(crate) name: ReservationName,
    pub(crate) user: String,
    pub(crate) project: ProjectPath,
}

/// What such work comes to: places among all windows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    /// The one that it names, where it is there and for it.
    pub(crate) own: Option<usize>,
    /// Those that keep it off nodes of its own.
    pub(crate) off: Arc<[usize]>,
}

/// One reservation.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) name: ReservationName,
    /// From when it keeps its nodes, Unix milliseconds.
    pub(crate) from: u64,
    /// Until when, exclusive; [`NEVER`] where that is not said.
    pub(crate) until: u64,
    /// Those that are known here.
    pub(crate) nodes: Vec<usize>,
    /// What was said of it, without its nodes.
    spec: ReservationSpec,
}

impl Window {
    fn new(name: &ReservationName, spec: &ReservationSpec, index: &Index) -> Self {
        let numbers = |name: &NodeId| index.find(name);
        Self {
            name: name.clone(),
            // What begins at the end of time begins just before: work without an end meets it.
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

    fn is_for(&self, naming: &Naming) -> bool {
        self.spec.is_for(&naming.user, &naming.project)
    }

    /// Whether it holds at a time.
    pub(crate) fn holds(&self, at: u64) -> bool {
        self.from <= at && at < self.until
    }

    /// Why work does not start now that would meet it.
    pub(crate) fn blocker(&self, now: u64, unbounded: bool) -> Blocker {
        Blocker::KeptFor {
            name: self.name.clone(),
            from: self.spec.from,
            until: self.spec.until,
            unbounded: unbounded && self.from > now,
        }
    }
}

/// All of them, by name. See the module.
#[derive(Debug, Default)]
pub(crate) struct Windows(Vec<Window>);

impl Windows {
    pub(crate) fn new(
        reserved: &BTreeMap<ReservationName, ReservationSpec>,
        index: &Index,
    ) -> Self {
        let window =
            |(name, spec): (&ReservationName, &ReservationSpec)| Window::new(name, spec, index);
        Self(reserved.iter().map(window).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, place: usize) -> &Window {
        &self.0[place]
    }

    fn find(&self, name: &ReservationName) -> Option<usize> {
        self.0.binary_search_by(|window| window.name.cmp(name)).ok()
    }

    /// What work comes to that names one of them. Another keeps it off only where it shares nodes with its own,
    /// and is not for it, too: who may use both waits for neither.
    pub(crate) fn named(&self, naming: &Naming) -> Named {
        let found = self.find(&naming.name);
        let own = found.filter(|place| self.0[*place].is_for(naming));
        let mine: BTreeSet<usize> = match own {
            Some(own) => self.0[own].nodes.iter().copied().collect(),
            None => BTreeSet::new(),
        };
        let keeps = |window: &Window| {
            !window.is_for(naming) && window.nodes.iter().any(|n| mine.contains(n))
        };
        let off = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, window)| keeps(window));
        Named {
            own,
            off: off.map(|(place, _)| place).collect(),
        }
    }

    /// The nodes that work may have which names one.
    pub(crate) fn nodes_of(&self, named: &Named, size: usize) -> BitSet {
        let own = named.own.map(|own| self.0[own].nodes.iter().copied());
        BitSet::collect(size, own.into_iter().flatten())
    }

    /// Why work that names one cannot use it now, whatever its nodes do.
    pub(crate) fn blocker(&self, naming: &Naming, now: u64) -> Option<Blocker> {
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
