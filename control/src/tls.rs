//! TLS port: certificate and socket.

use crate::{config::HttpsConfig, start_error::StartError};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
};

/// Certificate and key of the TLS port.
pub struct HttpsIdentity {
    /// Certificate chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key of the leaf certificate.
    pub key: PrivateKeyDer<'static>,
}

impl HttpsIdentity {
    /// Parses certificates and key from PEM.
    ///
    /// # Errors
    /// Returns an error for text without a certificate or key.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, StartError> {
        let unusable = |e: rustls::pki_types::pem::Error| StartError::Tls {
            reason: e.to_string(),
        };
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(unusable)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
        Ok(Self { chain, key })
    }
}

impl fmt::Debug for HttpsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpsIdentity({} certificates)", self.chain.len())
    }
}

/// Reads the certificate and key files that the configuration names.
pub(crate) fn load(config: &HttpsConfig) -> Result<HttpsIdentity, StartError> {
    let failed = |key: &'static str, path: &Path, reason: String| StartError::File {
        key,
        path: path.to_owned(),
        reason,
    };
    let chain = CertificateDer::pem_file_iter(&config.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| failed("https.certificate", &config.certificate, e.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&config.key)
        .map_err(|e| failed("https.key", &config.key, e.to_string()))?;
    Ok(HttpsIdentity { chain, key })
}

/// Server configuration: TLS 1.2 and 1.3, HTTP/2 (required by gRPC) and HTTP/1.1.
pub(crate) fn server_config(identity: HttpsIdentity) -> Result<Arc<ServerConfig>, StartError> {
    let unusable = |e: rustls::Error| StartError::Tls {
        reason: e.to_string(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(identity.chain, identity.key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Opens the port. The listener is non-blocking, as tokio requires.
pub(crate) fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { addr },
        _ => StartError::Listen {
            addr,
            reason: e.to_string(),
        },
    };
    let listener = TcpListener::bind(addr).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}
