//! Time of the last contact: a message from an accepted leader, an answer of another member, or a check of the election
//! gate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// Time of the last contact. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LastContact {
    start: Instant,
    /// Microseconds since `start`, plus one; 0 for never.
    last: Arc<AtomicU64>,
}

impl LastContact {
    /// Creates a timer without any contact.
    pub(crate) fn never() -> Self {
        Self {
            start: Instant::now(),
            last: Arc::default(),
        }
    }
    /// Records a contact at the present time.
    pub(crate) fn record(&self) {
        let micros = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX - 1);
        self.last.store(micros + 1, Ordering::Relaxed);
    }
    /// Milliseconds since the last contact; `None` before the first one.
    pub(crate) fn millis(&self) -> Option<u64> {
        let last = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        let since = self.start.elapsed();
        let since = since.saturating_sub(Duration::from_micros(last));
        Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
    /// Returns whether there was no contact for at least `span`, or none at all.
    pub(crate) fn silent_for(&self, span: Duration) -> bool {
        match self.last.load(Ordering::Relaxed) {
            0 => true,
            last => {
                let last = Duration::from_micros(last - 1);
                self.start.elapsed().saturating_sub(last) >= span
            }
        }
    }
}
