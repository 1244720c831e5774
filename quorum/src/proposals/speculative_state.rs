//! Speculative state: the state as it will be once every command in flight is applied. The leader validates proposals
//! on this state, so that a command that exceeds a limit never enters the log.
//!
//! The speculative state is a copy of the applied state. Batches are applied to the copy before they are proposed. The
//! copy is valid for one term, because it does not contain another leader's commands.

use crate::{member::Member, reads};
use lattice_quorum_state::State;
use lattice_quorum_types::{Envelope, Refusal, Revision, UnixMillis, wire::Unavailable};

/// Maximum lead of a command's time over the leader's clock, milliseconds. A proposer with a wrong clock then cannot
/// advance the state time for the whole cluster. The attempt is logged.
pub(crate) const MAX_AHEAD_MS: u64 = 30_000;

/// Speculative state of the leader for one term.
pub(crate) struct SpeculativeState {
    state: State,
    term: u64,
}

impl SpeculativeState {
    /// Copies the state once all commands of earlier terms are applied. No command may be in flight.
    pub(crate) async fn prepare(member: &Member, term: u64) -> Result<Self, Unavailable> {
        reads::barrier(member).await?;
        let state = member.replica.copy();
        Ok(Self { state, term })
    }

    /// Term for which the speculative state is valid.
    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// Limits the time that a command carries.
    pub(crate) fn bound_time(&self, envelope: &mut Envelope, clock: UnixMillis) {
        let latest = clock.after(MAX_AHEAD_MS).max(self.state.now());
        if envelope.at > latest {
            tracing::warn!(
                principal = %envelope.principal.name,
                ahead_ms = envelope.at.since(clock),
                "command timestamp far ahead of this leader's clock was set back; check the clocks \
                 of both hosts"
            );
            envelope.at = latest;
        }
    }

    /// Validates a command on the state after all earlier commands, and applies it to the copy if it is accepted.
    /// Returns the revision that the command will create.
    pub(crate) fn admit(&mut self, envelope: &Envelope) -> Result<Revision, Refusal> {
        let index = self.state.last_index();
        let applied = self.state.apply(index, envelope);
        // The member's own state seals the same segments, and stores them.
        drop(self.state.take_sealed());
        applied.map(|applied| applied.revision)
    }
}
