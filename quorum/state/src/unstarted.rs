//! Ranks that ended without ever having been started, and how often that put an allocation back.
//! See `../0004-never-started.md`.

use lattice_quorum_types::{Allocation, AllocationId, allocation::RankPhase};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Of allocations that are not terminal.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Unstarted(BTreeMap<AllocationId, NeverStarted>);

/// Of one allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NeverStarted {
    /// The attempt that `ranks` are of.
    attempt: u32,
    /// Positions of those that never started.
    ranks: BTreeSet<u32>,
    /// Attempts of which nothing ran, and that put it back.
    uncounted: u32,
}

impl Unstarted {
    pub(crate) fn get(&self, id: AllocationId) -> Option<&NeverStarted> {
        self.0.get(&id)
    }

    pub(crate) fn set(&mut self, id: AllocationId, known: NeverStarted) {
        self.0.insert(id, known);
    }

    /// The allocation is terminal.
    pub(crate) fn forget(&mut self, id: AllocationId) {
        self.0.remove(&id);
    }
}

impl NeverStarted {
    /// With one more rank of this attempt.
    pub(crate) fn with(mut self, attempt: u32, rank: u32) -> Self {
        if self.attempt != attempt {
            self.attempt = attempt;
            self.ranks.clear();
        }
        self.ranks.insert(rank);
        self
    }

    /// With one more attempt that counts for nothing.
    pub(crate) fn put_back(mut self) -> Self {
        self.uncounted += 1;
        self.ranks.clear();
        self
    }

    /// Attempts of which nothing ran, and that put it back.
    pub(crate) fn uncounted(&self) -> u32 {
        self.uncounted
    }

    /// Whether no rank of the present attempt that has ended was ever started, and one has.
    pub(crate) fn covers(&self, record: &Allocation) -> bool {
        let never_started = |rank: u32| self.ranks.contains(&rank);
        let mut ranks = (0..).zip(&record.ranks);
        self.attempt == record.attempt
            && !self.ranks.is_empty()
            && ranks.all(|(number, rank)| match rank.phase {
                RankPhase::Assigned => true,
                RankPhase::Running { .. } => false,
                RankPhase::Ended { .. } => never_started(number),
            })
    }
}
