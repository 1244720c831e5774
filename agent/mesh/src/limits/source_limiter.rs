//! Rate limit of enrolment by source address: enrolment is open to processes without a certificate.

use super::token_bucket::{FullMapPolicy, RateLimit, RateLimiter};
use std::net::{IpAddr, Ipv6Addr};

/// Number of sources remembered at a time.
const MAX_SOURCES: usize = 4096;

/// Token buckets by source address. The caller supplies the time, in milliseconds of any monotonic clock.
#[derive(Debug)]
pub(crate) struct SourceLimiter(RateLimiter<IpAddr>);

/// Maps an address to its rate-limit key. One host holds a whole /64 of IPv6, so the /64 is the key.
pub(crate) fn source_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl SourceLimiter {
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self(RateLimiter::new(
            limit,
            MAX_SOURCES,
            FullMapPolicy::ForgetFuller,
        ))
    }

    /// Checks that `addr` has a try left, without taking it.
    pub(crate) fn has(&self, addr: IpAddr, now_ms: u64) -> bool {
        self.0.has(&source_of(addr), now_ms)
    }

    /// Takes one try of `addr`, or returns the number of milliseconds until the next try.
    pub(crate) fn take(&mut self, addr: IpAddr, now_ms: u64) -> Result<(), u64> {
        self.0.take(&source_of(addr), now_ms)
    }
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
        let mut limiter = SourceLimiter::new(RateLimit {
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
        let mut limiter = SourceLimiter::new(RateLimit {
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
        let mut limiter = SourceLimiter::new(RateLimit {
            burst: 1,
            per_second: 0.0,
        });
        for n in 0..10_000u32 {
            let _ = limiter.take(IpAddr::V4(n.into()), 0);
        }
        assert!(limiter.0.keys() <= MAX_SOURCES);
    }
}
