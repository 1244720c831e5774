//! Log limiter: bounds the lines about events that strangers cause, such as refused handshakes.
//!
//! The first event of a key is logged. Until [`INTERVAL_MS`] later, further events of the key are only counted, and the
//! next line has their number.

use parking_lot::Mutex;
use std::{collections::HashMap, hash::Hash};
use tokio::time::Instant;

/// Shortest time between two lines about one key, milliseconds.
const INTERVAL_MS: u64 = 60_000;
/// Maximum number of keys. Further keys share one line per interval.
const MAX_KEYS: usize = 256;

/// Events of one key since its last line.
#[derive(Debug)]
struct Window {
    logged_at_ms: u64,
    suppressed: u64,
}

impl Window {
    fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.logged_at_ms) >= INTERVAL_MS
    }

    /// Counts one event. Returns the number of suppressed events if the event is logged.
    fn count(&mut self, now_ms: u64) -> Option<u64> {
        if !self.is_over(now_ms) {
            self.suppressed += 1;
            return None;
        }
        self.logged_at_ms = now_ms;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Windows by key, for a bounded number of keys. The caller supplies the time, in milliseconds of a monotonic clock.
#[derive(Debug)]
struct Windows<K> {
    by_key: HashMap<K, Window>,
    /// Window of all keys beyond [`MAX_KEYS`].
    overflow: Option<Window>,
    /// Suppressed events of keys that were removed; reported with the next line.
    removed: u64,
}

impl<K: Eq + Hash + Clone> Windows<K> {
    fn new() -> Self {
        Self {
            by_key: HashMap::new(),
            overflow: None,
            removed: 0,
        }
    }

    fn admit(&mut self, key: &K, now_ms: u64) -> Option<u64> {
        let first = Window {
            logged_at_ms: now_ms,
            suppressed: 0,
        };
        let suppressed = if let Some(window) = self.by_key.get_mut(key) {
            window.count(now_ms)?
        } else if self.has_room(now_ms) {
            self.by_key.insert(key.clone(), first);
            0
        } else if let Some(overflow) = &mut self.overflow {
            overflow.count(now_ms)?
        } else {
            self.overflow = Some(first);
            0
        };
        Some(suppressed + std::mem::take(&mut self.removed))
    }

    /// Removes expired keys if there are too many. Returns whether a key may be added.
    fn has_room(&mut self, now_ms: u64) -> bool {
        if self.by_key.len() >= MAX_KEYS {
            let removed = &mut self.removed;
            self.by_key.retain(|_, window| {
                let is_over = window.is_over(now_ms);
                if is_over {
                    *removed += window.suppressed;
                }
                !is_over
            });
        }
        self.by_key.len() < MAX_KEYS
    }
}

/// Limits the log lines of one kind of event by key.
#[derive(Debug)]
pub(crate) struct LogLimiter<K> {
    windows: Mutex<Windows<K>>,
    started: Instant,
}

impl<K: Eq + Hash + Clone> LogLimiter<K> {
    pub(crate) fn new() -> Self {
        Self {
            windows: Mutex::new(Windows::new()),
            started: Instant::now(),
        }
    }

    /// Counts an event of `key`. Returns the number of events that were not logged since the last line if this event is
    /// to be logged.
    pub(crate) fn admit(&self, key: &K) -> Option<u64> {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.windows.lock().admit(key, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_event_is_logged_and_later_ones_are_counted() {
        let mut windows = Windows::new();
        assert_eq!(windows.admit(&"a", 0), Some(0));
        for second in 1..60 {
            assert_eq!(windows.admit(&"a", second * 1000), None);
        }
        assert_eq!(windows.admit(&"b", 1000), Some(0), "another source");
        assert_eq!(windows.admit(&"a", 60_000), Some(59));
        assert_eq!(windows.admit(&"a", 60_001), None);
        assert_eq!(windows.admit(&"a", 500_000), Some(1));
    }

    /// An attacker has as many addresses as it likes.
    #[test]
    fn lines_and_keys_are_bounded() {
        let mut windows = Windows::new();
        let lines = (0..10_000).filter(|n| windows.admit(n, 0).is_some());
        assert_eq!(lines.count(), MAX_KEYS + 1);
        assert_eq!(windows.by_key.len(), MAX_KEYS);
        assert_eq!(windows.admit(&20_000, 1), None);
        // The counts of removed keys are in the next line.
        for n in 0..3 {
            assert_eq!(windows.admit(&n, 2), None);
        }
        assert_eq!(windows.admit(&30_000, INTERVAL_MS), Some(3));
        assert_eq!(windows.by_key.len(), 1);
    }
}
