//! What a backup says of the state, and the state as a restored cluster begins with it.

use crate::State;
use lattice_quorum_types::{Applied, Envelope, Refusal, Revision, UnixMillis};

/// How far a restored cluster's revisions lie above the backup's. Whoever watched the cluster that
/// was backed up is at a revision between the two, of a history that the restored one does not
/// have: it is told that its place is gone, and begins anew.
pub const REVISION_GAP: u64 = 1_000_000_000;

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
    /// was backed up never had, and makes `note`. The same on every member.
    ///
    /// # Errors
    /// When `note` is refused.
    pub fn begin_anew(&mut self, note: &Envelope) -> Result<Applied, Refusal> {
        let before = self.revision;
        self.revision = Revision(before.0.saturating_add(REVISION_GAP));
        let applied = self.apply(self.last_index, note);
        if applied.is_err() {
            self.revision = before;
        }
        applied
    }
}
