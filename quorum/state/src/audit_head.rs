//! Audit head: the last entry of the audit, and the newest signed audit head.

use crate::State;
use lattice_quorum_types::audit::{AuditAction, AuditEntry, AuditHead};

impl State {
    /// Returns the last entry of the audit, the newest signed audit head, and the time of the oldest entry that no
    /// signed audit head covers.
    pub fn audit_head(&self) -> AuditHead {
        let tail = self.audit.tail();
        let Some(last) = tail.last() else {
            return AuditHead::default();
        };
        let is_checkpoint =
            |entry: &AuditEntry| matches!(entry.action, AuditAction::SignedHead { .. });
        let newest = tail.iter().rposition(is_checkpoint);
        let (checkpoint, covered) = match newest.map(|at| &tail[at]) {
            Some(entry) => match &entry.action {
                AuditAction::SignedHead { of, .. } => (entry.number, of.number),
                _ => (0, 0),
            },
            None => (0, 0),
        };
        let behind = tail.partition_point(|entry| entry.number <= covered);
        let mut unsigned = tail[behind..].iter();
        AuditHead {
            number: last.number,
            hash: last.hash,
            at: last.at,
            signed_head: checkpoint,
            unsigned_since: unsigned
                .find(|entry| !is_checkpoint(entry))
                .map(|entry| entry.at),
        }
    }
}
