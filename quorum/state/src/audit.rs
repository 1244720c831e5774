//! What stays known for ever. Appended to, never changed, never dropped; kept apart from the rest
//! so that it can move into segment files beside the state without touching its callers.

use lattice_quorum_types::{
    Revision, UnixMillis,
    audit::{AuditAction, AuditEntry},
    command::Principal,
};
use serde::{Deserialize, Serialize};

/// The chain of entries. Entry `n` stands at position `n - 1`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Audit(Vec<AuditEntry>);

impl Audit {
    /// These entries, the first one first.
    pub(crate) fn of(entries: Vec<AuditEntry>) -> Self {
        Self(entries)
    }
    /// Appends an entry.
    pub(crate) fn append(
        &mut self,
        revision: Revision,
        at: UnixMillis,
        by: Principal,
        action: AuditAction,
    ) -> &AuditEntry {
        let entry = AuditEntry::following(self.0.last(), revision, at, by, action);
        let position = self.0.len();
        self.0.push(entry);
        &self.0[position]
    }
    /// Number of the last entry; 0 before the first.
    pub(crate) fn last_number(&self) -> u64 {
        self.0.last().map_or(0, |entry| entry.number)
    }
    /// The last entries, as many as are at hand; never empty where there are any.
    pub(crate) fn tail(&self) -> &[AuditEntry] {
        &self.0
    }
    /// Entries behind the one with this number, at most `limit`.
    pub(crate) fn after(&self, number: u64, limit: usize) -> &[AuditEntry] {
        let from = usize::try_from(number).map_or(self.0.len(), |n| n.min(self.0.len()));
        let behind = &self.0[from..];
        &behind[..limit.min(behind.len())]
    }
}
