//! Token buckets per source address, for enrolment: the one door open to strangers.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

/// Sources remembered at a time. Beyond it the fullest (least active) are forgotten.
const MAX_SOURCES: usize = 4096;

/// How fast one source may try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Tries at once.
    pub burst: u32,
    /// Tries regained per second.
    pub per_second: f64,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at_ms: u64,
}

/// Buckets by source. Time is given, in milliseconds of any monotonic clock.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: RateLimit,
    buckets: HashMap<IpAddr, Bucket>,
}

/// One host holds a whole /64 of IPv6, so that is what counts as a source.
fn source_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Limiter {
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self {
            limit,
            buckets: HashMap::new(),
        }
    }

    /// Whether `addr` has a try left, without taking it.
    pub(crate) fn has(&self, addr: IpAddr, now_ms: u64) -> bool {
        self.buckets
            .get(&source_of(addr))
            .map_or(self.limit.burst > 0, |b| {
                level(self.limit, *b, now_ms) >= 1.0
            })
    }

    /// Takes one try of `addr`, or says after how many milliseconds there will be one.
    pub(crate) fn take(&mut self, addr: IpAddr, now_ms: u64) -> Result<(), u64> {
        let limit = self.limit;
        let full = f64::from(limit.burst);
        let source = source_of(addr);
        if self.buckets.len() >= MAX_SOURCES && !self.buckets.contains_key(&source) {
            self.forget(now_ms);
        }
        let bucket = self.buckets.entry(source).or_insert(Bucket {
            tokens: full,
            at_ms: now_ms,
        });
        bucket.tokens = level(limit, *bucket, now_ms);
        bucket.at_ms = bucket.at_ms.max(now_ms);
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - bucket.tokens) / limit.per_second.max(f64::MIN_POSITIVE) * 1000.0;
        Err(missing.ceil().min(86_400_000.0) as u64)
    }

    /// Forgets full buckets, and when none is full, the fuller half.
    fn forget(&mut self, now_ms: u64) {
        let limit = self.limit;
        self.buckets
            .retain(|_, b| level(limit, *b, now_ms) < f64::from(limit.burst));
        if self.buckets.len() >= MAX_SOURCES {
            let mut levels: Vec<f64> = self
                .buckets
                .values()
                .map(|b| level(limit, *b, now_ms))
                .collect();
            levels.sort_by(f64::total_cmp);
            let median = levels[levels.len() / 2];
            self.buckets
                .retain(|_, b| level(limit, *b, now_ms) < median);
            if self.buckets.len() >= MAX_SOURCES {
                self.buckets.clear();
            }
        }
    }
}

fn level(limit: RateLimit, bucket: Bucket, now_ms: u64) -> f64 {
    let gained = now_ms.saturating_sub(bucket.at_ms) as f64 / 1000.0 * limit.per_second;
    (bucket.tokens + gained).min(f64::from(limit.burst))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_has_its_burst_then_its_rate() {
        let mut limiter = Limiter::new(RateLimit {
            burst: 2,
            per_second: 0.5,
        });
        assert_eq!(limiter.take(ip("192.0.2.1"), 0), Ok(()));
        assert_eq!(limiter.take(ip("192.0.2.1"), 0), Ok(()));
        assert_eq!(limiter.take(ip("192.0.2.1"), 0), Err(2000));
        assert_eq!(limiter.take(ip("192.0.2.1"), 1000), Err(1000));
        assert_eq!(limiter.take(ip("192.0.2.1"), 2000), Ok(()));
        assert_eq!(
            limiter.take(ip("192.0.2.2"), 0),
            Ok(()),
            "another source has its own"
        );
    }

    #[test]
    fn one_ipv6_network_is_one_source() {
        let mut limiter = Limiter::new(RateLimit {
            burst: 1,
            per_second: 1.0,
        });
        assert_eq!(limiter.take(ip("2001:db8::1"), 0), Ok(()));
        assert!(limiter.take(ip("2001:db8::2"), 0).is_err());
        assert_eq!(limiter.take(ip("2001:db8:0:1::1"), 0), Ok(()));
        assert_eq!(limiter.take(ip("192.0.2.1"), 0), Ok(()));
        assert!(
            limiter.take(ip("::ffff:192.0.2.1"), 0).is_err(),
            "the same IPv4 source"
        );
    }

    #[test]
    fn remembered_sources_are_bounded() {
        let mut limiter = Limiter::new(RateLimit {
            burst: 1,
            per_second: 0.0,
        });
        for n in 0..10_000u32 {
            let _ = limiter.take(IpAddr::V4(n.into()), 0);
        }
        assert!(limiter.buckets.len() <= MAX_SOURCES);
    }
}
