//! Shared state of an endpoint: socket, trust, configuration and open connections.

use crate::{
    Expect, Identity, MeshConfig, MeshError, Router,
    apply::{Keeping, TrustState},
    connection_drain::Uses,
    peer::PeerState,
    tls::{Dialling, SERVER_NAME},
    trust::{Distrust, Trust, TrustStore},
    wire::{HELLO, Status, read_frame, request_bytes},
};
use lattice_quorum_types::UnixMillis;
use parking_lot::Mutex;
use quinn::{Connection, ConnectionError};
use rustls_pki_types::CertificateDer;
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Application close codes.
pub(crate) const CLOSE_SHUTDOWN: u32 = 0;
pub(crate) const CLOSE_NO_CERTIFICATE: u32 = 1;
pub(crate) const CLOSE_EXPIRED: u32 = 2;
pub(crate) const CLOSE_NOT_TRUSTED: u32 = 3;
pub(crate) const CLOSE_UNEXPECTED: u32 = 4;
pub(crate) const CLOSE_RATE_LIMITED: u32 = 5;
pub(crate) const CLOSE_DONE: u32 = 6;
pub(crate) const CLOSE_REVOKED: u32 = 7;
pub(crate) const CLOSE_RENEWED: u32 = 8;

/// Versions of credentials and trust before a handshake began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandshakeState {
    /// Generation of the credentials that this process presents.
    pub(crate) generation: u64,
    /// Number of changes of the trusted authorities and revocations.
    pub(crate) judgements: u64,
}

/// A live, mutually authenticated connection.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
    pub(crate) issued_at: UnixMillis,
    pub(crate) chain: Arc<Vec<CertificateDer<'static>>>,
    pub(crate) made: HandshakeState,
    /// No new call starts on the connection: it was silent for a whole deadline, or one end is leaving it.
    pub(crate) distrusted: Arc<AtomicBool>,
    /// Calls, streams and messages that run on the connection.
    pub(crate) uses: Uses,
}

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

pub(crate) struct Core {
    pub(crate) quic: quinn::Endpoint,
    pub(crate) local_addr: SocketAddr,
    pub(crate) trust: Arc<TrustStore>,
    pub(crate) config: MeshConfig,
    pub(crate) client: Dialling,
    pub(crate) router: OnceLock<Arc<Router>>,
    pub(crate) generation: AtomicU64,
    /// Incremented when the trusted authorities or revocations change.
    pub(crate) judgements: AtomicU64,
    /// Serialises changes of trust. Never held while waiting for the disk.
    pub(crate) changing: Mutex<()>,
    pub(crate) keeping: Mutex<Keeping>,
    /// The saved trust bundle is older than the one in force.
    pub(crate) unsaved: AtomicBool,
    pub(crate) trust_state: watch::Sender<TrustState>,
    pub(crate) cancel: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) peers: Mutex<HashMap<(SocketAddr, Expect), Arc<PeerState>>>,
    links: Mutex<Links>,
    next_link: AtomicU64,
    /// For tasks started outside of a runtime context.
    pub(crate) runtime: tokio::runtime::Handle,
}

