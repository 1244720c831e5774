//! Reservations by group of jobs. A job that names no reservation is kept off all operator windows; a job that names
//! one is kept off the windows of others. Reservations of blocked jobs apply to every job.

use super::holds::{BlockedHold, Holds};
use crate::{bits::BitSet, eligibility::sets::EligibleSets, machine::windows::Windows};
use std::{borrow::Cow, collections::BTreeMap};

/// Reservations by group of jobs.
#[derive(Debug)]
pub(crate) struct HoldSets<'a> {
    /// Index into `holds`, by set of nodes; empty if all sets use the first entry.
    of_set: Vec<usize>,
    /// Reservations of each group. The first entry is for jobs that name no reservation; jobs kept off the same windows
    /// share an entry.
    holds: Vec<Holds<'a>>,
}

impl<'a> HoldSets<'a> {
    pub(crate) fn new(windows: &Windows, sets: &EligibleSets, size: usize, now: u64) -> Self {
        let mut everybody = Holds::new(size);
        if windows.is_empty() {
            return Self {
                of_set: Vec::new(),
                holds: vec![everybody],
            };
        }
        for place in 0..windows.len() {
            everybody.add_window(windows, place, now);
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
                let mut ahead = Holds::new(size);
                named
                    .off
                    .iter()
                    .for_each(|w| ahead.add_window(windows, *w, now));
                each.push(ahead);
            }
            of_set.push(place);
        }
        Self {
            of_set,
            holds: each,
        }
    }

    fn number(&self, set: usize) -> usize {
        self.of_set.get(set).copied().unwrap_or(0)
    }

    /// Reservations that apply to jobs of this set of nodes.
    pub(crate) fn for_set(&self, set: usize) -> &Holds<'a> {
        &self.holds[self.number(set)]
    }

    /// Nodes held back from jobs that name no reservation; `None`: no node.
    pub(crate) fn held_nodes(&self) -> Option<&BitSet> {
        self.holds.first().and_then(Holds::held_nodes)
    }

    /// Computes until when nodes are contested by the reservations that apply to jobs of this set; see
    /// [`Holds::compute_contested_until`].
    pub(crate) fn settle(&mut self, set: usize) {
        let number = self.number(set);
        self.holds[number].compute_contested_until();
    }

    /// Adds the reservation of a job. `could_use` is every node that fits the job; `set` is the number of that set. The
    /// job does not contest nodes that windows hold back from it now.
    pub(crate) fn add(
        &mut self,
        set: usize,
        made: BlockedHold<'_>,
        could_use: &'a BitSet,
    ) -> ReservationPositions<'_> {
        let could_use = match self.for_set(set).held_now() {
            None => Cow::Borrowed(could_use),
            Some(kept) => {
                let mut rest = could_use.clone();
                rest.subtract(kept);
                Cow::Owned(rest)
            }
        };
        let add = |ahead: &mut Holds<'a>| ahead.add(set, made, could_use.clone());
        let places = self.holds.iter_mut().map(add).collect();
        ReservationPositions {
            of_set: &self.of_set,
            places,
        }
    }
}

/// Positions of one reservation in the order of starts.
pub(crate) struct ReservationPositions<'p> {
    of_set: &'p [usize],
    places: Vec<usize>,
}

impl ReservationPositions<'_> {
    /// Position for jobs of this set of nodes.
    pub(crate) fn of(&self, set: usize) -> usize {
        self.places[self.of_set.get(set).copied().unwrap_or(0)]
    }
}
