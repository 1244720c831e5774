//! rustls and quinn configurations: TLS 1.3 only, mutual authentication, no session resumption.

use super::verify::{AnyServer, MeshClients, MeshServers, PinnedServer};
use crate::{
    MeshConfig, MeshError, Pin, Role, clock::TlsTime, limits::admission::Admission,
    pki::crypto::provider, trust::in_force::TrustStore,
};
use quinn::{
    TransportConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    ConfigBuilder, SignatureScheme,
    client::{ResolvesClientCert, Resumption, WantsClientCert, danger::ServerCertVerifier},
    crypto::CryptoProvider,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// Protocol between enrolled processes.
pub(crate) const MESH_ALPN: &[u8] = b"lattice/1";
/// Protocol for unenrolled processes with a join token; the server serves nothing else on it.
pub(crate) const ENROL_ALPN: &[u8] = b"lattice-enrol/1";
/// Protocol for members that were offline while the authority changed ([`crate::outdated`]).
pub(crate) const TRUST_ALPN: &[u8] = b"lattice-trust/1";
/// Server name that TLS requires. Mesh names are URIs in certificates, so this name is never sent.
pub(crate) const SERVER_NAME: &str = "lattice.invalid";

/// Receive window of one connection, bytes, all its streams together. The window bounds the memory that a peer can
/// occupy here, and is several times the size of one call.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Presents the certificate in force at the moment of the handshake.
struct CurrentCertificate(Arc<TrustStore>);

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentCertificate")
    }
}

/// Treatment of unenrolled processes by a server.
#[derive(Clone)]
pub(crate) enum UnenrolledPeers {
    /// The server does not offer enrolment, and refuses its protocol.
    NotServed,
    /// The server enrols as long as the rate limit of the [`Admission`] allows.
    Served(Arc<Admission>),
    /// The source has used up its tries: the server presents no certificate.
    Throttled,
}

/// Server counterpart of [`CurrentCertificate`]: the certificate depends on the protocol that the client offers.
struct ServerCertificate {
    trust: Arc<TrustStore>,
    unenrolled: UnenrolledPeers,
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerCertificate")
    }
}

impl ResolvesServerCert for ServerCertificate {
    /// Runs before any computation for the client. For a client that is shown no certificate, the server only processes
    /// the first packet.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let trust = self.trust.load();
        if hello.alpn()?.any(|protocol| protocol != ENROL_ALPN) {
            return Some(trust.certified_key.clone());
        }
        let is_admitted = match &self.unenrolled {
            UnenrolledPeers::NotServed => true,
            UnenrolledPeers::Served(door) => door.admit_handshake(),
            UnenrolledPeers::Throttled => false,
        };
        is_admitted.then(|| trust.certified_key_with_roots.clone())
    }
}

impl ResolvesClientCert for CurrentCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().certified_key.clone())
    }
    fn has_certs(&self) -> bool {
        true
    }
}

fn failed(e: impl fmt::Display) -> MeshError {
    MeshError::Tls {
        reason: e.to_string(),
    }
}

/// Builds a server's configuration. Resumption is off: a resumed session would skip certificate verification, and so
/// survive rotation and revocation.
pub(crate) fn server_config(
    trust: &Arc<TrustStore>,
    config: &MeshConfig,
    strangers: UnenrolledPeers,
) -> Result<quinn::ServerConfig, MeshError> {
    let strangers_may_enrol = !matches!(strangers, UnenrolledPeers::NotServed);
    let provider = provider();
    let verifier = MeshClients {
        trust: trust.clone(),
        provider: provider.clone(),
        offers_enrolment: strangers_may_enrol,
    };
    let time = Arc::new(TlsTime(config.clock.clone()));
    let mut tls = rustls::ServerConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(ServerCertificate {
            trust: trust.clone(),
            unenrolled: strangers,
        }));
    tls.alpn_protocols = vec![MESH_ALPN.to_vec(), TRUST_ALPN.to_vec()];
    if strangers_may_enrol {
        tls.alpn_protocols.push(ENROL_ALPN.to_vec());
    }
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.max_early_data_size = 0;
    let quic = QuicServerConfig::try_from(tls).map_err(failed)?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(quic));
    let own = trust.load().credentials.identity().role();
    server.transport_config(Arc::new(accepting_transport(config, own)?));
    // Hosts do not change addresses; a peer that moves dials again.
    server.migration(false);
    Ok(server)
}

/// Client configurations within the mesh. Timeouts depend on the expected role of the peer.
pub(crate) struct DialConfigs {
    to_agents: quinn::ClientConfig,
    to_others: quinn::ClientConfig,
}

