//! Where the audit ends, and how far it is signed.

use crate::State;
use lattice_quorum_types::audit::{AuditAction, AuditEntry, AuditHead};

impl State {
    /// Where the audit ends, and since when something in it waits for a checkpoint.
    pub fn audit_head(&self) -> AuditHead {
        let tail = self.audit.tail();
        let Some(last) = tail.last() else {
            return AuditHead::default();
        };
        let is_checkpoint =
            |entry: &AuditEntry| matches!(entry.action, AuditAction::Checkpoint { .. });
        let newest = tail.iter().rposition(is_checkpoint);
        let (checkpoint, covered) = match newest.map(|at| &tail[at]) {
            Some(entry) => match &entry.action {
                AuditAction::Checkpoint { of, .. } => (entry.number, of.number),
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
            checkpoint,
            unsigned_since: unsigned
                .find(|entry| !is_checkpoint(entry))
                .map(|entry| entry.at),
        }
    }
}
