//! Mesh endpoint: one UDP socket that serves and dials.

mod accept;
mod served;
mod statement;
mod trust;

use crate::{
    Credentials, EndpointHandlers, ExpectedIdentity, Identity, MeshConfig, MeshError, Peer, Router,
    Traffic,
    endpoint::state::Core,
    limits::admission::Admission,
    outdated::BundleServer,
    peer::handle::PeerState,
    pki::crypto::provider,
    rpc::simulated::NoSocket,
    transport::{
        close::{CLOSE_NOT_TRUSTED, CLOSE_SHUTDOWN},
        tls::{UnenrolledPeers, client_config, server_config},
    },
    trust::{
        in_force::{Trust, TrustStore},
        reset::RandomConnectionIds,
    },
};
use accept::{Acceptor, accept_loop};
use lattice_quorum_types::UnixMillis;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    fmt, io,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Weak},
    time::Duration,
};

/// Idle time after which a peer state without a handle may be dropped.
const PEER_IDLE: Duration = Duration::from_secs(120);
/// Minimum time for sending the last packets of closed connections.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(50);
/// Number of peer states from which [`Mesh::peer`] drops idle ones.
const PEERS_BEFORE_SWEEP: usize = 256;

/// Mesh endpoint of one process; clones share it. The endpoint lives until [`Mesh::shutdown`], or until the last clone
/// is dropped. A handler in the endpoint's [`Router`] should hold a [`WeakMesh`]: with a clone in a handler, only
/// `shutdown` ends the endpoint.
#[derive(Clone)]
pub struct Mesh {
    owner: Arc<MeshOwner>,
}

struct MeshOwner {
    core: Arc<Core>,
    peers: Mutex<HashMap<(SocketAddr, ExpectedIdentity), Arc<PeerState>>>,
}

/// Validity of the certificate that a process presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedCertificate {
    /// Identity in the certificate.
    pub identity: Identity,
    /// Issue time.
    pub issued_at: UnixMillis,
    /// Last moment at which the certificate is valid.
    pub expires_at: UnixMillis,
}

/// Weak handle on a [`Mesh`], for handlers: it does not keep the endpoint alive.
#[derive(Clone)]
pub struct WeakMesh(Weak<MeshOwner>);

impl WeakMesh {
    /// Returns the endpoint, or `None` after it has ended.
    pub fn upgrade(&self) -> Option<Mesh> {
        let owner = self.0.upgrade()?;
        Some(Mesh { owner })
    }
}

impl fmt::Debug for WeakMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakMesh")
    }
}

impl Drop for MeshOwner {
    fn drop(&mut self) {
        self.core.cancel.cancel();
        self.core.quic.close(CLOSE_SHUTDOWN.into(), b"shut down");
        self.peers.lock().clear();
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mesh({} on {})", self.identity(), self.local_addr())
    }
}

impl Mesh {
    /// Opens the socket. The endpoint accepts no connection before [`Mesh::serve`]. Must run inside a tokio runtime.
    pub fn bind(
        addr: SocketAddr,
        credentials: Credentials,
        config: MeshConfig,
    ) -> Result<Self, MeshError> {
        let bind_error = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => MeshError::AddressInUse { addr },
            _ => MeshError::Bind {
                addr,
                source: Arc::new(source),
            },
        };
        let reset = credentials.reset().clone();
        let mut endpoint = quinn::EndpointConfig::new(Arc::new(reset));
        endpoint.cid_generator(|| Box::new(RandomConnectionIds));
        let trust = Arc::new(TrustStore::new(Trust::new(credentials, &provider())?));
        let client = client_config(&trust, &config)?;
        let runtime = Arc::new(quinn::TokioRuntime);
        let quic = match &config.wire {
            None => {
                let socket = UdpSocket::bind(addr).map_err(bind_error)?;
                quinn::Endpoint::new(endpoint, None, socket, runtime)
            }
            Some(_) => {
                let socket = Arc::new(NoSocket(addr));
                quinn::Endpoint::new_with_abstract_socket(endpoint, None, socket, runtime)
            }
        };
        let quic = quic.map_err(bind_error)?;
        let local_addr = quic.local_addr().map_err(bind_error)?;
        let core = Arc::new(Core::new(quic, local_addr, trust, client, config));
        Ok(Self {
            owner: Arc::new(MeshOwner {
                core,
                peers: Mutex::default(),
            }),
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }

    /// Returns a handle that does not keep the endpoint alive, for handlers in the endpoint's own [`Router`].
    pub fn downgrade(&self) -> WeakMesh {
        WeakMesh(Arc::downgrade(&self.owner))
    }

    /// Address of the socket, with the actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.core().local_addr
    }

    /// Identity of this process.
    pub fn identity(&self) -> Identity {
        self.core().trust().credentials.identity().clone()
    }

    /// Issue time of the certificate in force.
    pub fn issued_at(&self) -> UnixMillis {
        self.core().trust().credentials.issued_at()
    }

    /// Expiry time of the certificate in force.
    pub fn expires_at(&self) -> UnixMillis {
        self.core().trust().credentials.expires_at()
    }

