//! TLS port: certificate, key and socket.

use crate::start_error::StartError;
use lattice_host::private_file::{self, PrivateFileError};
use lattice_http::HttpsIdentity;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use secrecy::ExposeSecret as _;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

/// Files of the certificate and the key of the TLS port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsFiles {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key of the certificate, PEM; other users must not be able to read it.
    pub key: PathBuf,
}

/// Reads the certificate and the key.
pub(crate) fn load(files: &HttpsFiles) -> Result<HttpsIdentity, StartError> {
    Ok(HttpsIdentity {
        chain: load_chain(&files.certificate)?,
        key: load_key(&files.key)?,
    })
}

/// Reads the certificate chain.
pub(crate) fn load_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| failed("https.certificate", path, e.to_string()))
}

/// Reads the private key.
pub(crate) fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, StartError> {
    let text = private_file::read(path).map_err(|error| match error {
        PrivateFileError::Unreadable { source, .. } => {
            failed("https.key", path, source.to_string())
        }
        PrivateFileError::Exposed(exposed) => StartError::KeyExposed(exposed),
    })?;
    PrivateKeyDer::from_pem_slice(text.expose_secret().as_bytes())
        .map_err(|e| failed("https.key", path, e.to_string()))
}

fn failed(key: &'static str, path: &Path, reason: String) -> StartError {
    StartError::File {
        key,
        path: path.to_owned(),
        reason,
    }
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
