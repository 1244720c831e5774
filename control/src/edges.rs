//! External dependencies of a control; tests and the demo replace them.

use crate::{config::Config, start_error::StartError, tls};
use lattice_host::private_file::{self, PrivateFileError};
use lattice_http::{Auth, HttpsIdentity};
use lattice_mesh::{Clock, Credentials, CredentialsError, Identity, Pin, Role, SystemClock};
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

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edges({})", self.credentials.identity())
    }
}

impl Edges {
    /// Loads the credentials, the HTTPS certificate and the tokens that the configuration names, and uses the host's
    /// clock.
    ///
    /// # Errors
    /// Returns an error when a file is missing or cannot be used.
    pub fn from_config(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            credentials: Credentials::load(&config.credentials)?,
            clock: Arc::new(SystemClock),
            https: tls::load(&config.https.files())?,
            tokens: read_tokens(config)?,
        })
    }

    /// CA that join tokens pin for new components: the one in this control's certificate chain, otherwise the first
    /// trusted CA.
    pub(crate) fn authority(&self) -> Result<Pin, StartError> {
        let roots = self.credentials.roots();
        let own = roots
            .iter()
            .find(|root| self.credentials.chain().contains(root));
        let root = own.or(roots.first()).ok_or(CredentialsError::NoRoots)?;
        Ok(Pin::of(root))
    }
}

/// Checks that the certificate belongs to a control of this cluster.
pub(crate) fn check_identity(cluster: &str, found: &Identity) -> Result<(), StartError> {
    if found.cluster() == cluster && found.role() == Role::Control {
        return Ok(());
    }
    Err(StartError::WrongIdentity {
        found: found.uri(),
        expected: format!("spiffe://{cluster}/control/<name>"),
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