    /// Starts to answer requests. A second call on one endpoint fails.
    pub fn serve(&self, router: Router) -> Result<(), MeshError> {
        let core = self.core();
        let config = &core.config;
        let door = Arc::new(Admission::new(config.enrol_rate, config.enrol_rate_total));
        let (unenrolled_peers, throttled_peers) = match router.enroller {
            Some(_) => (
                UnenrolledPeers::Served(door.clone()),
                UnenrolledPeers::Throttled,
            ),
            None => (UnenrolledPeers::NotServed, UnenrolledPeers::NotServed),
        };
        let server = server_config(&core.trust, config, unenrolled_peers)?;
        let without_enrolment = Arc::new(server_config(&core.trust, config, throttled_peers)?);
        let router = Arc::new(router);
        core.router
            .set(router.clone())
            .map_err(|_| MeshError::AlreadyServing)?;
        if let Some(wire) = &config.wire {
            wire.serve(EndpointHandlers::new(core.local_addr, router));
            return Ok(());
        }
        core.quic.set_server_config(Some(server));
        let acceptor = Acceptor {
            core: core.clone(),
            router,
            admission: door,
            without_enrolment,
            outdated: BundleServer::default(),
        };
        core.tasks.spawn(accept_loop(acceptor));
        Ok(())
    }

    /// Returns a handle on the peer at `addr`. The endpoint dials on first use.
    pub fn peer(&self, addr: SocketAddr, expect: ExpectedIdentity) -> Peer {
        let core = self.core();
        let mut peers = self.owner.peers.lock();
        if peers.len() >= PEERS_BEFORE_SWEEP {
            peers.retain(|_, p| Arc::strong_count(p) > 1 || p.idle_for() < PEER_IDLE);
        }
        let state = peers
            .entry((addr, expect.clone()))
            .or_insert_with(|| Arc::new(PeerState::new(core, addr, expect)))
            .clone();
        Peer {
            state,
            max_reply: None,
        }
    }

    /// Dials now. Returns when the peer has accepted this process and its identity matches `expect`.
    pub async fn connect(
        &self,
        addr: SocketAddr,
        expect: ExpectedIdentity,
    ) -> Result<Peer, MeshError> {
        let peer = self.peer(addr, expect);
        peer.connected().await?;
        Ok(peer)
    }

    /// Closes every connection of a peer, which may reconnect. Returns the number of closed connections.
    pub fn disconnect(&self, identity: &Identity) -> usize {
        let links = self.core().open_links();
        let of_peer = links.iter().filter(|link| link.identity == *identity);
        of_peer
            .inspect(|link| {
                link.connection
                    .close(CLOSE_NOT_TRUSTED.into(), b"disconnected")
            })
            .count()
    }

    /// Identities of the peers with an open connection to this process.
    pub fn connections(&self) -> Vec<Identity> {
        self.core()
            .open_links()
            .into_iter()
            .map(|link| link.identity)
            .collect()
    }

    /// Certificates that this process and the peers with an open connection present, at most one per identity: the
    /// newest. A certificate issued by hand is known to other processes only this way.
    pub fn presented_certificates(&self) -> Vec<PresentedCertificate> {
        let own = PresentedCertificate {
            identity: self.identity(),
            issued_at: self.issued_at(),
            expires_at: self.expires_at(),
        };
        let mut newest = BTreeMap::from([(own.identity.clone(), own)]);
        for link in self.core().open_links() {
            let presented = PresentedCertificate {
                identity: link.identity,
                issued_at: link.issued_at,
                expires_at: link.expires_at,
            };
            let known = newest.get(&presented.identity);
            if known.is_none_or(|known| known.issued_at < presented.issued_at) {
                newest.insert(presented.identity.clone(), presented);
            }
        }
        newest.into_values().collect()
    }

    /// Traffic of all connections since the endpoint was opened.
    pub fn traffic(&self) -> Traffic {
        self.core().traffic()
    }

    /// Stops accepting connections, ends streams, lets running calls finish for at most `grace`, and closes every
    /// connection.
    pub async fn shutdown(&self, grace: Duration) {
        let core = self.core();
        let until = tokio::time::Instant::now() + grace;
        core.quic.set_server_config(None);
        core.cancel.cancel();
        core.tasks.close();
        let _ = tokio::time::timeout_at(until, core.tasks.wait()).await;
        core.quic.close(CLOSE_SHUTDOWN.into(), b"shut down");
        // Runs even when the grace period is used up, so that the peers receive the close from the port they expect.
        let until = until.max(tokio::time::Instant::now() + CLOSE_TIMEOUT);
        let _ = tokio::time::timeout_at(until, core.quic.wait_idle()).await;
        self.owner.peers.lock().clear();
        if core.config.wire.is_some() {
            return;
        }
        if let Err(error) = release_port(&core.quic) {
            tracing::debug!(
                %error,
                "UDP port not released at shutdown; it is released with the last handle"
            );
        }
    }
}

/// Releases the port now. The endpoint would otherwise hold the port until the last closed connection is drained,
/// seconds later, and until the last handle is dropped.
fn release_port(quic: &quinn::Endpoint) -> io::Result<()> {
    // quinn keeps the previous socket for packets in flight, so only the second rebind releases the port.
    for _ in 0..2 {
        quic.rebind(UdpSocket::bind(("127.0.0.1", 0))?)?;
    }
    Ok(())
}
