//! How much one peer may say: a bad one must not keep this process busy.

use lattice_mesh::Identity;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Messages a peer may send per interval. An honest one sends at most about 4: its own round, an
/// answer, and the end of ours.
const PER_INTERVAL: f64 = 16.0;
/// Messages it may send at once.
const BURST: f64 = 48.0;
/// Peers remembered at a time. All have a certificate of the cluster.
const MAX_PEERS: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// A bucket per peer. The time is given.
#[derive(Debug)]
pub(crate) struct PeerRates {
    per_second: f64,
    buckets: HashMap<Identity, Bucket>,
}

impl PeerRates {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            per_second: PER_INTERVAL / interval.as_secs_f64().max(0.001),
            buckets: HashMap::new(),
        }
    }

    /// The last message of `peer` was no gossip: it waits for an interval's share. Decoding and
    /// logging garbage is what a bad peer could keep us busy with.
    pub(crate) fn punish(&mut self, peer: &Identity) {
        if let Some(bucket) = self.buckets.get_mut(peer) {
            bucket.tokens = (bucket.tokens - PER_INTERVAL).max(-PER_INTERVAL);
        }
    }

    /// Whether one more message of `peer` is let in.
    pub(crate) fn admit(&mut self, peer: &Identity, now: Instant) -> bool {
        let per_second = self.per_second;
        let level = |b: &Bucket| {
            let gained = now.saturating_duration_since(b.at).as_secs_f64() * per_second;
            (b.tokens + gained).min(BURST)
        };
        if self.buckets.len() >= MAX_PEERS && !self.buckets.contains_key(peer) {
            self.buckets.retain(|_, b| level(b) < BURST);
            if self.buckets.len() >= MAX_PEERS {
                return false;
            }
        }
        let full = Bucket {
            tokens: BURST,
            at: now,
        };
        let bucket = self.buckets.entry(peer.clone()).or_insert(full);
        bucket.tokens = level(bucket);
        bucket.at = bucket.at.max(now);
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
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
        // The burst, then about one each interval.
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
        assert!(rates.buckets.len() <= MAX_PEERS);
    }
}
