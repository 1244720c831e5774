//! Validity period and issue time of certificates.

use lattice_quorum_types::UnixMillis;
use std::time::Duration;

/// Time from the start of a certificate's validity to its issue, so that a peer with a clock slightly behind accepts
/// the certificate. The value is constant, so that every process derives the issue time from the certificate alone.
/// Revocation compares against the issue time.
pub const BACKDATING: Duration = Duration::from_secs(300);

/// Returns the issue time of a certificate that is valid from `not_before`, in whole seconds, the resolution of
/// certificate times.
pub(crate) fn issued_at(not_before: UnixMillis) -> UnixMillis {
    let backdating_ms = BACKDATING.as_secs() * 1000;
    UnixMillis(not_before.0 / 1000 * 1000).after(backdating_ms)
}

/// Validity period of a certificate, by the issuer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First moment of validity.
    pub not_before: UnixMillis,
    /// Last moment of validity.
    pub not_after: UnixMillis,
}

impl Validity {
    /// Period of a certificate issued at `now`: from [`BACKDATING`] before `now` until `lifetime` after `now`.
    pub fn from_now(now: UnixMillis, lifetime: Duration) -> Self {
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        Self {
            not_before: UnixMillis(now.0.saturating_sub(BACKDATING.as_secs() * 1000)),
            not_after: now.after(lifetime_ms),
        }
    }

    /// Issue time of a certificate with this period, in whole seconds, as [`crate::Credentials::issued_at`] returns it.
    pub fn issued_at(&self) -> UnixMillis {
        issued_at(self.not_before)
    }

    /// Last moment of a certificate with this period, as [`crate::Credentials::expires_at`] returns it: the end of its
    /// last second.
    pub fn expires_at(&self) -> UnixMillis {
        UnixMillis(self.not_after.0 / 1000 * 1000 + 999)
    }
}
