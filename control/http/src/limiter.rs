//! Request rate limit per principal: each principal has its own bucket, so a busy principal does not slow down others.

use lattice_mesh::{FullMapPolicy, RateLimit, RateLimiter};
use lattice_quorum_types::UnixMillis;
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum number of buckets: principals with a request within one second. An issuer may have any number of principals.
const MAX_BUCKETS: usize = 65_536;

/// Rate limiter: requests per second and principal, with a burst of the same size.
#[derive(Debug)]
pub(crate) struct Limiter(Mutex<RateLimiter<Arc<str>>>);

impl Limiter {
    pub(crate) fn new(per_second: u32) -> Self {
        let burst = per_second.max(1);
        let limit = RateLimit {
            burst,
            per_second: f64::from(burst),
        };
        Self(Mutex::new(RateLimiter::new(
            limit,
            MAX_BUCKETS,
            FullMapPolicy::Refuse,
        )))
    }

    /// Takes one request from the bucket of the principal; otherwise returns the wait in milliseconds.
    pub(crate) fn take(&self, name: &Arc<str>, now: UnixMillis) -> Result<(), u64> {
        self.0.lock().take(name, now.0)
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
        // A clock that steps back adds and removes nothing.
        assert_eq!(limiter.take(&alice, at(0)), Err(100));
    }
    #[test]
    fn remembers_recent_callers_within_bound() {
        let limiter = Limiter::new(1);
        let at = |ms: u64| UnixMillis(1_000_000 + ms);
        let name = |n: usize| Arc::from(format!("p{n}").as_str());
        let kept = || limiter.0.lock().keys();
        for n in 0..MAX_BUCKETS {
            assert_eq!(limiter.take(&name(n), at(0)), Ok(()));
        }
        // All principals are recent: a new one has to wait, and a known one is counted as before.
        assert_eq!(limiter.take(&name(MAX_BUCKETS), at(999)), Err(1_000));
        assert_eq!(limiter.take(&name(7), at(999)), Err(1));
        assert_eq!(kept(), MAX_BUCKETS);
        assert_eq!(limiter.take(&name(MAX_BUCKETS), at(1_000)), Ok(()));
        // All other buckets, number 7 among them, are full again and are dropped.
        assert_eq!(kept(), 1);
        assert_eq!(limiter.take(&name(MAX_BUCKETS), at(1_000)), Err(1_000));
    }
}
