//! External dependencies of a member: credentials, issuing key and clock.

use crate::{Config, Settings, StartError, load_authorities};
use lattice_mesh::{Authority, Clock, Credentials, Identity, Role, SystemClock};
use std::{fmt, sync::Arc};

/// External dependencies of a member; tests and the demonstration replace them.
pub struct Edges {
    /// Certificate `spiffe://<cluster>/quorum/<id>` and its key.
    pub credentials: Credentials,
    /// Issuing key at the start; [`crate::App::hold`] replaces it by any number of keys. A member without a key issues
    /// nothing, and requesting processes turn to another member.
    pub authority: Option<Arc<Authority>>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edges({})", self.credentials.identity())
    }
}

impl Edges {
    /// Loads the files that the configuration names, and uses the host's clock.
    ///
    /// # Errors
    /// A file is missing or cannot be used.
    pub fn from_config(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            credentials: Credentials::load(&config.credentials)?,
            authority: authorities(config)?.into_iter().next(),
            clock: Arc::new(SystemClock),
        })
    }

    /// Checks that the credentials belong to the member that the settings describe.
    ///
    /// # Errors
    /// The certificate is another process's.
    pub fn check(&self, settings: &Settings) -> Result<(), StartError> {
        check_identity(settings, self.credentials.identity())
    }
}

/// Loads all issuing keys that the configuration names, the present authority first.
///
/// # Errors
/// One of the keys cannot be used.
pub fn authorities(config: &Config) -> Result<Vec<Arc<Authority>>, StartError> {
    let folder = config.enrolment.authority.as_deref();
    Ok(folder.map_or_else(|| Ok(Vec::new()), load_authorities)?)
}

/// Checks that the certificate is this member's.
pub(crate) fn check_identity(settings: &Settings, found: &Identity) -> Result<(), StartError> {
    let id = settings.id.to_string();
    if found.cluster() == settings.cluster && found.role() == Role::Quorum && found.id() == id {
        return Ok(());
    }
    Err(StartError::WrongIdentity {
        found: found.uri(),
        expected: format!("spiffe://{}/quorum/{id}", settings.cluster),
    })
}
