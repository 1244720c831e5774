//! Wall clock for certificate validity, injected so that tests can set the time.

use lattice_quorum_types::UnixMillis;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Source of the current time.
pub trait Clock: Send + Sync + 'static {
    /// Current time, UTC.
    fn now(&self) -> UnixMillis;
}

/// System clock of the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        // A clock before 1970 reads as 0, so that every certificate is not yet valid.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Adapter of a [`Clock`] for rustls.
pub(crate) struct TlsTime(pub(crate) Arc<dyn Clock>);

impl fmt::Debug for TlsTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTime")
    }
}

impl TimeProvider for TlsTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(
            self.0.now().0,
        )))
    }
}
