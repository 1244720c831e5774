//! One bucket per principal: whoever asks too often waits, the others notice nothing.

use lattice_quorum_types::UnixMillis;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Thousandths of a request.
    left: u64,
    at: UnixMillis,
}

/// Requests a principal may make: so many a second, and as many at once.
#[derive(Debug)]
pub(crate) struct Limiter {
    per_second: u32,
    /// As many as there are tokens at most.
    buckets: Mutex<HashMap<Arc<str>, Bucket>>,
}

impl Limiter {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.max(1),
            buckets: Mutex::default(),
        }
    }

    /// Takes one request from the principal's bucket; else says how many milliseconds to wait.
    pub(crate) fn take(&self, name: &Arc<str>, now: UnixMillis) -> Result<(), u64> {
        let rate = u64::from(self.per_second);
        let full = rate * 1_000;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Bucket {
            left: full,
            at: now,
        };
        let bucket = buckets.entry(name.clone()).or_insert(fresh);
        let gained = now.since(bucket.at).saturating_mul(rate);
        bucket.left = bucket.left.saturating_add(gained).min(full);
        bucket.at = bucket.at.max(now);
        match bucket.left.checked_sub(1_000) {
            Some(left) => {
                bucket.left = left;
                Ok(())
            }
            None => Err((1_000 - bucket.left).div_ceil(rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_too_often_waits_and_the_others_do_not() {
        let limiter = Limiter::new(10);
        let (alice, bob): (Arc<str>, Arc<str>) = ("alice".into(), "bob".into());
        let at = |ms: u64| UnixMillis(1_000_000 + ms);
        for _ in 0..10 {
            assert_eq!(limiter.take(&alice, at(0)), Ok(()));
        }
        assert_eq!(limiter.take(&alice, at(0)), Err(100));
        assert_eq!(limiter.take(&bob, at(0)), Ok(()));
        assert_eq!(limiter.take(&alice, at(50)), Err(50));
        assert_eq!(limiter.take(&alice, at(100)), Ok(()));
        // A clock that steps back gives nothing and takes nothing.
        assert_eq!(limiter.take(&alice, at(0)), Err(100));
    }
}
