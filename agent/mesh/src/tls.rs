//! rustls and quinn configurations: TLS 1.3 only, mutual, no session resumption.

use crate::{
    MeshConfig, MeshError, Role,
    clock::TlsTime,
    door::Door,
    trust::TrustStore,
    verify::{AnyServer, MeshClients, MeshServers, PinnedServer},
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

/// Between enrolled processes.
pub(crate) const MESH_ALPN: &[u8] = b"lattice/1";
/// For strangers with a join token; nothing else is served on it.
pub(crate) const ENROL_ALPN: &[u8] = b"lattice-enrol/1";
/// For members that were away while the authority changed ([`crate::outdated`]).
pub(crate) const TRUST_ALPN: &[u8] = b"lattice-trust/1";
/// TLS needs a name to connect to. Ours are in certificates as URIs; this one is never sent.
pub(crate) const SERVER_NAME: &str = "lattice.invalid";

/// Bytes one peer may have on their way to us, all its streams together: bounds what it can make
/// us hold, and is several times what one call may carry.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Shows what is in force at the moment of the handshake.
struct Shown(Arc<TrustStore>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

/// How a server meets strangers.
#[derive(Clone)]
pub(crate) enum Strangers {
    /// It does not enrol, and says so.
    NotServed,
    /// As long as the door is open.
    Served(Arc<Door>),
    /// These have tried too often.
    NotHeard,
}

/// As [`Shown`], to who asks for it.
struct ShownByServer {
    trust: Arc<TrustStore>,
    strangers: Strangers,
}

impl fmt::Debug for ShownByServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownByServer")
    }
}

impl ResolvesServerCert for ShownByServer {
    /// Comes before anything is computed for the client: without a certificate to show, its first
    /// packet is all it costs.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let trust = self.trust.load();
        if hello.alpn()?.any(|protocol| protocol != ENROL_ALPN) {
            return Some(trust.shown.clone());
        }
        let heard = match &self.strangers {
            Strangers::NotServed => true,
            Strangers::Served(door) => door.opens(),
            Strangers::NotHeard => false,
        };
        heard.then(|| trust.shown_to_strangers.clone())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().shown.clone())
    }
    fn has_certs(&self) -> bool {
        true
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn failed(e: impl fmt::Display) -> MeshError {
    MeshError::Tls {
        reason: e.to_string(),
    }
}

/// A server's configuration. Resumption is off: a resumed session would skip the judgement of
/// the certificate and so survive rotation and revocation.
pub(crate) fn server_config(
    trust: &Arc<TrustStore>,
    config: &MeshConfig,
    strangers: Strangers,
) -> Result<quinn::ServerConfig, MeshError> {
    let strangers_may_enrol = !matches!(strangers, Strangers::NotServed);
    let provider = provider();
    let verifier = MeshClients {
        trust: trust.clone(),
        provider: provider.clone(),
        strangers_may_enrol,
    };
    let time = Arc::new(TlsTime(config.clock.clone()));
    let mut tls = rustls::ServerConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(ShownByServer {
            trust: trust.clone(),
            strangers,
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
    server.transport_config(Arc::new(accepting(config, own)?));
    // Our hosts do not roam; a peer that moves dials again.
    server.migration(false);
    Ok(server)
}

/// A dialler's configurations within the mesh: what it keeps to depends on whom it expects.
pub(crate) struct Dialling {
    to_agents: quinn::ClientConfig,
    to_others: quinn::ClientConfig,
}

impl Dialling {
    pub(crate) fn to(&self, expected: Role) -> quinn::ClientConfig {
        match expected {
            Role::Agent => self.to_agents.clone(),
            Role::Quorum | Role::Control => self.to_others.clone(),
        }
    }
}

/// A client's configuration up to what it shows.
fn judging_by(
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
) -> Result<Dialling, MeshError> {
    let provider = provider();
    let verifier = MeshServers {
        trust: trust.clone(),
        provider: provider.clone(),
    };
    let tls = judging_by(verifier, provider, config)?
        .with_client_cert_resolver(Arc::new(Shown(trust.clone())));
    let own = trust.load().credentials.identity().role();
    let to = |expected| finish_client(tls.clone(), MESH_ALPN, dialling(config, own, expected)?);
    Ok(Dialling {
        to_agents: to(Role::Agent)?,
        to_others: to(Role::Control)?,
    })
}

/// The configuration of a member that was away: it shows its certificate, and judges none.
pub(crate) fn outdated_config(
    trust: &Arc<TrustStore>,
    config: &MeshConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    let provider = provider();
    let verifier = AnyServer {
        provider: provider.clone(),
    };
    let tls = judging_by(verifier, provider, config)?
        .with_client_cert_resolver(Arc::new(Shown(trust.clone())));
    let own = trust.load().credentials.identity().role();
    finish_client(tls, TRUST_ALPN, dialling(config, own, Role::Quorum)?)
}

/// A stranger's configuration: no certificate, the server judged by the token's pins. Sets
/// `unproven` when its certificate alone does not show that it is the right one.
pub(crate) fn enrol_config(
    pins: &[crate::Pin],
    unproven: Arc<AtomicBool>,
    config: &MeshConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    let provider = provider();
    let verifier = PinnedServer {
        pins: pins.to_vec(),
        unproven,
        provider: provider.clone(),
    };
    let tls = judging_by(verifier, provider, config)?.with_no_client_auth();
    let transport = dialling(config, Role::Agent, Role::Quorum)?;
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

/// The dialler keeps a connection alive and says for how long it may be silent; the shorter of
/// both sides' timeouts counts, so who accepts allows the longest.
fn dialling(config: &MeshConfig, own: Role, expected: Role) -> Result<TransportConfig, MeshError> {
    let (idle_timeout, keep_alive) = match (own, expected) {
        (Role::Agent, Role::Agent) => (config.agents_idle_timeout, config.agents_keep_alive),
        _ => (config.idle_timeout, config.keep_alive),
    };
    let mut transport = transport(config, own, idle_timeout)?;
    transport.keep_alive_interval(Some(keep_alive));
    Ok(transport)
}

fn accepting(config: &MeshConfig, own: Role) -> Result<TransportConfig, MeshError> {
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