impl Core {
    pub(crate) fn new(
        quic: quinn::Endpoint,
        local_addr: SocketAddr,
        trust: Arc<TrustStore>,
        client: Dialling,
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
            judgements: AtomicU64::new(0),
            changing: Mutex::default(),
            keeping: Mutex::default(),
            unsaved: AtomicBool::new(false),
            trust_state,
            cancel: CancellationToken::new(),
            tasks: TaskTracker::new(),
            peers: Mutex::default(),
            links: Mutex::default(),
            next_link: AtomicU64::new(0),
            runtime: tokio::runtime::Handle::current(),
        }
    }

    pub(crate) fn trust(&self) -> Arc<Trust> {
        self.trust.load_full()
    }

    /// Read before a handshake begins.
    pub(crate) fn made_now(&self) -> HandshakeState {
        HandshakeState {
            generation: self.generation.load(Ordering::Acquire),
            judgements: self.judgements.load(Ordering::Acquire),
        }
    }

    /// Dials, verifies the peer, and waits until the peer has accepted this process. With TLS 1.3 a connection is open
    /// on this side before the other side has received our certificate.
    pub(crate) async fn dial(
        self: &Arc<Self>,
        addr: SocketAddr,
        expect: &Expect,
    ) -> Result<Link, MeshError> {
        if self.cancel.is_cancelled() {
            return Err(MeshError::Closed);
        }
        let limit = self.config.connect_timeout;
        let made = self.made_now();
        let dial = async {
            let connection = self
                .quic
                .connect_with(self.client.to(expect.role), addr, SERVER_NAME)
                .map_err(|e| MeshError::Unreachable {
                    addr,
                    reason: e.to_string(),
                })?
                .await
                .map_err(|e| dial_error(addr, &e))?;
            let link = self.link(connection, made)?;
            if !expect.matches(&link.identity) {
                link.connection
                    .close(CLOSE_UNEXPECTED.into(), b"another peer was expected");
                let (expected, found) = (expect.clone(), link.identity);
                return Err(MeshError::UnexpectedPeer {
                    addr,
                    expected,
                    found,
                });
            }
            hello(&link.connection).await.map_err(|reason| {
                match link.connection.close_reason() {
                    Some(e) => dial_error(addr, &e),
                    None => MeshError::Unreachable { addr, reason },
                }
            })?;
            Ok(link)
        };
        let dial = tokio::time::timeout(limit, dial);
        // A dial must not keep the socket open after shutdown.
        let dialled = self.cancel.run_until_cancelled(dial).await;
        let link = dialled.ok_or(MeshError::Closed)?.unwrap_or_else(|_| {
            let reason = format!("no answer within {} ms", limit.as_millis());
            Err(MeshError::Unreachable { addr, reason })
        })?;
        self.adopt(link.clone());
        Ok(link)
    }

    /// Reads the peer's identity from a finished handshake.
    pub(crate) fn link(
        &self,
        connection: Connection,
        made: HandshakeState,
    ) -> Result<Link, MeshError> {
        let addr = connection.remote_address();
        let chain = connection
            .peer_identity()
            .and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok())
            .map(|chain| *chain)
            .unwrap_or_default();
        let admitted = match chain.first() {
            Some(leaf) => self.trust().admit(leaf),
            None => Err(Distrust::Other("it presented no certificate".to_owned())),
        };
        let reason = match admitted {
            Ok(member) => {
                return Ok(Link {
                    connection,
                    identity: member.identity,
                    issued_at: member.issued_at,
                    chain: Arc::new(chain),
                    made,
                    distrusted: Arc::default(),
                    uses: Uses::default(),
                });
            }
            Err(distrust) => distrust,
        };
        let (code, text): (u32, &[u8]) = match &reason {
            Distrust::Revoked { .. } => (CLOSE_REVOKED, b"the certificate was revoked"),
            Distrust::Other(_) => (CLOSE_NO_CERTIFICATE, b"a mesh certificate is required"),
        };
        connection.close(code.into(), text);
        let reason = reason.to_string();
        Err(MeshError::NotTrusted { addr, reason })
    }

    /// Registers a connection and serves it until it closes.
    pub(crate) fn adopt(self: &Arc<Self>, link: Link) {
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        self.links.lock().open.insert(id, link.clone());
        // Trust may have changed since the handshake began, and the task that changed it may have missed this
        // connection.
        if self.judgements.load(Ordering::Acquire) != link.made.judgements {
            self.close_if_distrusted(&self.trust(), &link, true);
        }
        if self.generation.load(Ordering::Acquire) != link.made.generation {
            self.leave([link.clone()]);
        }
        let core = self.clone();
        self.tasks.spawn(async move {
            let reason = crate::serve::serve_link(&core, &link).await;
            {
                let mut links = core.links.lock();
                links.open.remove(&id);
                links.closed.add(&link);
            }
            tracing::debug!(peer = %link.identity, addr = %link.connection.remote_address(), %reason, "mesh connection closed");
        });
    }

    /// Returns an open connection with `addr` and the expected identity. A connection that the peer dialled is as good
    /// as one dialled here, because every process dials from the socket it listens on.
    pub(crate) fn open_with(&self, addr: SocketAddr, expect: &Expect) -> Option<Link> {
        self.links
            .lock()
            .open
            .values()
            .find(|link| {
                !link.distrusted.load(Ordering::Relaxed)
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

/// Sends `mesh.hello`. The peer answers as soon as it has accepted this process, and never otherwise.
async fn hello(connection: &Connection) -> Result<(), String> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(|e| e.to_string())?;
    send.write_all(&request_bytes(HELLO, &[]))
        .await
        .map_err(|e| e.to_string())?;
    let _ = send.finish();
    match read_frame(&mut recv, 1024).await {
        Ok((Status::Item, _)) => Ok(()),
        other => Err(format!("no greeting: {other:?}")),
    }
}

/// Distinguishes a rejected certificate from an unreachable peer.
pub(crate) fn dial_error(addr: SocketAddr, error: &ConnectionError) -> MeshError {
    let not_trusted = |reason: String| MeshError::NotTrusted { addr, reason };
    match error {
        ConnectionError::TransportError(e) if alert(e.code).is_some() => {
            not_trusted(refusal("we refuse its certificate", e.code, &e.reason))
        }
        ConnectionError::ConnectionClosed(e) if alert(e.error_code).is_some() => {
            let reason = String::from_utf8_lossy(&e.reason);
            let what = "it refuses our certificate";
            not_trusted(refusal(what, e.error_code, &reason))
        }
        ConnectionError::ApplicationClosed(e)
            if e.error_code == CLOSE_NO_CERTIFICATE.into()
                || e.error_code == CLOSE_NOT_TRUSTED.into()
                || e.error_code == CLOSE_REVOKED.into()
                || e.error_code == CLOSE_EXPIRED.into() =>
        {
            let reason = String::from_utf8_lossy(&e.reason);
            not_trusted(format!("it refuses this process: {reason}"))
        }
        other => MeshError::Unreachable {
            addr,
            reason: other.to_string(),
        },
    }
}

/// TLS alert access_denied (49): the server is too busy to present its certificate to an unenrolled process.
pub(crate) const ALERT_BUSY: u64 = 49;

/// Returns the TLS alert in a QUIC error code.
pub(crate) fn alert(code: quinn::TransportErrorCode) -> Option<u64> {
    u64::from(code).checked_sub(0x100).filter(|n| *n < 0x100)
}

/// Describes a TLS alert in words an operator can act on, with the detail from rustls.
fn refusal(what: &str, code: quinn::TransportErrorCode, detail: &str) -> String {
    if alert(code) == Some(120) {
        return "it does not offer the requested protocol; new processes enrol at quorum members"
            .to_owned();
    }
    let words = match alert(code) {
        Some(44) => "it was revoked; enrol again, or ask the operator that revoked it",
        Some(45) => "it has expired or is not valid yet; check both clocks, then renew it",
        Some(48) => {
            "it is of another authority; this may be another cluster, or the authority was retired \
             while the holder of the certificate was away; the holder must then enrol again"
        }
        Some(51) => "its signature is wrong; it may be of another authority",
        Some(116) => "there is none; enrol first",
        _ => "it is not acceptable",
    };
    let detail = detail.trim_start_matches("invalid peer certificate: ");
    let detail = detail
        .strip_prefix("Other(OtherError(")
        .and_then(|ours| ours.strip_suffix("))"))
        .unwrap_or(detail);
    if detail.is_empty() || detail == "Revoked" {
        format!("{what}: {words}")
    } else {
        format!("{what}: {words} ({detail})")
    }
}

/// Returns the wait before the next try: `min` after the first failure, doubled with each failure in a row, at most
/// `max`.
///
/// `backon` is not used: it wraps the retried call, whereas these failures belong to a peer or a rank.
pub fn backoff(min: Duration, max: Duration, failures: u32) -> Duration {
    min.saturating_mul(
        1u32.checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX),
    )
    .min(max)
}
