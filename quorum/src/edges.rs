//! What a member takes from outside.

use crate::{Config, Settings, StartError};
use lattice_mesh::{Authority, Clock, Credentials, Identity, Role, SystemClock};
use std::{fmt, sync::Arc};

/// What a member takes from outside; tests and the demonstration replace it.
pub struct Edges {
    /// Certificate `spiffe://<cluster>/quorum/<id>` and its key.
    pub credentials: Credentials,
    /// The issuing key. Without it this member enrols nobody.
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
        let authority = config.enrolment.authority.as_deref();
        Ok(Self {
            credentials: Credentials::load(&config.credentials)?,
            authority: authority.map(Authority::load).transpose()?.map(Arc::new),
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
