//! Batches of requests to Waldur, some of which are sent at the same time.

use crate::client::WaldurError;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// Longest time in which requests of a batch begin that later reports must not wait for.
const MAX_SHARE: Duration = Duration::from_secs(15);

/// State of a batch. Requests that have begun are completed; the others are sent in later rounds.
#[derive(Debug, Default)]
pub(super) struct Batch {
    until: Option<Instant>,
    has_failed: AtomicBool,
}

impl Batch {
    /// Batch of new resources, orders or ends: requests begin for a quarter of the interval between two rounds, at most 15
    /// seconds. A round with all three kinds therefore ends before the next one is due, and no report waits for them.
    pub(super) fn with_share_of(interval: Duration) -> Self {
        Self {
            until: Some(Instant::now() + (interval / 4).min(MAX_SHARE)),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Whether no further request may begin: the time is over, or Waldur failed at a request.
    pub(super) fn is_over(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
            || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Ends the batch after a failure that other requests would meet too.
    pub(super) fn note<T>(&self, done: &Result<T, WaldurError>) {
        if done.as_ref().is_err_and(WaldurError::is_transient) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }
}
