//! Counts of open nodes: free nodes that no reservation holds back. Within a plan, nodes are taken and never released.
//! A count is therefore computed once for all jobs with the same possible nodes, and updated with the nodes taken
//! since.

use super::{hold_sets::ReservationPositions, holds::Holds};
use crate::{bits::BitSet, eligibility::sets::EligibleSets, machine::index::Index};

/// Count for all jobs of one set of nodes that end after the same reservations have started.
#[derive(Debug)]
struct OpenCountState {
    /// Number of entries of `taken` already subtracted.
    seen: usize,
    count: u32,
    /// Count by known conformance group.
    by_key: Vec<u32>,
    /// Largest count in `by_key`.
    alike: u32,
}

impl OpenCountState {
    fn find_alike(&mut self) {
        self.alike = self.by_key.iter().copied().max().unwrap_or(0);
    }
}

/// Nodes open to a job: all of them, and those of the largest conformance group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenCount {
    pub(crate) all: u32,
    pub(crate) alike: u32,
}

/// Counts of one set of nodes.
#[derive(Debug, Default)]
struct SetCounts {
    /// Counts for jobs with an end, by number of reservations that start before it.
    bounded: Vec<Option<OpenCountState>>,
    /// Count for jobs without an end.
    unbounded: Option<OpenCountState>,
}

/// Counts of open nodes, by set of nodes.
#[derive(Debug)]
pub(crate) struct OpenCounts {
    of_set: Vec<SetCounts>,
    taken: Vec<usize>,
}

impl OpenCounts {
    pub(crate) fn new(sets: usize) -> Self {
        Self {
            of_set: std::iter::repeat_with(SetCounts::default)
                .take(sets)
                .collect(),
            taken: Vec::new(),
        }
    }

    /// Notes that a node has been assigned.
    pub(crate) fn take(&mut self, n: usize) {
        self.taken.push(n);
    }

    /// Discards the counts that a new reservation changes. `place` is its position in the order of starts for each set.
    pub(crate) fn invalidate(&mut self, place: &ReservationPositions<'_>) {
        for (set, of_set) in self.of_set.iter_mut().enumerate() {
            of_set.bounded.truncate(place.of(set) + 1);
            of_set.unbounded = None;
        }
    }

    /// Counts free nodes of the set that no reservation holds back from a job that ends at `end`.
    pub(crate) fn count(
        &mut self,
        index: &Index,
        sets: &EligibleSets,
        free: &BitSet,
        ahead: &Holds<'_>,
        set: usize,
        end: Option<u64>,
    ) -> OpenCount {
        let nodes = &sets.get(set).nodes;
        let of_set = &mut self.of_set[set];
        let place = match end {
            None => &mut of_set.unbounded,
            Some(end) => {
                let before = ahead.starting_before(end);
                if of_set.bounded.len() <= before {
                    of_set.bounded.resize_with(before + 1, || None);
                }
                &mut of_set.bounded[before]
            }
        };
        let taken = &self.taken;
        let open = place.get_or_insert_with(|| {
            let mut nodes = nodes.and(free);
            ahead.drop_held(&mut nodes, end);
            let mut open = OpenCountState {
                seen: taken.len(),
                count: nodes.count(),
                by_key: index.count_by_conformance(&nodes),
                alike: 0,
            };
            open.find_alike();
            open
        });
        if open.seen < taken.len() {
            for n in &taken[open.seen..] {
                if nodes.contains(*n) && ahead.is_open_to(*n, end) {
                    open.count -= 1;
                    if let Some(key) = index.conformance_group_of[*n] {
                        open.by_key[key] -= 1;
                    }
                }
            }
            open.seen = taken.len();
            open.find_alike();
        }
        OpenCount {
            all: open.count,
            alike: open.alike,
        }
    }
}
