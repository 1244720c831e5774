//! What is held back from whom: work that names no reservation stays off all windows of administrators, work
//! that names one off those of others. Reservations of blocked jobs hold for everybody.

use crate::{ahead::Ahead, bits::BitSet, eligible::EligibleSets, windows::Windows};
use lattice_quorum_types::AllocationId;
use std::{borrow::Cow, collections::BTreeMap};

/// See the module.
#[derive(Debug)]
pub(crate) struct Aheads<'a> {
    /// By set of nodes, which of them; empty where all have the first.
    of_set: Vec<usize>,
    /// The first is of work that names no reservation. Those that the same windows keep off share one.
    each: Vec<Ahead<'a>>,
}

/// A reservation of a blocked job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocked<'n> {
    pub(crate) by: AllocationId,
    pub(crate) starts_at: u64,
    pub(crate) ends_at: Option<u64>,
    pub(crate) nodes: &'n [usize],
}

impl<'a> Aheads<'a> {
    pub(crate) fn new(windows: &Windows, sets: &EligibleSets, size: usize, now: u64) -> Self {
        let mut everybody = Ahead::none(size);
        if windows.is_empty() {
            return Self {
                of_set: Vec::new(),
                each: vec![everybody],
            };
        }
        for place in 0..windows.len() {
            everybody.keep(windows, place, now);
        }
        let mut each = vec![everybody];
        let mut known: BTreeMap<&[usize], usize> = BTreeMap::new();
        let mut of_set = Vec::with_capacity(sets.len());
        for set in sets.iter() {
            let Some(named) = &set.named else {
                of_set.push(0);
                continue;
            };
            let next = each.len();
            let place = *known.entry(&named.off).or_insert(next);
            if place == next {
                let mut ahead = Ahead::none(size);
                named.off.iter().for_each(|w| ahead.keep(windows, *w, now));
                each.push(ahead);
            }
            of_set.push(place);
        }
        Self { of_set, each }
    }

    fn number(&self, set: usize) -> usize {
        self.of_set.get(set).copied().unwrap_or(0)
    }

    /// What is held back from jobs whose nodes are those of a set.
    pub(crate) fn of(&self, set: usize) -> &Ahead<'a> {
        &self.each[self.number(set)]
    }

    /// Nodes that are held back from somebody, for who names no reservation; `None`: none are.
    pub(crate) fn held(&self) -> Option<&BitSet> {
        self.each.first().and_then(Ahead::held)
    }

    /// The same, to be settled.
    pub(crate) fn settle(&mut self, set: usize) {
        let number = self.number(set);
        self.each[number].settle();
    }

    /// Adds the reservation of a job, whose nodes are those of `set`: `could_use`. What is kept from it now it
    /// does not contest.
    pub(crate) fn add(
        &mut self,
        set: usize,
        made: Blocked<'_>,
        could_use: &'a BitSet,
    ) -> Places<'_> {
        let could_use = match self.of(set).kept_now() {
            None => Cow::Borrowed(could_use),
            Some(kept) => {
                let mut rest = could_use.clone();
                rest.drop_all(kept);
                Cow::Owned(rest)
            }
        };
        let add = |ahead: &mut Ahead<'a>| ahead.add(set, made, could_use.clone());
        let places = self.each.iter_mut().map(add).collect();
        Places {
            of_set: &self.of_set,
            places,
        }
    }
}

/// Where a reservation is in the order of starts.
pub(crate) struct Places<'p> {
    of_set: &'p [usize],
    places: Vec<usize>,
}

impl Places<'_> {
    /// For jobs whose nodes are those of a set.
    pub(crate) fn of(&self, set: usize) -> usize {
        self.places[self.of_set.get(set).copied().unwrap_or(0)]
    }
}
