//! Gossip rate limit per peer: a malicious peer must not keep this process busy.

use lattice_mesh::{FullMapPolicy, Identity, RateLimit, RateLimiter};
use std::time::{Duration, Instant};

/// Messages that a peer may send per interval. A correct peer sends about 4 at most: its own round, an answer, and the
/// end of this process's round.
const PER_INTERVAL: u32 = 16;
/// Messages that a peer may send at once.
const BURST: u32 = 48;
/// Maximum number of peers in memory. All have a certificate of the cluster.
const MAX_PEERS: usize = 4096;

/// Token bucket per peer. The caller supplies the time.
#[derive(Debug)]
pub(crate) struct PeerRates {
    started: Instant,
    limiter: RateLimiter<Identity>,
}

impl PeerRates {
    pub(crate) fn new(interval: Duration) -> Self {
        let limit = RateLimit {
            burst: BURST,
            per_second: f64::from(PER_INTERVAL) / interval.as_secs_f64().max(0.001),
        };
        Self {
            started: Instant::now(),
            limiter: RateLimiter::new(limit, MAX_PEERS, FullMapPolicy::Refuse),
        }
    }

    /// Charges `peer` the messages of one interval for an undecodable message. Without the charge, a malicious peer
    /// could keep this process busy with decoding and logging.
    pub(crate) fn punish(&mut self, peer: &Identity) {
        self.limiter.punish(peer, PER_INTERVAL);
    }

    /// Whether one more message of `peer` is admitted.
    pub(crate) fn admit(&mut self, peer: &Identity, now: Instant) -> bool {
        let now_ms = now.saturating_duration_since(self.started).as_millis();
        let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
        self.limiter.take(peer, now_ms).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use lattice_mesh::Role;

    #[test]
    fn a_flood_of_one_peer_does_not_cost_another_its_share() {
        let peer = |id: &str| Identity::new("demo", Role::Agent, id).unwrap();
        let mut rates = PeerRates::new(Duration::from_secs(2));
        let now = Instant::now();
        let admitted = (0..1000).filter(|_| rates.admit(&peer("bad"), now)).count();
        assert_eq!(admitted, 48);
        assert!(rates.admit(&peer("good"), now));
        let later = now + Duration::from_secs(2);
        let admitted = (0..1000)
            .filter(|_| rates.admit(&peer("bad"), later))
            .count();
        assert_eq!(admitted, 16, "its share of one interval");
    }

    #[test]
    fn garbage_costs_a_peer_more_than_gossip() {
        let bad = Identity::new("demo", Role::Agent, "bad").unwrap();
        let mut rates = PeerRates::new(Duration::from_secs(2));
        let start = Instant::now();
        let mut let_in = 0;
        for ms in 0..60_000 {
            if rates.admit(&bad, start + Duration::from_millis(ms)) {
                let_in += 1;
                rates.punish(&bad);
            }
        }
        // The burst, then about one message per interval.
        assert!((25..=40).contains(&let_in), "{let_in}");
    }

    #[test]
    fn remembered_peers_are_bounded() {
        let mut rates = PeerRates::new(Duration::from_secs(2));
        let now = Instant::now();
        for n in 0..10_000 {
            let peer = Identity::new("demo", Role::Agent, format!("a{n}")).unwrap();
            rates.admit(&peer, now);
        }
        assert!(rates.limiter.keys() <= MAX_PEERS);
    }
}
