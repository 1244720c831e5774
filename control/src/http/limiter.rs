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

/// Buckets that are kept whatever is in them.
const FEW: usize = 1_024;
/// Buckets there may be: principals who ask within one second. An issuer may know any number of people.
const MOST: usize = 65_536;
/// After this an untouched bucket is full, and as good as none.
const FILLS_MS: u64 = 1_000;

/// Requests a principal may make: so many a second, and as many at once.
#[derive(Debug)]
pub(crate) struct Limiter {
    per_second: u32,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    of: HashMap<Arc<str>, Bucket>,
    /// With as many as this, those that are full again are dropped: twice as many as were left the last
    /// time, so that looking at all of them is paid for by those that came since.
    swept_at: usize,
}

impl Buckets {
    /// Makes room for one more; `false` where there is none.
    fn make_room(&mut self, now: UnixMillis) -> bool {
        if self.of.len() >= self.swept_at.clamp(FEW, MOST) {
            self.of.retain(|_, bucket| now.since(bucket.at) < FILLS_MS);
            self.of.shrink_to(2 * self.of.len());
            self.swept_at = 2 * self.of.len();
        }
        self.of.len() < MOST
    }
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
        if !buckets.of.contains_key(name) && !buckets.make_room(now) {
            return Err(FILLS_MS);
        }
        let fresh = Bucket {
            left: full,
            at: now,
        };
        let bucket = buckets.of.entry(name.clone()).or_insert(fresh);
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
    #![expect(clippy::unwrap_used, reason = "tests")]
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
    #[test]
    fn it_remembers_who_asked_within_a_second_and_never_more_than_it_has_room_for() {
        let limiter = Limiter::new(1);
        let at = |ms: u64| UnixMillis(1_000_000 + ms);
        let name = |n: usize| Arc::from(format!("p{n}").as_str());
        let kept = || limiter.buckets.lock().unwrap().of.len();
        for n in 0..MOST {
            assert_eq!(limiter.take(&name(n), at(0)), Ok(()));
        }
        // All of them asked just now: whoever is new waits, whoever is known is counted as before.
        assert_eq!(limiter.take(&name(MOST), at(999)), Err(1_000));
        assert_eq!(limiter.take(&name(7), at(999)), Err(1));
        assert_eq!(kept(), MOST);
        assert_eq!(limiter.take(&name(MOST), at(1_000)), Ok(()));
        // Number 7 was asked about since, and is told from the others by that.
        assert_eq!(kept(), 2);
        assert_eq!(limiter.take(&name(MOST), at(1_000)), Err(1_000));
    }
}
