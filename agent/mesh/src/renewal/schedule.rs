//! Renewal schedule, as pure functions.

use crate::backoff;
use lattice_quorum_types::UnixMillis;
use std::time::Duration;

/// Spread of the renewal time around 2/3 of a certificate's life, as a part of that life.
const SPREAD: f64 = 0.05;
/// Time within which every member renews when another authority issues; a twentieth of the certificate's life, if that
/// is shorter. Ten thousand members must not renew at once.
const SUPERSEDED_SPREAD: Duration = Duration::from_secs(600);
/// Part of [`SUPERSEDED_SPREAD`], at its start, in which no member renews. Members that have not yet received the
/// bundle would refuse a certificate of the new authority.
const SUPERSEDED_QUIET_PART: f64 = 0.1;

/// Returns a number between 0 and 1, determined by `seed` and `occasion`.
pub(super) fn fraction(seed: u64, occasion: u64) -> f64 {
    let mut digest = blake3::Hasher::new();
    digest.update(&seed.to_le_bytes());
    digest.update(&occasion.to_le_bytes());
    let mut bytes = [0; 4];
    digest.finalize_xof().fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// Returns the renewal time of a certificate, for `fraction` from 0 (soonest) to 1.
pub(super) fn renew_at(issued_at: UnixMillis, expires_at: UnixMillis, fraction: f64) -> UnixMillis {
    let life = expires_at.since(issued_at) as f64;
    let part = 2.0 / 3.0 + SPREAD * (2.0 * fraction - 1.0);
    issued_at.after((life * part) as u64)
}

/// Returns the wait from the bundle that names another issuing authority until the renewal.
pub(super) fn superseded_wait(
    issued_at: UnixMillis,
    expires_at: UnixMillis,
    fraction: f64,
) -> Duration {
    let life = Duration::from_millis(expires_at.since(issued_at));
    let part = SUPERSEDED_QUIET_PART + (1.0 - SUPERSEDED_QUIET_PART) * fraction;
    SUPERSEDED_SPREAD.min(life / 20).mul_f64(part)
}

/// Returns the wait after `failures` in a row. The wait is at most a quarter of `left`, the rest of the certificate's
/// life, but that bound is at least 1 s; after expiry the wait is `max`. The wait is shortened by up to a quarter, so
/// that members that failed together do not retry together.
pub(super) fn retry_wait(
    (min, max): (Duration, Duration),
    failures: u32,
    left: Duration,
    fraction: f64,
) -> Duration {
    let doubling = backoff(min, max, failures);
    let bounded = if left.is_zero() {
        // The certificate has expired, so fast retries gain nothing.
        max
    } else {
        doubling.min((left / 4).max(Duration::from_secs(1)))
    };
    bounded.mul_f64(1.0 - 0.25 * fraction)
}

#[cfg(test)]
mod tests;
