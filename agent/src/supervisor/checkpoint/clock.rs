//! Monotonic time for checkpoints.

use crate::attempt::OrderRecord;
use crate::supervisor::deadline::NEVER;
use crate::supervisor::now;
use lattice_quorum_types::UnixMillis;
use std::time::Duration;
use tokio::time::Instant;

/// Time of an order, which continues monotonically even if the machine's clock is set.
pub(super) struct MonotonicTime {
    from: UnixMillis,
    at: Instant,
}

impl MonotonicTime {
    /// Clock for an order that starts now.
    pub(super) fn of(order: &OrderRecord) -> Self {
        Self {
            from: now().max(order.asked_at),
            at: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> UnixMillis {
        let gone = self.at.elapsed().as_millis();
        self.from.after(u64::try_from(gone).unwrap_or(u64::MAX))
    }

    /// Instant at which the clock reaches `at`.
    pub(super) fn instant(&self, at: UnixMillis) -> Instant {
        // Rounded up to a whole millisecond, so that the instant is not too early.
        let wait = Duration::from_millis(at.since(self.from).saturating_add(1));
        self.at + wait.min(NEVER)
    }
}
