//! State time: the only clock of the state machine, advanced by the time stamp of each command.

use lattice_quorum_types::UnixMillis;
use serde::{Deserialize, Serialize};

/// Largest step of state time per command, milliseconds (24 h), except for the first command. A clock that
/// runs years ahead then adds one visible day per command instead of breaking everything at once. After a long outage,
/// state time catches up within a few commands.
pub const MAX_FORWARD_MS: u64 = 24 * 3600 * 1000;

/// Longest lease, milliseconds. This is also the most time that one command may take off running leases: a clock step
/// of an hour must not expire every lease at once. Both are equal, so that the lease of a dead holder always expires at
/// a command stamped this much later.
pub const MAX_LEASE_MS: u64 = 60 * 1000;

/// State time, with the count of capped steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Clock {
    pub(crate) now: UnixMillis,
    /// Number of forward steps that exceeded the limit and were capped.
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

    /// Milliseconds by which running leases are extended once state time is `now`.
    pub(crate) fn lease_grace(&self, now: UnixMillis) -> u64 {
        now.since(self.now).saturating_sub(MAX_LEASE_MS)
    }

    /// Advances to `now`, which [`Clock::next`] returned for `at`.
    pub(crate) fn advance(&mut self, at: UnixMillis, now: UnixMillis) {
        if at > now {
            self.jumps += 1;
        }
        self.now = now;
    }
}
