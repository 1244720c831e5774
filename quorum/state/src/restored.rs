//! Backup and restore: audit number, state time and revision of a state, and the first state of a restored cluster.

use crate::{State, unstarted::ATTEMPT_GAP};
use lattice_quorum_types::progress::CHECKPOINT_GAP;
use lattice_quorum_types::{
    AllocationId, Applied, Command, Envelope, Refusal, Revision, UnixMillis, audit::AuditAction,
    node_claim::NodeClaimPhase,
};
use std::sync::Arc;

pub use lattice_quorum_types::restoration::REVISION_GAP;

/// Smallest distance between the allocation numbers of a backup and those of the restored cluster. Agents report the
/// processes of allocations that were submitted after the backup by number, so none of these numbers may be used again.
/// Nothing in the state bounds how many there are. The distance is 900 days of a million submits each, which is more
/// than the largest sites have, or 8,999 job arrays of the largest size; backups are made daily or more often.
const MIN_ALLOCATION_GAP: u64 = 900_000_000;

/// Allocation numbers of a restored cluster begin after a multiple of this number, so that people can read
/// and compare them: 1000000001 after the first restore, 2000000001 after the second.
const ALLOCATION_STEP: u64 = 1_000_000_000;

/// Distance for numbers in orders to agents: node versions, which also number wipes, and lease epochs.
const AGENT_ORDER_GAP: u64 = 1 << 32;

impl State {
    /// Number of the last audit entry; 0 before the first.
    pub fn audit_number(&self) -> u64 {
        self.audit.last_number()
    }

    /// State time and revision.
    pub fn time_and_revision(&self) -> (UnixMillis, Revision) {
        (self.clock.now, self.revision)
    }

    /// Highest number of an allocation, array element or DAG; 0 before the first.
    pub fn last_allocation(&self) -> AllocationId {
        AllocationId(self.last_id)
    }

    /// Last number that a cluster restored from this state skips: its first allocation has the next number.
    pub fn skipped_until(&self) -> AllocationId {
        let lowest = self.last_id.saturating_add(MIN_ALLOCATION_GAP);
        AllocationId(
            lowest
                .div_ceil(ALLOCATION_STEP)
                .saturating_mul(ALLOCATION_STEP),
        )
    }

    /// Turns this state into that of a restored cluster, and applies `note`. The next revision is one that the
    /// backed-up cluster never had, and no number that agents remember is used again. A second audit entry, by the
    /// principal of `note`, has the skipped allocation numbers. The result is the same on every member.
    ///
    /// # Errors
    /// The refusal of `note`; the state is then unchanged.
    pub fn begin_restored(&mut self, note: &Envelope) -> Result<Applied, Refusal> {
        self.check(note)?;
        let skipped = AuditAction::NumbersSkipped {
            after: self.last_allocation(),
            until: self.skipped_until(),
            revision: self.revision,
        };
        self.revision = Revision(self.revision.0.saturating_add(REVISION_GAP));
        self.skip_numbers();
        let applied = self.apply(self.last_index, note)?;
        let skipped = Envelope {
            key: None,
            command: Command::NoteQuorum {
                action: Box::new(skipped),
            },
            ..note.clone()
        };
        self.apply(self.last_index, &skipped)?;
        Ok(applied)
    }

    /// Skips numbers that agents may have received after the backup. Agents report allocations, attempts and wipes of
    /// that time by number, and reject orders with numbers below the highest that they received.
    fn skip_numbers(&mut self) {
        self.last_id = self.skipped_until().0;
        for node in self.nodes.values_mut() {
            node.version = node.version.saturating_add(AGENT_ORDER_GAP);
            let phase = node
                .node_claim
                .as_mut()
                .map(|node_claim| &mut node_claim.phase);
            if let Some(NodeClaimPhase::Releasing { wipe, .. }) = phase {
                *wipe = wipe.saturating_add(AGENT_ORDER_GAP);
            }
        }
        self.leases.skip_epochs(AGENT_ORDER_GAP);
        for allocation in self.hot.values_mut() {
            if allocation.spec.terms.checkpoint.is_some() {
                let progress = &mut Arc::make_mut(allocation).progress;
                progress.checkpoints = progress.checkpoints.saturating_add(CHECKPOINT_GAP);
            }
            match allocation.state.holds() {
                // The present attempt may still run, so only the next attempt skips numbers.
                true => self.unstarted.skip_attempts(allocation.id),
                false => {
                    let allocation = Arc::make_mut(allocation);
                    allocation.attempt = allocation.attempt.saturating_add(ATTEMPT_GAP);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
