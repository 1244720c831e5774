//! The door for strangers: how many are let in, so that members are served while others try.
//!
//! A stranger costs a handshake, and then a question to the quorum. Each source has its tries
//! ([`crate::MeshConfig::enrol_rate`]) and is told when the next one will be. A source that goes on
//! nevertheless, and everyone beyond what all together may ask
//! ([`crate::MeshConfig::enrol_rate_total`]), is refused at its first packet, before anything is
//! computed for it.

use crate::{RateLimit, limiter::Limiter};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

/// Strangers served at a time. They wait for the quorum while it is held, so they must not take
/// the places of members' handshakes.
const MAX_STRANGERS: usize = 64;
/// The one key of a limiter for all.
const ALL: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(crate) struct Door {
    tries: Mutex<Limiter>,
    /// How often a source is told that it must wait, at the cost of a handshake.
    answers: Mutex<Limiter>,
    total: Mutex<Limiter>,
    places: Semaphore,
    started: Instant,
}

impl Door {
    pub(crate) fn new(per_source: RateLimit, total: RateLimit) -> Self {
        Self {
            tries: Mutex::new(Limiter::new(per_source)),
            answers: Mutex::new(Limiter::new(per_source)),
            total: Mutex::new(Limiter::new(total)),
            places: Semaphore::new(MAX_STRANGERS),
            started: Instant::now(),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether somebody at `source` may be a stranger that is listened to. Members come from
    /// there as well, so nothing is counted yet.
    pub(crate) fn listens_to(&self, source: IpAddr) -> bool {
        self.answers.lock().has(source, self.now_ms())
    }

    /// Counts one stranger's handshake among those of all, before it is begun.
    pub(crate) fn opens(&self) -> bool {
        self.total.lock().take(ALL, self.now_ms()).is_ok()
    }

    /// Counts one try of `source`, or says after how many milliseconds there will be one.
    pub(crate) fn try_of(&self, source: IpAddr) -> Result<(), u64> {
        let now_ms = self.now_ms();
        self.tries.lock().take(source, now_ms).inspect_err(|_| {
            let _ = self.answers.lock().take(source, now_ms);
        })
    }

    /// A place among those served at a time.
    pub(crate) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }
}
