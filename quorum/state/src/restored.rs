//! Backup and restore: audit number, state time and revision of a state, and the first state of a restored cluster.

use crate::{State, unstarted::ATTEMPT_GAP};
use lattice_quorum_types::progress::CHECKPOINT_GAP;
use lattice_quorum_types::{
    Applied, Envelope, Refusal, Revision, UnixMillis, node_claim::NodeClaimPhase,
};
use std::sync::Arc;

/// Distance between the revisions of a backup and those of the restored cluster. A watcher of the backed-up cluster may
/// hold a revision between the two, from a history that the restored cluster does not have. Such a watcher is rejected
/// and starts again from a full read.
pub const REVISION_GAP: u64 = 1_000_000_000;

/// Distance between the allocation ids of a backup and those of the restored cluster: enough for ten thousand arrays of
/// the largest size after the backup. Agents report the processes of these allocations by id.
const ALLOCATION_GAP: u64 = 1 << 30;

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

    /// Turns this state into that of a restored cluster, and applies `note`. The next revision is one that the
    /// backed-up cluster never had, and no number that agents remember is used again. The result is the same on every
    /// member.
    ///
    /// # Errors
    /// The refusal of `note`; the state is then unchanged.
    pub fn begin_restored(&mut self, note: &Envelope) -> Result<Applied, Refusal> {
        self.check(note)?;
        self.revision = Revision(self.revision.0.saturating_add(REVISION_GAP));
        self.skip_numbers();
        self.apply(self.last_index, note)
    }

    /// Skips numbers that agents may have received after the backup. Agents report allocations, attempts and wipes of
    /// that time by number, and reject orders with numbers below the highest that they received.
    fn skip_numbers(&mut self) {
        self.last_id = self.last_id.saturating_add(ALLOCATION_GAP);
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
