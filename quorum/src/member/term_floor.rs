//! Lowest term of a leader that a member without a log may follow. `leadership/vote_guard.rs` determines it.

use parking_lot::Mutex;
use tokio::sync::MutexGuard;

/// Lowest term of a leader that this member may follow, once established.
#[derive(Debug, Default)]
pub(crate) struct TermFloor {
    term: Mutex<Option<u64>>,
    /// Serialises the requests to the other members.
    asking: tokio::sync::Mutex<()>,
}

impl TermFloor {
    /// Returns the term; `None` while it is not established.
    pub(crate) fn get(&self) -> Option<u64> {
        *self.term.lock()
    }

    /// Establishes the term.
    pub(crate) fn set(&self, term: u64) {
        *self.term.lock() = Some(term);
    }

    /// Waits until no other task requests the terms of the other members. Released when the guard is dropped.
    pub(crate) async fn lock_queries(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().await
    }
}
