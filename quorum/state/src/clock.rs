//! State time: the only clock there is, moved by stamped commands.

use lattice_quorum_types::UnixMillis;
use serde::{Deserialize, Serialize};

/// One command moves state time forward by at most this, milliseconds (24 h), except the first.
/// A proposer whose clock runs years ahead then spoils a day per command, visibly, instead of
/// everything at once; after a long outage the time catches up within a few commands.
pub const MAX_FORWARD_MS: u64 = 24 * 3600 * 1000;

/// Longest lease, milliseconds. It is also the most time that one command may take off the leases
/// that are running: a clock that steps by an hour must not hand every lease to somebody else.
/// Equal, so that a lease whose holder died always falls to a command stamped this much later.
pub const MAX_LEASE_MS: u64 = 60 * 1000;

/// State time and what went wrong with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Clock {
    pub(crate) now: UnixMillis,
    /// Forward jumps that were cut.
    pub(crate) jumps: u64,
}

impl Clock {
    /// State time once a command stamped `at` takes effect.
    pub(crate) fn next(&self, at: UnixMillis) -> UnixMillis {
        if self.now == UnixMillis(0) {
            return at;
        }
        at.max(self.now).min(self.now.after(MAX_FORWARD_MS))
    }

    /// How much later than written the leases end once state time is `now`.
    pub(crate) fn lease_grace(&self, now: UnixMillis) -> u64 {
        now.since(self.now).saturating_sub(MAX_LEASE_MS)
    }

    /// Moves to `now`, which [`Clock::next`] gave for `at`.
    pub(crate) fn advance(&mut self, at: UnixMillis, now: UnixMillis) {
        if at > now {
            self.jumps += 1;
        }
        self.now = now;
    }
}
