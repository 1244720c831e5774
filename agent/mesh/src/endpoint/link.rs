//! Connection of an endpoint with an authenticated peer, and the count of its uses.

use crate::Identity;
use lattice_quorum_types::UnixMillis;
use quinn::Connection;
use rustls_pki_types::CertificateDer;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Versions of credentials and trust before a handshake began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandshakeState {
    /// Generation of the credentials that this process presents.
    pub(crate) generation: u64,
    /// Number of changes of the trusted authorities and revocations.
    pub(crate) trust_version: u64,
}

/// A live, mutually authenticated connection.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
    pub(crate) issued_at: UnixMillis,
    pub(crate) expires_at: UnixMillis,
    pub(crate) chain: Arc<Vec<CertificateDer<'static>>>,
    pub(crate) handshake: HandshakeState,
    /// No new call starts on the connection: it was silent for a complete deadline, or one end is leaving it.
    pub(crate) no_new_calls: Arc<AtomicBool>,
    /// Calls, streams and messages that run on the connection.
    pub(crate) running_calls: CallCounter,
}

/// Counts the calls, streams and messages that run on a connection, in both directions.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallCounter(Arc<AtomicUsize>);

/// One running call, stream or message; dropping the value ends its count.
#[derive(Debug)]
pub(crate) struct CallGuard(Arc<AtomicUsize>);

impl CallCounter {
    pub(crate) fn begin(&self) -> CallGuard {
        self.0.fetch_add(1, Ordering::AcqRel);
        CallGuard(self.0.clone())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
