//! Token buckets: rate limits by key, of enrolment, gossip and HTTP requests.
//!
//! `governor` is not used: its map of keys has no bound, and it cannot take tokens as a penalty.

use std::{collections::HashMap, hash::Hash};

/// One token. Fractions are whole numbers, so that waits are exact.
const TOKEN: i64 = 1_000_000_000;
/// Longest wait that is reported, for a rate of zero or nearly zero.
const MAX_WAIT_MS: u64 = 86_400_000;
/// Number of buckets that are kept without a sweep.
const FEW: usize = 1_024;

/// How fast one key may act.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Tries at once.
    pub burst: u32,
    /// Tries regained per second.
    pub per_second: f64,
}

/// Treatment of a new key while the map is full of buckets that are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    /// The new key is refused.
    Refuse,
    /// The fuller half of the buckets, the least active keys, is forgotten.
    ForgetFuller,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: i64,
    per_ms: i64,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: i64,
    at_ms: u64,
}

impl Rate {
    fn level(self, bucket: &Bucket, now_ms: u64) -> i64 {
        let elapsed_ms = i64::try_from(now_ms.saturating_sub(bucket.at_ms)).unwrap_or(i64::MAX);
        let gained = elapsed_ms.saturating_mul(self.per_ms);
        bucket.tokens.saturating_add(gained).min(self.burst)
    }

    fn wait_ms(self, missing: i64) -> u64 {
        let wait_ms = (missing.max(0) as u64).div_ceil(self.per_ms.max(1) as u64);
        wait_ms.min(MAX_WAIT_MS)
    }
}

/// A bucket per key, of a bounded number of keys. Time is an argument: milliseconds of
/// any clock. One that is set back gives no tokens by that.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: Rate,
    max_keys: usize,
    crowd: Crowd,
    buckets: HashMap<K, Bucket>,
    /// Number of buckets at which full ones are dropped: twice as many as were left the last time, so that new
    /// keys pay for the sweep.
    sweep_at: usize,
}

impl<K: Eq + Hash + Clone> RateLimiter<K> {
    /// Every key begins with a full bucket.
    pub fn new(limit: RateLimit, max_keys: usize, crowd: Crowd) -> Self {
        let rate = Rate {
            burst: i64::from(limit.burst).saturating_mul(TOKEN),
            per_ms: (limit.per_second * (TOKEN / 1_000) as f64) as i64,
        };
        Self {
            rate,
            max_keys,
            crowd,
            buckets: HashMap::new(),
            sweep_at: FEW,
        }
    }

    /// Whether `key` has a token, without taking it.
    pub fn has(&self, key: &K, now_ms: u64) -> bool {
        let bucket = self.buckets.get(key);
        bucket.map_or(self.rate.burst, |b| self.rate.level(b, now_ms)) >= TOKEN
    }

    /// Takes one token of `key`.
    ///
    /// # Errors
    /// The number of milliseconds until there is one.
    pub fn take(&mut self, key: &K, now_ms: u64) -> Result<(), u64> {
        let rate = self.rate;
        if !self.buckets.contains_key(key) && !self.make_room(now_ms) {
            return Err(rate.wait_ms(rate.burst));
        }
        let full = Bucket {
            tokens: rate.burst,
            at_ms: now_ms,
        };
        let bucket = self.buckets.entry(key.clone()).or_insert(full);
        bucket.tokens = rate.level(bucket, now_ms);
        // Also after the clock was set back: else nothing is regained until it has caught up.
        bucket.at_ms = now_ms;
        if bucket.tokens < TOKEN {
            return Err(rate.wait_ms(TOKEN - bucket.tokens));
        }
        bucket.tokens -= TOKEN;
        Ok(())
    }

    /// Takes so many tokens as a penalty; the bucket holds at worst a debt of as many.
    pub fn punish(&mut self, key: &K, tokens: u32) {
        let penalty = i64::from(tokens).saturating_mul(TOKEN);
        if let Some(bucket) = self.buckets.get_mut(key) {
            bucket.tokens = (bucket.tokens - penalty).max(-penalty);
        }
    }

    /// Number of keys that have a bucket.
    pub fn keys(&self) -> usize {
        self.buckets.len()
    }

    /// Makes room for one key more; `false` where there is none.
    fn make_room(&mut self, now_ms: u64) -> bool {
        let rate = self.rate;
        if self.buckets.len() >= self.sweep_at.max(FEW).min(self.max_keys) {
            // A full bucket is as good as none.
            (self.buckets).retain(|_, b| rate.level(b, now_ms) < rate.burst);
            self.buckets.shrink_to(2 * self.buckets.len());
            self.sweep_at = 2 * self.buckets.len();
        }
        if self.buckets.len() < self.max_keys {
            return true;
        }
        if self.crowd == Crowd::Refuse {
            return false;
        }
        let levels = self.buckets.values().map(|b| rate.level(b, now_ms));
        let mut levels: Vec<i64> = levels.collect();
        levels.sort_unstable();
        let median = levels[levels.len() / 2];
        (self.buckets).retain(|_, b| rate.level(b, now_ms) < median);
        if self.buckets.len() >= self.max_keys {
            self.buckets.clear();
        }
        true
    }
}
