//! The wall clock certificates are judged by, injected so that tests can stand anywhere in time.

use lattice_quorum_types::UnixMillis;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Tells what time it is.
pub trait Clock: Send + Sync + 'static {
    /// Now, UTC.
    fn now(&self) -> UnixMillis;
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        // A host whose clock stands before 1970 judges every certificate as not yet valid.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Our clock in the shape rustls asks for.
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