impl DialConfigs {
    pub(crate) fn to(&self, expected: Role) -> quinn::ClientConfig {
        match expected {
            Role::Agent => self.to_agents.clone(),
            Role::Quorum | Role::Control => self.to_others.clone(),
        }
    }
}

/// Builds a client's configuration except for its own certificate.
fn client_builder(
    verifier: impl ServerCertVerifier + 'static,
    provider: Arc<CryptoProvider>,
    config: &MeshConfig,
) -> Result<ConfigBuilder<rustls::ClientConfig, WantsClientCert>, MeshError> {
    let time = Arc::new(TlsTime(config.clock.clone()));
    let builder = rustls::ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .dangerous();
    Ok(builder.with_custom_certificate_verifier(Arc::new(verifier)))
}

pub(crate) fn client_config(
    trust: &Arc<TrustStore>,
    config: &MeshConfig,
) -> Result<DialConfigs, MeshError> {
    let provider = provider();
    let verifier = MeshServers {
        trust: trust.clone(),
        provider: provider.clone(),
    };
    let tls = client_builder(verifier, provider, config)?
        .with_client_cert_resolver(Arc::new(CurrentCertificate(trust.clone())));
    let own = trust.load().credentials.identity().role();
    let to = |expected| {
        finish_client(
            tls.clone(),
            MESH_ALPN,
            dialling_transport(config, own, expected)?,
        )
    };
    Ok(DialConfigs {
        to_agents: to(Role::Agent)?,
        to_others: to(Role::Control)?,
    })
}

/// Builds the configuration of a member that was offline: the client presents its certificate and does not verify the
/// server's.
pub(crate) fn outdated_config(
    trust: &Arc<TrustStore>,
    config: &MeshConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    let provider = provider();
    let verifier = AnyServer {
        provider: provider.clone(),
    };
    let tls = client_builder(verifier, provider, config)?
        .with_client_cert_resolver(Arc::new(CurrentCertificate(trust.clone())));
    let own = trust.load().credentials.identity().role();
    finish_client(
        tls,
        TRUST_ALPN,
        dialling_transport(config, own, Role::Quorum)?,
    )
}

/// Builds the configuration of an unenrolled process: no client certificate, and a server verified by the token's pins.
/// The verifier sets `unproven` when the server's certificate alone does not prove that it belongs to the cluster.
pub(crate) fn enrol_config(
    pins: &[Pin],
    unproven: Arc<AtomicBool>,
    config: &MeshConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    let provider = provider();
    let verifier = PinnedServer {
        pins: pins.to_vec(),
        unproven,
        provider: provider.clone(),
    };
    let tls = client_builder(verifier, provider, config)?.with_no_client_auth();
    let transport = dialling_transport(config, Role::Agent, Role::Quorum)?;
    finish_client(tls, ENROL_ALPN, transport)
}

fn finish_client(
    mut tls: rustls::ClientConfig,
    alpn: &[u8],
    transport: TransportConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.resumption = Resumption::disabled();
    tls.enable_sni = false;
    tls.enable_early_data = false;
    let quic = QuicClientConfig::try_from(tls).map_err(failed)?;
    let mut client = quinn::ClientConfig::new(Arc::new(quic));
    client.transport_config(Arc::new(transport));
    Ok(client)
}

/// Settings of the dialling side, which keeps a connection alive and sets its idle timeout. The shorter timeout of both
/// sides applies, so the accepting side allows the longest.
fn dialling_transport(
    config: &MeshConfig,
    own: Role,
    expected: Role,
) -> Result<TransportConfig, MeshError> {
    let (idle_timeout, keep_alive) = match (own, expected) {
        (Role::Agent, Role::Agent) => (config.agents_idle_timeout, config.agents_keep_alive),
        _ => (config.idle_timeout, config.keep_alive),
    };
    let mut transport = transport(config, own, idle_timeout)?;
    transport.keep_alive_interval(Some(keep_alive));
    Ok(transport)
}

fn accepting_transport(config: &MeshConfig, own: Role) -> Result<TransportConfig, MeshError> {
    let longest = config.idle_timeout.max(config.agents_idle_timeout);
    transport(config, own, longest)
}

fn transport(
    config: &MeshConfig,
    own: Role,
    idle_timeout: Duration,
) -> Result<TransportConfig, MeshError> {
    let share = |streams: u32| match own {
        Role::Agent => streams.div_ceil(4),
        Role::Quorum | Role::Control => streams,
    };
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(idle_timeout.try_into().map_err(failed)?))
        .receive_window(CONNECTION_WINDOW.into())
        .max_concurrent_bidi_streams(share(config.max_streams).into())
        .max_concurrent_uni_streams(share(config.max_message_streams).into())
        .datagram_receive_buffer_size(None);
    Ok(transport)
}
