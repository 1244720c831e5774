//! Retries of failed rounds.

use lattice_quorum_types::UnixMillis;
use std::time::Duration;

/// First pause after a failed round, in milliseconds; doubled with each further failure.
const FIRST_RETRY_MS: u64 = 1_000;
/// Longest pause, in milliseconds, before jitter. Waldur may request a pause of up to twelve times this value.
const LAST_RETRY_MS: u64 = 300_000;

/// Retry of a failed round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    failed_at: UnixMillis,
    at: UnixMillis,
}

impl Retry {
    /// Retry after a failure at `failed_at`, which followed `failures` others. The pause is doubled each time, with
    /// jitter, and at least the time `requested` by Waldur, up to an hour.
    pub(super) fn after(failed_at: UnixMillis, failures: u32, requested: Option<Duration>) -> Self {
        let doubled = FIRST_RETRY_MS
            .checked_shl(failures.min(16))
            .unwrap_or(LAST_RETRY_MS);
        let wait_ms = doubled.min(LAST_RETRY_MS);
        let spread = rand::random_range(0..=wait_ms / 4);
        let requested_ms = requested.map_or(0, |pause| pause.as_millis() as u64);
        let wait_ms = (wait_ms + spread).max(requested_ms.min(LAST_RETRY_MS * 12));
        Self {
            failed_at,
            at: failed_at.after(wait_ms),
        }
    }

    /// Time at which the retry is due.
    pub(super) fn at(self) -> UnixMillis {
        self.at
    }

    /// Time until the retry is due, in milliseconds; 0 if it is due. A clock that was set back to before the failure ends
    /// the wait, which would otherwise be longer by the whole step.
    pub(super) fn remaining_ms(self, now: UnixMillis) -> u64 {
        match now < self.failed_at {
            true => 0,
            false => self.at.since(now),
        }
    }
}
