//! What a control takes from outside; tests and the demonstration replace it.

use crate::{config::Config, http::Auth, join, start_error::StartError, tls};
use lattice_mesh::{Clock, Credentials, SystemClock};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};
use std::{fmt, sync::Arc};

/// What a control takes from outside; tests and the demonstration replace it.
pub struct Edges {
    /// Certificate `spiffe://<cluster>/control/<name>` and its key.
    pub credentials: Credentials,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What the interfaces show.
    pub https: HttpsIdentity,
    /// The text of the file of tokens.
    pub tokens: SecretString,
}

/// Certificate and key of the TLS port.
pub struct HttpsIdentity {
    /// Leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edges({})", self.credentials.identity())
    }
}

impl HttpsIdentity {
    /// From certificates and key in PEM.
    ///
    /// # Errors
    /// Texts that hold none.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, StartError> {
        tls::from_pem(chain, key)
    }
}

impl fmt::Debug for HttpsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpsIdentity({} certificates)", self.chain.len())
    }
}

impl Edges {
    /// What the configuration names, and the host's clock.
    ///
    /// # Errors
    /// When a file is missing or cannot be used.
    pub fn from_config(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            credentials: Credentials::load(&config.credentials)?,
            clock: Arc::new(SystemClock),
            https: tls::load(&config.https)?,
            tokens: read_tokens(config)?,
        })
    }
}

/// Reads every file that the configuration names, and changes nothing.
///
/// # Errors
/// The first file that is missing or cannot be used.
pub fn check_files(config: &Config) -> Result<(), StartError> {
    match join::is_due(config) {
        Some(join) => drop(join::read_token(&join.token)?),
        None => drop(Credentials::load(&config.credentials)?),
    }
    Auth::parse(read_tokens(config)?.expose_secret())?;
    tls::server_config(tls::load(&config.https)?)?;
    Ok(())
}

fn read_tokens(config: &Config) -> Result<SecretString, StartError> {
    let text = std::fs::read_to_string(&config.tokens).map_err(|source| StartError::File {
        key: "tokens",
        path: config.tokens.clone(),
        reason: source.to_string(),
    })?;
    Ok(text.into())
}
