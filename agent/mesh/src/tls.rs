//! rustls and quinn configurations: TLS 1.3 only, mutual, no session resumption.

use crate::{
    Credentials, CredentialsError, MeshConfig, MeshError,
    clock::TlsTime,
    verify::{MeshClients, MeshServers, PinnedServer},
};
use arc_swap::ArcSwap;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    RootCertStore, SignatureScheme,
    client::{ResolvesClientCert, Resumption},
    crypto::CryptoProvider,
    server::danger::ClientCertVerifier,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use std::{fmt, sync::Arc};

/// Between enrolled processes.
pub(crate) const MESH_ALPN: &[u8] = b"lattice/1";
/// For strangers with a join token; nothing else is served on it.
pub(crate) const ENROL_ALPN: &[u8] = b"lattice-enrol/1";
/// TLS needs a name to connect to. Ours are in certificates as URIs; this one is never sent.
pub(crate) const SERVER_NAME: &str = "lattice.invalid";

/// Bytes one peer may have on their way to us, all its streams together: bounds what it can make
/// us hold, and is several times what one call may carry.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Credentials in the form rustls uses them.
pub(crate) struct Trust {
    pub(crate) credentials: Credentials,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) clients: Arc<dyn ClientCertVerifier>,
    shown: Arc<CertifiedKey>,
    /// With the roots behind it, for strangers, who compare their pin with them.
    shown_to_strangers: Arc<CertifiedKey>,
}

impl Trust {
    pub(crate) fn new(
        credentials: Credentials,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, CredentialsError> {
        let certificate = |reason: String| CredentialsError::Certificate { reason };
        let mut roots = RootCertStore::empty();
        for root in credentials.roots() {
            roots
                .add(root.clone())
                .map_err(|e| certificate(e.to_string()))?;
        }
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|e| certificate(e.to_string()))?;
        let certified = |chain| {
            CertifiedKey::from_der(chain, credentials.key().to_der(), provider)
                .map(Arc::new)
                .map_err(|e| CredentialsError::Key {
                    reason: e.to_string(),
                })
        };
        let own = credentials.chain().to_vec();
        let with_roots = own.iter().chain(credentials.roots()).cloned().collect();
        let (shown, shown_to_strangers) = (certified(own)?, certified(with_roots)?);
        Ok(Self {
            credentials,
            roots,
            clients,
            shown,
            shown_to_strangers,
        })
    }
}

/// The credentials in force: read at every handshake, swapped by rotation.
pub(crate) type TrustStore = ArcSwap<Trust>;

/// Shows what is in force at the moment of the handshake.
struct Shown(Arc<TrustStore>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let trust = self.0.load();
        let stranger = hello.alpn()?.all(|protocol| protocol == ENROL_ALPN);
        Some(if stranger {
            trust.shown_to_strangers.clone()
        } else {
            trust.shown.clone()
        })
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
    strangers_may_enrol: bool,
) -> Result<quinn::ServerConfig, MeshError> {
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
        .with_cert_resolver(Arc::new(Shown(trust.clone())));
    tls.alpn_protocols = vec![MESH_ALPN.to_vec()];
    if strangers_may_enrol {
        tls.alpn_protocols.push(ENROL_ALPN.to_vec());
    }
    tls.send_tls13_tickets = 0;
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.max_early_data_size = 0;
    let quic = QuicServerConfig::try_from(tls).map_err(failed)?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(quic));
    server.transport_config(Arc::new(transport(config)?));
    // Our hosts do not roam; a peer that moves dials again.
    server.migration(false);
    Ok(server)
}

/// A dialler's configuration within the mesh.
pub(crate) fn client_config(
    trust: &Arc<TrustStore>,
    config: &MeshConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    let provider = provider();
    let verifier = MeshServers {
        trust: trust.clone(),
        provider: provider.clone(),
    };
    let time = Arc::new(TlsTime(config.clock.clone()));
    let tls = rustls::ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(Shown(trust.clone())));
    finish_client(tls, MESH_ALPN, config)
}

/// A stranger's configuration: no certificate, the server judged by the token's pin.
pub(crate) fn enrol_config(
    pin: crate::Pin,
    config: &MeshConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    let provider = provider();
    let verifier = PinnedServer {
        pin,
        provider: provider.clone(),
    };
    let time = Arc::new(TlsTime(config.clock.clone()));
    let tls = rustls::ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    finish_client(tls, ENROL_ALPN, config)
}

fn finish_client(
    mut tls: rustls::ClientConfig,
    alpn: &[u8],
    config: &MeshConfig,
) -> Result<quinn::ClientConfig, MeshError> {
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.resumption = Resumption::disabled();
    tls.enable_sni = false;
    tls.enable_early_data = false;
    let quic = QuicClientConfig::try_from(tls).map_err(failed)?;
    let mut client = quinn::ClientConfig::new(Arc::new(quic));
    client.transport_config(Arc::new(transport(config)?));
    Ok(client)
}

fn transport(config: &MeshConfig) -> Result<quinn::TransportConfig, MeshError> {
    let mut transport = quinn::TransportConfig::default();
    transport
        .keep_alive_interval(Some(config.keep_alive))
        .max_idle_timeout(Some(config.idle_timeout.try_into().map_err(failed)?))
        .receive_window(CONNECTION_WINDOW.into())
        .max_concurrent_bidi_streams(config.max_streams.into())
        .max_concurrent_uni_streams(config.max_message_streams.into())
        .datagram_receive_buffer_size(None);
    Ok(transport)
}
