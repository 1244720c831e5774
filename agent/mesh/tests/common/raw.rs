//! A peer outside the mesh code: quinn and rustls with other settings.

use lattice_mesh::{Authority, Credentials};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::{
    DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts every server certificate and counts the verifications: a resumed session performs none.
#[derive(Debug, Default)]
pub struct CountingServers(pub AtomicUsize);

impl ServerCertVerifier for CountingServers {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 only".to_owned()))
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, &algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Reads the private key of credentials from its file, the only way to obtain it.
pub fn key_of(own: &Credentials) -> PrivateKeyDer<'static> {
    let folder = tempfile::tempdir().unwrap();
    own.save(folder.path()).unwrap();
    PrivateKeyDer::from_pem_file(folder.path().join("identity.key")).unwrap()
}

/// A client with the defaults of rustls, including resumption.
pub fn client(_: &Authority, own: Option<&Credentials>, alpn: &[u8]) -> quinn::Endpoint {
    counting_client(own, alpn, Arc::default())
}

/// An unenrolled process at an address of its own, on the enrolment protocol.
pub fn stranger_at(source: std::net::IpAddr) -> quinn::Endpoint {
    client_at(source, None, b"lattice-enrol/1", Arc::default())
}

pub fn counting_client(
    own: Option<&Credentials>,
    alpn: &[u8],
    servers: Arc<CountingServers>,
) -> quinn::Endpoint {
    client_at([127, 0, 0, 1].into(), own, alpn, servers)
}

fn client_at(
    source: std::net::IpAddr,
    own: Option<&Credentials>,
    alpn: &[u8],
    servers: Arc<CountingServers>,
) -> quinn::Endpoint {
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(servers);
    let mut tls = match own {
        Some(own) => builder
            .with_client_auth_cert(own.chain().to_vec(), key_of(own))
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.enable_early_data = true;
    let quic = QuicClientConfig::try_from(tls).unwrap();
    let mut endpoint = quinn::Endpoint::client(SocketAddr::new(source, 0)).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(quic)));
    endpoint
}

/// Sends the greeting that every member answers.
pub async fn hello(connection: &quinn::Connection) -> Result<(), quinn::ConnectionError> {
    let closed = || async { connection.closed().await };
    let Ok((mut send, mut recv)) = connection.open_bi().await else {
        return Err(closed().await);
    };
    let mut request = vec![1, 0, 10];
    request.extend_from_slice(b"mesh.hello");
    request.extend_from_slice(&[0; 4]);
    if send.write_all(&request).await.is_err() {
        return Err(closed().await);
    }
    match recv.read_to_end(64).await {
        Ok(answer) if answer == [0; 5] => Ok(()),
        Ok(other) => panic!("{other:?}"),
        Err(_) => Err(closed().await),
    }
}

/// A server with the defaults of rustls, which issues tickets for resumption.
pub fn ticketing_server(
    own: &Credentials,
    clients: Arc<dyn rustls::server::danger::ClientCertVerifier>,
) -> quinn::Endpoint {
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(own.chain().to_vec(), key_of(own))
        .unwrap();
    tls.alpn_protocols = vec![b"lattice/1".to_vec()];
    let quic = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(quic));
    quinn::Endpoint::server(config, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

pub fn roots_of(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).unwrap();
    Arc::new(roots)
}
