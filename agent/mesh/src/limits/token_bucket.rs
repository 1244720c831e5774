//! Token buckets: rate limits by key, of enrolment, gossip and HTTP requests.
//!
//! `governor` is not used: its map of keys has no bound, and it cannot take tokens as a penalty.

use std::{collections::HashMap, hash::Hash};

/// One token. Fractions of a token are integers, so that waits are exact.
const TOKEN: i64 = 1_000_000_000;
/// Longest wait that is reported, for a rate of zero or nearly zero.
const MAX_WAIT_MS: u64 = 86_400_000;
/// Number of buckets that are kept without a sweep.
const MIN_SWEEP_KEYS: usize = 1_024;

/// Rate limit of one key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Number of tries in a burst.
    pub burst: u32,
    /// Tries regained per second.
    pub per_second: f64,
}

/// Treatment of a new key while the map is full of buckets with missing tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullMapPolicy {
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

/// Token buckets by key, for a bounded number of keys. The caller supplies the time, in milliseconds of any clock. A
/// clock that is set back yields no tokens.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: Rate,
    max_keys: usize,
    full_map: FullMapPolicy,
    buckets: HashMap<K, Bucket>,
    /// Number of buckets at which full ones are dropped: twice as many as the last sweep left, so that the cost of a
    /// sweep is amortised over new keys.
    sweep_at: usize,
}

impl<K: Eq + Hash + Clone> RateLimiter<K> {
    /// Creates a limiter in which every key starts with a full bucket.
    pub fn new(limit: RateLimit, max_keys: usize, crowd: FullMapPolicy) -> Self {
        let rate = Rate {
            burst: i64::from(limit.burst).saturating_mul(TOKEN),
            per_ms: (limit.per_second * (TOKEN / 1_000) as f64) as i64,
        };
        Self {
            rate,
            max_keys,
            full_map: crowd,
            buckets: HashMap::new(),
            sweep_at: MIN_SWEEP_KEYS,
        }
    }

    /// Checks that `key` has a token, without taking it.
    pub fn has(&self, key: &K, now_ms: u64) -> bool {
        let bucket = self.buckets.get(key);
        bucket.map_or(self.rate.burst, |b| self.rate.level(b, now_ms)) >= TOKEN
    }

    /// Takes one token of `key`.
    ///
    /// # Errors
    /// The number of milliseconds until a token is available.
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
        // Also after the clock was set back: otherwise the key would regain nothing until the clock has caught up.
        bucket.at_ms = now_ms;
        if bucket.tokens < TOKEN {
            return Err(rate.wait_ms(TOKEN - bucket.tokens));
        }
        bucket.tokens -= TOKEN;
        Ok(())
    }

    /// Takes `tokens` tokens as a penalty, down to a debt of at most `tokens`. A key without a bucket is not penalised.
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

    /// Makes space for one more key; returns `false` when the map is full and the policy is [`FullMapPolicy::Refuse`].
    fn make_room(&mut self, now_ms: u64) -> bool {
        let rate = self.rate;
        if self.buckets.len() >= self.sweep_at.max(MIN_SWEEP_KEYS).min(self.max_keys) {
            // A full bucket is equivalent to no bucket.
            (self.buckets).retain(|_, b| rate.level(b, now_ms) < rate.burst);
            self.buckets.shrink_to(2 * self.buckets.len());
            self.sweep_at = 2 * self.buckets.len();
        }
        if self.buckets.len() < self.max_keys {
            return true;
        }
        if self.full_map == FullMapPolicy::Refuse {
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
