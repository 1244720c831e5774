//! TLS port: certificate and socket.

use crate::{config::HttpsConfig, edges::HttpsIdentity, start_error::StartError};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
};

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

/// Parses certificate chain and key from PEM text.
pub(crate) fn from_pem(chain: &str, key: &str) -> Result<HttpsIdentity, StartError> {
    let unusable = |e: rustls::pki_types::pem::Error| StartError::Tls {
        reason: e.to_string(),
    };
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(unusable)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
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
