//! Admission control of enrolment: limits unenrolled processes, so that members are still served.
//!
//! An enrolment attempt costs a handshake and then a request to the quorum. Each source has a limited rate of tries
//! ([`crate::MeshConfig::enrol_rate`]). A source that has none left receives the time of its next try. If the source
//! continues regardless, or all sources together exceed [`crate::MeshConfig::enrol_rate_total`], the server refuses the
//! first packet before any computation.

use super::source_limiter::SourceLimiter;
use crate::RateLimit;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

/// Maximum number of unenrolled processes served at a time. Each holds its slot while it waits for the quorum, so
/// unenrolled processes must not occupy the handshake slots of members.
const MAX_UNENROLLED: usize = 64;
/// Single key of a limiter that covers all sources.
const ALL: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(crate) struct Admission {
    tries: Mutex<SourceLimiter>,
    /// Limit of the retry answers per source; each answer costs a handshake.
    answers: Mutex<SourceLimiter>,
    total: Mutex<SourceLimiter>,
    slots: Semaphore,
    started: Instant,
}

impl Admission {
    pub(crate) fn new(per_source: RateLimit, total: RateLimit) -> Self {
        Self {
            tries: Mutex::new(SourceLimiter::new(per_source)),
            answers: Mutex::new(SourceLimiter::new(per_source)),
            total: Mutex::new(SourceLimiter::new(total)),
            slots: Semaphore::new(MAX_UNENROLLED),
            started: Instant::now(),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Checks that an unenrolled process at `source` may receive an answer. Members dial from the same addresses, so
    /// the check counts nothing.
    pub(crate) fn may_answer(&self, source: IpAddr) -> bool {
        self.answers.lock().has(source, self.now_ms())
    }

    /// Counts the handshake of one unenrolled process against the total limit, before it begins.
    pub(crate) fn admit_handshake(&self) -> bool {
        self.total.lock().take(ALL, self.now_ms()).is_ok()
    }

    /// Counts one try of `source`, or returns the number of milliseconds until the next try.
    pub(crate) fn take_try(&self, source: IpAddr) -> Result<(), u64> {
        let now_ms = self.now_ms();
        self.tries.lock().take(source, now_ms).inspect_err(|_| {
            let _ = self.answers.lock().take(source, now_ms);
        })
    }

    /// Takes a slot among the enrolments served at a time, or returns `None` when all slots are taken.
    pub(crate) fn take_slot(&self) -> Option<SemaphorePermit<'_>> {
        self.slots.try_acquire().ok()
    }
}
