//! What a member takes from outside.

use crate::{Config, Settings, StartError, load_authorities};
use lattice_mesh::{Authority, Clock, Credentials, Identity, Role, SystemClock};
use std::{fmt, sync::Arc};

/// What a member takes from outside; tests and the demonstration replace it.
pub struct Edges {
    /// Certificate `spiffe://<cluster>/quorum/<id>` and its key.
    pub credentials: Credentials,
    /// The issuing key; more are told with [`crate::App::hold`]. Without it this member issues
    /// nothing, and who asks it goes on to another.
    pub authority: Option<Arc<Authority>>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edges({})", self.credentials.identity())
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
            authority: authorities(config)?.into_iter().next(),
            clock: Arc::new(SystemClock),
        })
    }

    /// Whether these are the edges of the member that the settings describe.
    ///
    /// # Errors
    /// When the certificate is another process's.
    pub fn check(&self, settings: &Settings) -> Result<(), StartError> {
        check_identity(settings, self.credentials.identity())
    }
}

/// All issuing keys that the configuration names, the first one first.
///
/// # Errors
/// When one of them cannot be used.
pub fn authorities(config: &Config) -> Result<Vec<Arc<Authority>>, StartError> {
    let folder = config.enrolment.authority.as_deref();
    Ok(folder.map_or_else(|| Ok(Vec::new()), load_authorities)?)
}

/// The certificate must be this member's.
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
