//! New certificates before the old ones end, and the trust bundle of the day.
//!
//! Every daemon runs [`keep_renewed`]. How a certificate is come by is the daemon's: most ask
//! quorum members over the mesh ([`AskMembers`]); a quorum member signs its own.

mod ask;
mod schedule;
mod task;

pub use ask::AskMembers;

use crate::{Issued, Mesh, SignedBundle, Standing, TrustState};
use futures::future::BoxFuture;
use lattice_quorum_types::UnixMillis;
use rustls_pki_types::CertificateSigningRequestDer;
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::{Notify, watch};

/// Why a member was given no new certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RenewRefused {
    /// The identity is no member any more, or the certificate it asked with is revoked.
    #[error("{reason}")]
    NotMember {
        /// In words.
        reason: String,
    },
    /// The request is not well formed.
    #[error("the renewal request is not valid: {reason}")]
    Invalid {
        /// What is wrong.
        reason: String,
    },
    /// The member cannot decide now; another one may.
    #[error("renewal is not possible at present: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// Why a renewal or a question for the trust bundle brought nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// The cluster said no.
    #[error("{0}")]
    Refused(#[from] RenewRefused),
    /// Nobody could be asked.
    #[error("{reason}")]
    NotReached {
        /// Who was tried, and what happened.
        reason: String,
    },
}

/// Where new certificates and bundles come from.
pub trait RenewalSource: Send + Sync + 'static {
    /// A new certificate of this process's identity for the key in `csr`.
    fn renew(
        &self,
        csr: CertificateSigningRequestDer<'static>,
    ) -> BoxFuture<'_, Result<Issued, RenewError>>;

    /// The trust bundle in force elsewhere; `None` when it has no higher number than `have`.
    fn trust(&self, have: u64) -> BoxFuture<'_, Result<Option<SignedBundle>, RenewError>>;
}

/// How renewal goes about it. The clock is the mesh's ([`crate::MeshConfig::clock`]).
#[derive(Debug, Clone)]
pub struct RenewalSettings {
    /// Where the identity is kept, and every bundle that is put in force from now on, as with
    /// [`Mesh::keep_trust_in`]; `None` keeps the identity in memory alone.
    pub folder: Option<PathBuf>,
    /// Spreads the members of a cluster over time. Any number that differs between them.
    pub seed: u64,
    /// Between two questions for the trust bundle. It is pushed as well; this is for who was away.
    pub ask_trust_every: Duration,
    /// First wait after a failure; doubles up to `max_retry`.
    pub min_retry: Duration,
    /// Longest wait after failures.
    pub max_retry: Duration,
}

impl RenewalSettings {
    /// What the daemons run with.
    pub fn new(folder: Option<PathBuf>, seed: u64) -> Self {
        Self {
            folder,
            seed,
            ask_trust_every: Duration::from_secs(600),
            min_retry: Duration::from_secs(30),
            max_retry: Duration::from_secs(900),
        }
    }
}

/// How things stand with this process's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalState {
    /// When the certificate in force was issued.
    pub issued_at: UnixMillis,
    /// When it ends.
    pub expires_at: UnixMillis,
    /// When the next one is asked for; the end of time when it is revoked.
    pub next_try_at: UnixMillis,
    /// How often there was a new one.
    pub renewals: u64,
    /// What went wrong last; `None` when nothing is outstanding.
    pub last_error: Option<String>,
    /// Number of the trust bundle in force; 0 without one.
    pub trust_number: u64,
    /// How the certificate stands in it.
    pub standing: Standing,
}

impl RenewalState {
    /// The health reason of a certificate that needs somebody's attention at `now`: past 5/6 of
    /// its life (renewal begins at 2/3), ended, or not trusted any more.
    pub fn health_reason(&self, now: UnixMillis) -> Option<&'static str> {
        let life = self.expires_at.since(self.issued_at);
        match self.standing {
            Standing::Revoked => Some("certificate.revoked"),
            Standing::Untrusted => Some("certificate.untrusted"),
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

/// A running renewal. It ends with its mesh, also when this is dropped.
#[derive(Debug, Clone)]
pub struct Renewal {
    state: watch::Receiver<RenewalState>,
    look: Arc<Notify>,
}

impl Renewal {
    /// How things stand.
    pub fn state(&self) -> RenewalState {
        self.state.borrow().clone()
    }
    /// Every change of it.
    pub fn watch(&self) -> watch::Receiver<RenewalState> {
        self.state.clone()
    }
    /// Asks for the trust bundle now and looks whether renewal is due, for who has heard news or
    /// waits for a retry.
    pub fn look_now(&self) {
        self.look.notify_one();
    }
}

/// Keeps `mesh`'s certificate and trust up to date until the mesh ends: asks for the trust bundle
/// at once and then regularly; asks for a new certificate (of a new key) at 2/3 of its life, 5 %
/// of it sooner or later, or within minutes of a bundle by which another authority issues; saves
/// and rotates. Failures are tried again, more and more slowly. Must run inside a tokio runtime.
///
/// It does not keep the mesh alive.
pub fn keep_renewed(mesh: &Mesh, source: impl RenewalSource, settings: RenewalSettings) -> Renewal {
    let core = mesh.core();
    if let Some(folder) = &settings.folder {
        core.keep_trust_in(folder);
    }
    let first = RenewalState::of(mesh.trust_state(), mesh.issued_at(), mesh.expires_at());
    let (sender, state) = watch::channel(first);
    let look = Arc::new(Notify::new());
    let task = task::Task::new(core, Arc::new(source), settings, sender, look.clone());
    let cancel = core.cancel.clone();
    core.tasks
        .spawn(async move { cancel.run_until_cancelled(task.run()).await });
    Renewal { state, look }
}
