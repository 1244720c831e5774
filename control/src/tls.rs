//! TLS port: certificate and socket.

use crate::{config::HttpsConfig, start_error::StartError};
use lattice_http::HttpsIdentity;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
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
