//! Time that no clock's setting changes.

use crate::attempt::OrderRecord;
use crate::supervisor::now;
use crate::supervisor::stop::NEVER;
use lattice_quorum_types::UnixMillis;
use std::time::Duration;
use tokio::time::Instant;

/// The order's time, going on from when it was taken whatever becomes of the machine's clock.
pub(super) struct Steady {
    from: UnixMillis,
    at: Instant,
}

impl Steady {
    /// Of an order that is begun with now.
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

    /// When it will be then.
    pub(super) fn instant(&self, at: UnixMillis) -> Instant {
        // Not a part of a millisecond before.
        let wait = Duration::from_millis(at.since(self.from).saturating_add(1));
        self.at + wait.min(NEVER)
    }
}
