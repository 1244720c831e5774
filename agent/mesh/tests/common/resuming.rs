//! A client that resumes sessions and sends early data wherever possible, and servers that permit both.

use super::raw::{CountingServers, key_of, provider};
use lattice_mesh::Credentials;
use quinn::{
    Connection,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    NamedGroup, SignatureScheme,
    client::{ClientSessionMemoryCache, ClientSessionStore, ResolvesClientCert, Resumption},
    client::{Tls12ClientSessionValue, Tls13ClientSessionValue},
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::ServerName;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

const NAME: &str = "lattice.invalid";

/// Certificate that tests replace under an unchanged TLS configuration, because sessions are bound to the
/// configuration.
#[derive(Debug)]
pub struct ReplaceableCertificate(Mutex<Arc<CertifiedKey>>);

impl ReplaceableCertificate {
    pub fn new(own: &Credentials) -> Arc<Self> {
        Arc::new(Self(Mutex::new(certified(own))))
    }
    pub fn change_to(&self, own: &Credentials) {
        *self.0.lock().unwrap() = certified(own);
    }
}

fn certified(own: &Credentials) -> Arc<CertifiedKey> {
    Arc::new(CertifiedKey::from_der(own.chain().to_vec(), key_of(own), &provider()).unwrap())
}

impl ResolvesClientCert for ReplaceableCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.lock().unwrap().clone())
    }
    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for ReplaceableCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.lock().unwrap().clone())
    }
}

/// Session store that counts its uses.
#[derive(Debug)]
pub struct CountingSessionStore {
    store: ClientSessionMemoryCache,
    pub taken_in: AtomicUsize,
    pub offered: AtomicUsize,
}

impl ClientSessionStore for CountingSessionStore {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.store.set_kx_hint(name, group);
    }
    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.store.kx_hint(name)
    }
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}
    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }
    fn remove_tls12_session(&self, _: &ServerName<'static>) {}
    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.taken_in.fetch_add(1, Ordering::SeqCst);
        self.store.insert_tls13_ticket(name, value);
    }
    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let ticket = self.store.take_tls13_ticket(name);
        self.offered
            .fetch_add(usize::from(ticket.is_some()), Ordering::SeqCst);
        ticket
    }
}

pub struct Resuming {
    endpoint: quinn::Endpoint,
    pub shown: Arc<ReplaceableCertificate>,
    pub tickets: Arc<CountingSessionStore>,
    servers: Arc<CountingServers>,
}

/// Outcome of a connection attempt.
#[derive(Debug)]
pub struct ConnectionOutcome {
    pub connection: Option<Connection>,
    /// Whether the client offered an earlier session.
    pub offered: bool,
    /// Whether the server accepted the session.
    pub resumed: bool,
    /// Whether the server accepted early data; `None` if none was sent.
    pub early_data: Option<bool>,
    /// Reason why the server refused the connection.
    pub refused: Option<String>,
}

impl Resuming {
    pub fn new(own: &Credentials) -> Self {
        let shown = ReplaceableCertificate::new(own);
        let tickets = Arc::new(CountingSessionStore {
            store: ClientSessionMemoryCache::new(32),
            taken_in: AtomicUsize::new(0),
            offered: AtomicUsize::new(0),
        });
        let servers: Arc<CountingServers> = Arc::default();
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(servers.clone())
            .with_client_cert_resolver(shown.clone());
        tls.alpn_protocols = vec![b"lattice/1".to_vec()];
        tls.enable_early_data = true;
        tls.resumption = Resumption::store(tickets.clone());
        let quic = QuicClientConfig::try_from(tls).unwrap();
        let mut endpoint = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(quic)));
        Self {
            endpoint,
            shown,
            tickets,
            servers,
        }
    }

    pub fn tickets(&self) -> usize {
        self.tickets.taken_in.load(Ordering::SeqCst)
    }

    /// Connects and resumes a session if possible. Sends a greeting in early data with `early`, and another greeting
    /// afterwards.
    pub async fn connect(&self, addr: SocketAddr, early: bool) -> ConnectionOutcome {
        let offered = || self.tickets.offered.load(Ordering::SeqCst);
        let judged = || self.servers.0.load(Ordering::SeqCst);
        let before = (offered(), judged());
        let connecting = self.endpoint.connect(addr, NAME).unwrap();
        let mut early_data = None;
        let connection = match (early, connecting) {
            (true, connecting) => match connecting.into_0rtt() {
                Ok((connection, accepted)) => {
                    let answer = early_greeting(&connection).await;
                    early_data = Some(accepted.await && answer);
                    Ok(connection)
                }
                Err(connecting) => connecting.await,
            },
            (false, connecting) => connecting.await,
        };
        let greeted = match connection {
            Ok(connection) => super::raw::hello(&connection).await.map(|()| connection),
            Err(error) => Err(error),
        };
        let refused = greeted.as_ref().err().map(ToString::to_string);
        ConnectionOutcome {
            offered: offered() > before.0,
            // A client that resumes does not verify the server's certificate again.
            resumed: greeted.is_ok() && judged() == before.1,
            early_data,
            refused,
            connection: greeted.ok(),
        }
    }
}

/// Sends a greeting before the server has answered. Returns whether the server answered it.
async fn early_greeting(connection: &Connection) -> bool {
    let Ok((mut send, mut recv)) = connection.open_bi().await else {
        return false;
    };
    let greeting = [&[1, 0, 10], &b"mesh.hello"[..], &[0; 4]].concat();
    // Early data that the server rejects ends in an error here, and is lost.
    send.write_all(&greeting).await.is_ok()
        && send.finish().is_ok()
        && recv
            .read_to_end(64)
            .await
            .is_ok_and(|answer| answer == [0; 5])
}

/// A server that issues tickets, resumes sessions and accepts early data.
pub fn lenient_server(
    shown: Arc<ReplaceableCertificate>,
    clients: Arc<dyn ClientCertVerifier>,
) -> quinn::Endpoint {
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_cert_resolver(shown);
    tls.alpn_protocols = vec![b"lattice/1".to_vec()];
    tls.max_early_data_size = u32::MAX;
    let quic = QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(quic));
    let server = quinn::Endpoint::server(config, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let accepting = server.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(greet(incoming));
        }
    });
    server
}

/// Answers greetings like every member, including those in early data.
async fn greet(incoming: quinn::Incoming) {
    let Ok(connecting) = incoming.accept() else {
        return;
    };
    let Ok((connection, _)) = connecting.into_0rtt() else {
        return;
    };
    while let Ok((mut send, _recv)) = connection.accept_bi().await {
        let _ = send.write_all(&[0; 5]).await;
        let _ = send.finish();
    }
}
