//! The state as it will be once everything under way is applied: what the leader judges
//! proposals on, so that one that breaks a limit never enters the log.
//!
//! It is a copy of the state on which batches are applied before they are proposed. It holds for
//! one term: another leader's commands are not in it.

use crate::{member::Member, reads};
use lattice_quorum_state::State;
use lattice_quorum_types::{Envelope, Refusal, Revision, UnixMillis, wire::Unavailable};

/// A command may be stamped at most this much ahead of the leader's clock, milliseconds. A
/// proposer whose clock is wrong then cannot move everybody's time; that it tried is logged.
pub(crate) const MAX_AHEAD_MS: u64 = 30_000;

/// The leader's foresight for one term.
pub(crate) struct Ahead {
    state: State,
    term: u64,
}

impl Ahead {
    /// Copies the state once everything of earlier terms is applied. Nothing may be under way.
    pub(crate) async fn prepare(member: &Member, term: u64) -> Result<Self, Unavailable> {
        reads::barrier(member).await?;
        let state = member.replica.copy();
        Ok(Self { state, term })
    }

    /// The term it holds for.
    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    /// Bounds the time a command carries.
    pub(crate) fn bound_time(&self, envelope: &mut Envelope, clock: UnixMillis) {
        let latest = clock.after(MAX_AHEAD_MS).max(self.state.now());
        if envelope.at > latest {
            tracing::warn!(
                principal = %envelope.principal.name,
                ahead_ms = envelope.at.since(clock),
                "a command was stamped far ahead of this leader's clock and was set back; check \
                 the clocks of both hosts"
            );
            envelope.at = latest;
        }
    }

    /// Judges a command on everything before it, and counts it in when it is accepted. Gives the
    /// revision it will make.
    pub(crate) fn admit(&mut self, envelope: &Envelope) -> Result<Revision, Refusal> {
        let index = self.state.last_index();
        let applied = self.state.apply(index, envelope);
        // The member's own state makes them too, and keeps them.
        drop(self.state.take_sealed());
        applied.map(|applied| applied.revision)
    }
}
