//! When to renew. Functions of their arguments.

use lattice_quorum_types::UnixMillis;
use std::time::Duration;

/// How much sooner or later than at 2/3 of its life a certificate is renewed, as part of the life.
const SPREAD: f64 = 0.05;
/// Everyone renews within this time, or a twentieth of a shorter life, when another authority
/// issues: soon, yet not ten thousand at once.
const SUPERSEDED_SPREAD: Duration = Duration::from_secs(600);
/// Nobody renews in this first part of it: a certificate of the new authority is refused by those
/// who have not heard of it yet.
const SUPERSEDED_HEAD_START: f64 = 0.1;

/// A number between 0 and 1 that is fixed by seed and occasion.
pub(super) fn fraction(seed: u64, occasion: u64) -> f64 {
    let mut digest = blake3::Hasher::new();
    digest.update(&seed.to_le_bytes());
    digest.update(&occasion.to_le_bytes());
    let mut bytes = [0; 4];
    digest.finalize_xof().fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// When a certificate is to be renewed, `fraction` from 0 (soonest) to 1.
pub(super) fn renew_at(issued_at: UnixMillis, expires_at: UnixMillis, fraction: f64) -> UnixMillis {
    let life = expires_at.since(issued_at) as f64;
    let part = 2.0 / 3.0 + SPREAD * (2.0 * fraction - 1.0);
    issued_at.after((life * part) as u64)
}

/// How long after it is known that another authority issues.
pub(super) fn superseded_wait(
    issued_at: UnixMillis,
    expires_at: UnixMillis,
    fraction: f64,
) -> Duration {
    let life = Duration::from_millis(expires_at.since(issued_at));
    let part = SUPERSEDED_HEAD_START + (1.0 - SUPERSEDED_HEAD_START) * fraction;
    SUPERSEDED_SPREAD.min(life / 20).mul_f64(part)
}

/// The wait after `failures` in a row; never past what is `left` of the life without another try
/// or two, and up to a quarter shorter so that those who failed together do not come together.
pub(super) fn retry_wait(
    (min, max): (Duration, Duration),
    failures: u32,
    left: Duration,
    fraction: f64,
) -> Duration {
    let doubling = crate::endpoint::backoff(min, max, failures);
    let bounded = if left.is_zero() {
        // Ended: nothing is to be gained by hurry.
        max
    } else {
        doubling.min((left / 4).max(Duration::from_secs(1)))
    };
    bounded.mul_f64(1.0 - 0.25 * fraction)
}

#[cfg(test)]
mod tests;
