//! Uncounted attempts of an allocation: attempts in which no rank was ever started. See `../0004-never-started.md`.

use lattice_quorum_types::AllocationId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of attempt numbers that a restored cluster skips: agents remember the attempts that followed the backup.
/// Attempts are counted modulo this number, which attempt numbers do not reach otherwise.
pub(crate) const ATTEMPT_GAP: u32 = 1 << 16;

/// Uncounted attempts of allocations that are not terminal.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct UncountedAttempts(BTreeMap<AllocationId, u32>);

impl UncountedAttempts {
    pub(crate) fn attempts(&self, id: AllocationId) -> u32 {
        self.0.get(&id).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, id: AllocationId, attempts: u32) {
        self.0.insert(id, attempts);
    }

    /// Makes the next attempt of the allocation skip [`ATTEMPT_GAP`] more numbers.
    pub(crate) fn skip_attempts(&mut self, id: AllocationId) {
        let attempts = self.0.entry(id).or_default();
        *attempts = attempts.saturating_add(ATTEMPT_GAP);
    }

    /// Removes the entry of an allocation that has become terminal.
    pub(crate) fn forget(&mut self, id: AllocationId) {
        self.0.remove(&id);
    }
}
