//! Founding of a quorum in one process: binds members and starts each with the addresses of all.
//!
//! For the demo and tests only: every member holds the issuing key, and its certificate comes from that key directly.
//! Members in service use credentials that an operator issued.

use crate::{App, Edges, Platform, Settings, StartError};
use lattice_mesh::{Authority, Credentials, Role, SystemClock, retry_while_in_use};
use lattice_quorum_types::VoterId;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Binds and starts quorum members that share one authority.
#[derive(Clone)]
pub struct MemberFounder {
    /// Issuing key: signs the certificates of the members and is held by each of them.
    pub authority: Arc<Authority>,
    /// Validity of the members' certificates, from the moment a member is bound.
    pub lifetime: Duration,
    /// Longest wait for an address that another socket still holds; zero fails at once.
    pub bind_timeout: Duration,
    /// Files and threads of the members.
    pub platform: Platform,
}

/// A quorum member could not be bound or started.
#[derive(Debug, thiserror::Error)]
#[error("quorum member {id} cannot be started")]
pub struct MemberStartError {
    /// Number of the member.
    pub id: VoterId,
    /// Cause.
    pub source: StartError,
}

impl MemberFounder {
    /// Creates a founder that uses the host's files and threads, and does not wait for addresses in use.
    pub fn new(authority: Arc<Authority>, lifetime: Duration) -> Self {
        Self {
            authority,
            lifetime,
            bind_timeout: Duration::ZERO,
            platform: Platform::default(),
        }
    }

    /// Founds a quorum: binds one member for each of the settings, and starts all of them.
    ///
    /// # Errors
    /// The first member that cannot be bound or started. Members that were bound before it are dropped.
    pub async fn found(
        &self,
        settings: impl IntoIterator<Item = Settings>,
    ) -> Result<Vec<App>, MemberStartError> {
        let mut members: Vec<(VoterId, App)> = Vec::new();
        for settings in settings {
            members.push((settings.id, self.bind(settings).await?));
        }
        let addresses: Vec<(VoterId, SocketAddr)> =
            members.iter().map(|(id, app)| (*id, app.addr())).collect();
        let mut started = Vec::new();
        for (id, mut app) in members {
            app.start(addresses.clone())
                .await
                .map_err(|source| MemberStartError { id, source })?;
            started.push(app);
        }
        Ok(started)
    }

    /// Binds one member with a new certificate and does not start it.
    ///
    /// # Errors
    /// The certificate cannot be issued, or as [`App::bind`].
    pub async fn bind(&self, settings: Settings) -> Result<App, MemberStartError> {
        let id = settings.id;
        self.bind_in_time(settings)
            .await
            .map_err(|source| MemberStartError { id, source })
    }

    async fn bind_in_time(&self, settings: Settings) -> Result<App, StartError> {
        let credentials = Credentials::issued_now(
            &self.authority,
            &settings.cluster,
            Role::Quorum,
            &settings.id.to_string(),
            self.lifetime,
        )?;
        let bind = || {
            let edges = Edges {
                credentials: credentials.clone(),
                authority: Some(self.authority.clone()),
                clock: Arc::new(SystemClock),
            };
            App::bind_on(self.platform.clone(), settings.clone(), edges)
        };
        retry_while_in_use(self.bind_timeout, StartError::is_address_in_use, bind).await
    }
}
