//! Certificate and key of the TLS port.

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{fmt, sync::Arc};

/// Certificate and key of the TLS port.
pub struct HttpsIdentity {
    /// Certificate chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key of the leaf certificate.
    pub key: PrivateKeyDer<'static>,
}

/// Certificate and key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("https: certificate and key cannot be used: {reason}")]
pub struct HttpsIdentityError {
    /// Error text of rustls.
    pub reason: String,
}

impl HttpsIdentity {
    /// Parses certificates and key from PEM.
    ///
    /// # Errors
    /// Returns an error for malformed PEM, or text without a key. Text without a certificate gives an empty chain,
    /// which [`Self::into_server_config`] rejects.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, HttpsIdentityError> {
        let unusable = |e: rustls::pki_types::pem::Error| HttpsIdentityError {
            reason: e.to_string(),
        };
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(unusable)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
        Ok(Self { chain, key })
    }

    /// Server configuration: TLS 1.2 and 1.3, HTTP/2 (required by gRPC) and HTTP/1.1.
    ///
    /// # Errors
    /// Returns an error when there is no certificate, or the key does not belong to the certificate or has an unknown
    /// type.
    pub fn into_server_config(self) -> Result<Arc<ServerConfig>, HttpsIdentityError> {
        let unusable = |e: rustls::Error| HttpsIdentityError {
            reason: e.to_string(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(self.chain, self.key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for HttpsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpsIdentity({} certificates)", self.chain.len())
    }
}
