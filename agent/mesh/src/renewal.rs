//! Certificate renewal before expiry, and updates of the trust bundle.
//!
//! Every daemon runs [`keep_renewed`] with its own [`RenewalSource`]. Most daemons request certificates from quorum
//! members over the mesh ([`QuorumRenewalSource`]); a quorum member signs its own.

mod handlers;
mod quorum_source;
mod schedule;
mod task;

pub use quorum_source::QuorumRenewalSource;

use crate::{CertificateStanding, Issued, Mesh, RenewRefused, SignedBundle, TrustState};
use futures::future::BoxFuture;
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateSigningRequestDer;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::{Notify, watch};

/// Reason why a renewal or a request for the trust bundle failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// The cluster refused the renewal.
    #[error("{0}")]
    Refused(#[from] RenewRefused),
    /// No quorum member could be reached, or none of those reached could decide.
    #[error("{reason}")]
    NotReached {
        /// Members that were tried, with the failure of each.
        reason: String,
    },
}

/// Source of new certificates and trust bundles.
pub trait RenewalSource: Send + Sync + 'static {
    /// Requests a new certificate of this process's identity for the key in `csr`.
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>>;

    /// Returns the trust bundle in force at the source, or `None` when its number is not higher than `have`.
    fn trust(&self, have: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>>;
}

/// Renewal settings. The clock is the mesh's ([`crate::MeshConfig::clock`]).
#[derive(Debug, Clone)]
pub struct RenewalSettings {
    /// Folder for the identity and, as with [`Mesh::keep_trust_in`], for every trust bundle put in force from now on.
    /// `None` keeps the identity in memory only.
    pub folder: Option<PathBuf>,
    /// Seed that spreads the renewals of a cluster's members over time: any number that differs between members.
    pub seed: u64,
    /// Interval between two requests for the trust bundle. Bundles are also pushed; the requests serve members that
    /// were offline.
    pub trust_request_interval: Duration,
    /// First wait after a failure; doubles up to `max_retry`.
    pub min_retry: Duration,
    /// Longest wait after failures.
    pub max_retry: Duration,
}

impl RenewalSettings {
    /// Settings that the daemons run with: bundle requests every 600 s, retries after 30 s to 900 s.
    pub fn new(folder: Option<PathBuf>, seed: u64) -> Self {
        Self {
            folder,
            seed,
            trust_request_interval: Duration::from_secs(600),
            min_retry: Duration::from_secs(30),
            max_retry: Duration::from_secs(900),
        }
    }
}

/// State of this process's certificate and its renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalState {
    /// Issue time of the certificate in force.
    pub issued_at: UnixMillis,
    /// Expiry time of the certificate in force.
    pub expires_at: UnixMillis,
    /// Time of the next renewal attempt. The far future when the certificate is revoked.
    pub next_try_at: UnixMillis,
    /// Number of renewals since the process started.
    pub renewals: u64,
    /// Last error, while it is unresolved.
    pub last_error: Option<String>,
    /// Number of the trust bundle in force; 0 without a bundle.
    pub trust_number: u64,
    /// Standing of the certificate under the trust bundle in force.
    pub standing: CertificateStanding,
}

impl RenewalState {
    /// Returns the health reason of a certificate that needs the operator's attention at `now`. Such a certificate is
    /// past 5/6 of its life (renewal begins at 2/3), expired, revoked or no longer trusted.
    pub fn health_reason(&self, now: UnixMillis) -> Option<&'static str> {
        let life = self.expires_at.since(self.issued_at);
        match self.standing {
            CertificateStanding::Revoked => Some("certificate.revoked"),
            CertificateStanding::Untrusted => Some("certificate.untrusted"),
            _ if now > self.expires_at => Some("certificate.expired"),
            _ if now >= self.issued_at.after(life / 6 * 5) => Some("certificate.expiring"),
            _ => None,
        }
    }

    fn of(mesh: TrustState, issued_at: UnixMillis, expires_at: UnixMillis) -> Self {
        Self {
            issued_at,
            expires_at,
            next_try_at: issued_at,
            renewals: 0,
            last_error: None,
            trust_number: mesh.number,
            standing: mesh.standing,
        }
    }
}

/// Handle on a running renewal. The renewal ends with its mesh; dropping the handle does not stop it.
#[derive(Debug, Clone)]
pub struct Renewal {
    state: watch::Receiver<RenewalState>,
    wake: Arc<Notify>,
}

impl Renewal {
    /// Returns the current renewal state.
    pub fn state(&self) -> RenewalState {
        self.state.borrow().clone()
    }
    /// Subscribes to changes of the renewal state.
    pub fn watch(&self) -> watch::Receiver<RenewalState> {
        self.state.clone()
    }
    /// Requests the trust bundle now, and ends the wait for a retry of the renewal. For callers that have been notified
    /// of a change.
    pub fn refresh_now(&self) {
        self.wake.notify_one();
    }
}

/// Keeps the certificate and trust bundle of `mesh` up to date until the mesh ends.
///
/// - Requests the trust bundle at once and then at regular intervals.
/// - Requests a certificate for a new key at 2/3 of the present certificate's life, give or take 5 % of that life. When
///   a bundle names another issuing authority, renewal follows within minutes.
/// - Puts the new certificate in force and saves it.
///
/// Retries wait longer after each failure. Must run inside a tokio runtime. The renewal does not keep the mesh alive.
pub fn keep_renewed(mesh: &Mesh, source: impl RenewalSource, settings: RenewalSettings) -> Renewal {
    let core = mesh.core();
    if let Some(folder) = &settings.folder {
        core.keep_trust_in(folder);
    }
    let first = RenewalState::of(mesh.trust_state(), mesh.issued_at(), mesh.expires_at());
    let (sender, state) = watch::channel(first);
    let look = Arc::new(Notify::new());
    let task = task::RenewalTask::new(core, Arc::new(source), settings, sender, look.clone());
    let cancel = core.cancel.clone();
    core.tasks
        .spawn(async move { cancel.run_until_cancelled(task.run()).await });
    Renewal { state, wake: look }
}
