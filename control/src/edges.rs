//! External dependencies of a control; tests and the demo replace them.

use crate::{
    bmc::BmcPlan,
    config::{Config, Settings},
    http::{Auth, oidc::Issuer},
    inputs::Sources,
    join,
    start_error::StartError,
    tls,
};
use lattice_host::private_file::{self, PrivateFileError};
use lattice_mesh::{Clock, Credentials, CredentialsError, Identity, Pin, Role, SystemClock};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};
use std::{fmt, sync::Arc};

/// External dependencies of a control; tests and the demo replace them.
pub struct Edges {
    /// Certificate `spiffe://<cluster>/control/<name>` and its key.
    pub credentials: Credentials,
    /// Clock of this control.
    pub clock: Arc<dyn Clock>,
    /// Certificate and key of the HTTPS interfaces.
    pub https: HttpsIdentity,
    /// Content of the tokens file.
    pub tokens: SecretString,
}

/// Certificate and key of the TLS port.
pub struct HttpsIdentity {
    /// Certificate chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key of the leaf certificate.
    pub key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edges({})", self.credentials.identity())
    }
}

impl HttpsIdentity {
    /// Parses certificates and key from PEM.
    ///
    /// # Errors
    /// Returns an error for text without a certificate or key.
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
    /// Loads the files named by the configuration, with the host's clock.
    ///
    /// # Errors
    /// Returns an error when a file is missing or cannot be used.
    pub fn from_config(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            credentials: Credentials::load(&config.credentials)?,
            clock: Arc::new(SystemClock),
            https: tls::load(&config.https)?,
            tokens: read_tokens(config)?,
        })
    }

    /// CA that join tokens pin for new components: the CA that issued this control's own certificate.
    pub(crate) fn authority(&self) -> Result<Pin, StartError> {
        let roots = self.credentials.roots();
        let own = roots
            .iter()
            .find(|root| self.credentials.chain().contains(root));
        let root = own.or(roots.first()).ok_or(CredentialsError::NoRoots)?;
        Ok(Pin::of(root))
    }
}

/// Reads every file that the configuration names, and changes nothing.
///
/// # Errors
/// Returns an error for the first file that is missing or cannot be used, or for a certificate of another component.
pub fn check_files(config: &Config, settings: &Settings) -> Result<(), StartError> {
    match join::is_due(config) {
        Some(join) => drop(join::read_token(&join.token)?),
        None => {
            let credentials = Credentials::load(&config.credentials)?;
            check_identity(settings, credentials.identity())?;
        }
    }
    read_tokens(config)?;
    settings.bmcs.as_deref().map(BmcPlan::load).transpose()?;
    Sources::new(&settings.scheduling)?.check_files()?;
    settings.oidc.as_ref().map(Issuer::new).transpose()?;
    tls::server_config(tls::load(&config.https)?)?;
    Ok(())
}

/// Checks that the certificate belongs to a control of this cluster.
pub(crate) fn check_identity(settings: &Settings, found: &Identity) -> Result<(), StartError> {
    if found.cluster() == settings.cluster && found.role() == Role::Control {
        return Ok(());
    }
    Err(StartError::WrongIdentity {
        found: found.uri(),
        expected: format!("spiffe://{}/control/<name>", settings.cluster),
    })
}

/// Reads and validates the tokens file, and returns its text.
///
/// # Errors
/// Returns an error for a file that is missing, readable by others, or not a valid list of tokens.
pub fn read_tokens(config: &Config) -> Result<SecretString, StartError> {
    let path = &config.tokens;
    let text = private_file::read(path).map_err(|error| match error {
        PrivateFileError::Exposed(exposed) => StartError::TokensExposed(exposed),
        PrivateFileError::Unreadable { path, source } => StartError::File {
            key: "tokens",
            path,
            reason: source.to_string(),
        },
    })?;
    match Auth::parse(text.expose_secret()) {
        Ok(_) => Ok(text),
        Err(source) => Err(StartError::TokensFile {
            path: path.clone(),
            source,
        }),
    }
}
