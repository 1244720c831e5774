//! External dependencies of a member: credentials, issuing key and clock.

use crate::{Config, Settings, StartError, load_authorities};
use lattice_mesh::{Authority, Clock, Credentials, Identity, Role, SystemClock};
use lattice_quorum_types::VoterId;
use std::{fmt, sync::Arc};

/// External dependencies of a member; tests and the demo replace them.
pub struct Edges {
    /// Certificate `spiffe://<cluster>/quorum/<id>` and its key.
    pub credentials: Credentials,
    /// CA key at the start, if any; [`crate::App::set_issuing_keys`] replaces it with any number of keys. A member
    /// without a key issues no certificates, and processes request certificates from another member.
    pub authority: Option<Arc<Authority>>,
    /// Clock of the member and of its mesh endpoint.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Edges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edges({})", self.credentials.identity())
    }
}

impl Edges {
    /// Loads the credentials and the first CA key that the configuration names, and uses the host's clock.
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

/// Loads all CA keys in the configured folder: the folder's own key first, if any, then those of its subfolders by
/// name. Returns an empty list if no folder is configured.
///
/// # Errors
/// The folder contains no key, or one of the keys cannot be used.
pub fn authorities(config: &Config) -> Result<Vec<Arc<Authority>>, StartError> {
    let folder = config.enrolment.authority.as_deref();
    Ok(folder.map_or_else(|| Ok(Vec::new()), load_authorities)?)
}

/// Checks that `found`, the identity in a certificate, is the identity of the member that the settings describe.
pub(crate) fn check_identity(settings: &Settings, found: &Identity) -> Result<(), StartError> {
    check_names(&settings.cluster, settings.id, found)
}

/// As [`check_identity`], with the names of the member.
pub(crate) fn check_names(cluster: &str, id: VoterId, found: &Identity) -> Result<(), StartError> {
    let id = id.to_string();
    if found.cluster() == cluster && found.role() == Role::Quorum && found.id() == id {
        return Ok(());
    }
    Err(StartError::WrongIdentity {
        found: found.uri(),
        expected: format!("spiffe://{cluster}/quorum/{id}"),
    })
}
