//! What a backup says of the state, and the state as a restored cluster begins with it.

use crate::{State, unstarted::ATTEMPT_GAP};
use lattice_quorum_types::course::CHECKPOINT_GAP;
use lattice_quorum_types::{Applied, Envelope, Refusal, Revision, UnixMillis, tenure::TenurePhase};
use std::sync::Arc;

/// How far a restored cluster's revisions lie above the backup's. Whoever watched the cluster that
/// was backed up is at a revision between the two, of a history that the restored one does not
/// have: it is told that its place is gone, and begins anew.
pub const REVISION_GAP: u64 = 1_000_000_000;

/// The same for numbers of allocations, by which agents know what ran: room for ten thousand arrays of the
/// largest size after the backup.
const ALLOCATION_GAP: u64 = 1 << 30;

/// The same for what orders to agents carry: versions of nodes, by which wipes are numbered, and epochs
/// of leases.
const ORDER_GAP: u64 = 1 << 32;

impl State {
    /// Number of the last entry of the audit; 0 before the first.
    pub fn audit_number(&self) -> u64 {
        self.audit.last_number()
    }

    /// State time and revision.
    pub fn stamp(&self) -> (UnixMillis, Revision) {
        (self.clock.now, self.revision)
    }

    /// Goes on as the state of a restored cluster: its next revision is one that the cluster which
    /// was backed up never had, and makes `note`. No number that agents remember is given again. The
    /// same on every member.
    ///
    /// # Errors
    /// When `note` is refused; then nothing is changed.
    pub fn begin_anew(&mut self, note: &Envelope) -> Result<Applied, Refusal> {
        self.check(note)?;
        self.revision = Revision(self.revision.0.saturating_add(REVISION_GAP));
        self.skip_numbers();
        self.apply(self.last_index, note)
    }

    /// Agents went on after the backup: they answer for allocations, attempts and wipes of which this
    /// state knows nothing, by their numbers, and refuse orders below the highest they had.
    fn skip_numbers(&mut self) {
        self.last_id = self.last_id.saturating_add(ALLOCATION_GAP);
        for node in self.nodes.values_mut() {
            node.version = node.version.saturating_add(ORDER_GAP);
            let phase = node.tenure.as_mut().map(|tenure| &mut tenure.phase);
            if let Some(TenurePhase::Releasing { wipe, .. }) = phase {
                *wipe = wipe.saturating_add(ORDER_GAP);
            }
        }
        self.leases.skip_epochs(ORDER_GAP);
        for allocation in self.hot.values_mut() {
            if allocation.spec.terms.checkpoint.is_some() {
                let course = &mut Arc::make_mut(allocation).course;
                course.checkpoints = course.checkpoints.saturating_add(CHECKPOINT_GAP);
            }
            match allocation.state.holds() {
                // Its present attempt may run: the next one is another.
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
