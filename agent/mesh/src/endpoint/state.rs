//! Shared state of an endpoint: socket, trust, configuration and open connections.

use super::{
    link::{HandshakeState, Link},
    revoked::RevocationReport,
};
use crate::{
    ExpectedIdentity, MeshConfig, Router, TrustState,
    limits::log_limiter::LogLimiter,
    transport::tls::DialConfigs,
    trust::in_force::{Trust, TrustStore},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Datagrams and bytes on the wire, as QUIC counts them: without IP and UDP headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams sent.
    pub sent_datagrams: u64,
    /// Bytes in the datagrams sent.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received_datagrams: u64,
    /// Bytes in the datagrams received.
    pub received_bytes: u64,
}

impl Traffic {
    fn add(&mut self, link: &Link) {
        let stats = link.connection.stats();
        self.sent_datagrams += stats.udp_tx.datagrams;
        self.sent_bytes += stats.udp_tx.bytes;
        self.received_datagrams += stats.udp_rx.datagrams;
        self.received_bytes += stats.udp_rx.bytes;
    }
}

/// Open connections, and the traffic of closed ones.
#[derive(Default)]
struct Links {
    open: HashMap<u64, Link>,
    closed: Traffic,
}

/// Folder in which bundles are saved. Its lock is held during a save, which may hang with the disk. Only the functions
/// that set the folder or save the identity wait for the lock.
#[derive(Debug, Default)]
pub(crate) struct BundleFolder {
    pub(crate) folder: Option<PathBuf>,
}

/// Limiters of log lines about refused callers, each for one kind of line. Any host that reaches the port may cause
/// such lines.
#[derive(Debug)]
pub(crate) struct RefusalLogs {
    pub(crate) handshakes: LogLimiter<IpAddr>,
    pub(crate) connections: LogLimiter<IpAddr>,
    pub(crate) full: LogLimiter<IpAddr>,
    pub(crate) enrolment_rate: LogLimiter<IpAddr>,
    /// By address and requested name: an operator looks for the node that was refused.
    pub(crate) enrolments: LogLimiter<(IpAddr, String)>,
}

impl RefusalLogs {
    fn new() -> Self {
        Self {
            handshakes: LogLimiter::new(),
            connections: LogLimiter::new(),
            full: LogLimiter::new(),
            enrolment_rate: LogLimiter::new(),
            enrolments: LogLimiter::new(),
        }
    }
}

/// State of an endpoint, which its tasks, peers and handlers share.
pub(crate) struct Core {
    pub(crate) quic: quinn::Endpoint,
    pub(crate) local_addr: SocketAddr,
    pub(crate) trust: Arc<TrustStore>,
    pub(crate) config: MeshConfig,
    pub(crate) client: DialConfigs,
    pub(crate) router: OnceLock<Arc<Router>>,
    pub(crate) generation: AtomicU64,
    /// Incremented when the trusted authorities or revocations change.
    pub(crate) trust_version: AtomicU64,
    /// Serialises changes of trust. Never held while waiting for the disk.
    pub(crate) trust_change_lock: Mutex<()>,
    pub(crate) bundle_folder: Mutex<BundleFolder>,
    /// The saved trust bundle is older than the one in force.
    pub(crate) unsaved: AtomicBool,
    pub(crate) trust_state: watch::Sender<TrustState>,
    pub(crate) revocation_report: RevocationReport,
    pub(crate) refusal_logs: RefusalLogs,
    pub(crate) cancel: CancellationToken,
    pub(crate) tasks: TaskTracker,
    links: Mutex<Links>,
    next_link: AtomicU64,
    /// Runtime handle for tasks that are started outside of a runtime context.
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Core {
    pub(crate) fn new(
        quic: quinn::Endpoint,
        local_addr: SocketAddr,
        trust: Arc<TrustStore>,
        client: DialConfigs,
        config: MeshConfig,
    ) -> Self {
        let in_force = trust.load();
        let trust_state = watch::Sender::new(TrustState {
            number: in_force.credentials.trust_number(),
            standing: in_force.standing,
        });
        drop(in_force);
        Self {
            quic,
            local_addr,
            trust,
            config,
            client,
            router: OnceLock::new(),
            generation: AtomicU64::new(0),
            trust_version: AtomicU64::new(0),
            trust_change_lock: Mutex::default(),
            bundle_folder: Mutex::default(),
            unsaved: AtomicBool::new(false),
            trust_state,
            revocation_report: RevocationReport::default(),
            refusal_logs: RefusalLogs::new(),
            cancel: CancellationToken::new(),
            tasks: TaskTracker::new(),
            links: Mutex::default(),
            next_link: AtomicU64::new(0),
            runtime: tokio::runtime::Handle::current(),
        }
    }

    pub(crate) fn trust(&self) -> Arc<Trust> {
        self.trust.load_full()
    }

    /// Returns the present versions of credentials and trust; callers read them before a handshake begins.
    pub(crate) fn handshake_state(&self) -> HandshakeState {
        HandshakeState {
            generation: self.generation.load(Ordering::Acquire),
            trust_version: self.trust_version.load(Ordering::Acquire),
        }
    }

    /// Adds a connection to the open ones. Returns its number.
    pub(crate) fn register(&self, link: &Link) -> u64 {
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        self.links.lock().open.insert(id, link.clone());
        id
    }

    /// Removes a closed connection, and keeps its traffic.
    pub(crate) fn unregister(&self, id: u64, link: &Link) {
        let mut links = self.links.lock();
        links.open.remove(&id);
        links.closed.add(link);
    }

    /// Returns an open connection with `addr` and the expected identity. A connection that the peer dialled is as good
    /// as one dialled here, because every process dials from the socket it listens on.
    pub(crate) fn open_with(&self, addr: SocketAddr, expect: &ExpectedIdentity) -> Option<Link> {
        self.links
            .lock()
            .open
            .values()
            .find(|link| {
                !link.no_new_calls.load(Ordering::Relaxed)
                    && link.connection.remote_address() == addr
                    && link.connection.close_reason().is_none()
                    && expect.matches(&link.identity)
            })
            .cloned()
    }

    pub(crate) fn open_links(&self) -> Vec<Link> {
        self.links.lock().open.values().cloned().collect()
    }

    pub(crate) fn open_count(&self) -> usize {
        self.links.lock().open.len()
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let links = self.links.lock();
        let mut traffic = links.closed;
        links.open.values().for_each(|link| traffic.add(link));
        traffic
    }
}
