//! How many attempts of an allocation count for nothing: no rank of theirs was ever started. See
//! `../0004-never-started.md`.

use lattice_quorum_types::AllocationId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// So many attempts are skipped by a restored cluster: agents remember those that followed the backup.
/// Attempts are counted modulo this number, which none reaches otherwise.
pub(crate) const ATTEMPT_GAP: u32 = 1 << 16;

/// Of allocations that are not terminal and have such attempts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Unstarted(BTreeMap<AllocationId, u32>);

impl Unstarted {
    pub(crate) fn attempts(&self, id: AllocationId) -> u32 {
        self.0.get(&id).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, id: AllocationId, attempts: u32) {
        self.0.insert(id, attempts);
    }

    /// The allocation's next attempt skips as many numbers once more.
    pub(crate) fn skip_attempts(&mut self, id: AllocationId) {
        let attempts = self.0.entry(id).or_default();
        *attempts = attempts.saturating_add(ATTEMPT_GAP);
    }

    /// The allocation is terminal.
    pub(crate) fn forget(&mut self, id: AllocationId) {
        self.0.remove(&id);
    }
}
