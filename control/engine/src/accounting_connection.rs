//! Connection to the accounting system: settings, status, the webhook secret, and requested reconciliations.

use lattice_quorum_types::UnixMillis;
use lattice_waldur::{
    config::AccountingSettings,
    secret::{SecretRef, Secrets},
    status::{Difference, SyncStatus},
    sync::ReconcileMode,
};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// Age at which the cached webhook secret is read again.
const SECRET_AGE: Duration = Duration::from_secs(60);
/// Maximum number of queued reconciliation requests.
const MOST_ASKED: usize = 8;

/// Connection to the accounting system, as the API uses it. Absent where accounting is not configured.
#[derive(Debug)]
pub struct AccountingConnection {
    pub(crate) settings: AccountingSettings,
    pub(crate) http: reqwest::Client,
    pub(crate) secrets: Secrets,
    pub(crate) status: Mutex<Arc<Mutex<SyncStatus>>>,
    pub(crate) asked: Mutex<VecDeque<ReconcileRequest>>,
    pub(crate) wake: Notify,
    hook: tokio::sync::Mutex<Option<(Instant, SecretString)>>,
}

/// A requested reconciliation.
#[derive(Debug)]
pub(crate) struct ReconcileRequest {
    pub(crate) since: UnixMillis,
    pub(crate) until: UnixMillis,
    pub(crate) mode: ReconcileMode,
    pub(crate) answer: oneshot::Sender<Result<Vec<Difference>, String>>,
}

/// Reason why a requested reconciliation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileError {
    /// The queue of requests is full.
    #[error("too many reconciliations are queued; try again later")]
    Busy,
    /// The reconciliation did not complete.
    #[error("{reason}")]
    Failed {
        /// Cause of the failure.
        reason: String,
    },
}

impl AccountingConnection {
    /// Connection with these settings, not used yet.
    pub fn new(settings: AccountingSettings, http: reqwest::Client) -> Self {
        let secrets = Secrets {
            http: http.clone(),
            vault: settings.vault.clone(),
        };
        Self {
            settings,
            http,
            secrets,
            status: Mutex::default(),
            asked: Mutex::default(),
            wake: Notify::new(),
            hook: tokio::sync::Mutex::default(),
        }
    }

    /// Settings of the connection.
    pub fn settings(&self) -> &AccountingSettings {
        &self.settings
    }

    /// Status of the synchronisation. Empty on a control service that does not run the synchronisation at present.
    pub fn status(&self) -> SyncStatus {
        let status = self.status.lock().clone();
        let status = status.lock();
        status.clone()
    }

    /// Wakes the reconciler at once after an event in the accounting system.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Compares the totals of all months that overlap the period with those in the accounting system, and does with the
    /// differences what `mode` requires. Waits for the reconciler.
    pub async fn reconcile(
        &self,
        since: UnixMillis,
        until: UnixMillis,
        mode: ReconcileMode,
    ) -> Result<Vec<Difference>, ReconcileError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut asked = self.asked.lock();
            if asked.len() >= MOST_ASKED {
                return Err(ReconcileError::Busy);
            }
            asked.push_back(ReconcileRequest {
                since,
                until,
                mode,
                answer,
            });
        }
        self.wake.notify_one();
        let gone = || "another control does the accounting now; try again".to_owned();
        let answer = answered.await.unwrap_or_else(|_| Err(gone()));
        answer.map_err(|reason| ReconcileError::Failed { reason })
    }

    /// Checks the secret presented by a webhook. Digests are compared, so that the duration reveals nothing about the
    /// secret.
    pub async fn knows_hook(&self, shown: &str) -> bool {
        let Some(from) = &self.settings.hook_secret else {
            return false;
        };
        match self.hook_secret(from).await {
            Some(secret) => {
                blake3::hash(shown.as_bytes()) == blake3::hash(secret.expose_secret().as_bytes())
            }
            None => false,
        }
    }

    async fn hook_secret(&self, from: &SecretRef) -> Option<SecretString> {
        let mut known = self.hook.lock().await;
        if let Some((read_at, secret)) = &*known
            && read_at.elapsed() < SECRET_AGE
        {
            return Some(secret.clone());
        }
        match self.secrets.read(from).await {
            Ok(secret) => {
                *known = Some((Instant::now(), secret.clone()));
                Some(secret)
            }
            Err(error) => {
                tracing::warn!(%error, "hook secret unreadable");
                None
            }
        }
    }

    pub(crate) fn take(&self) -> Option<ReconcileRequest> {
        let mut asked = self.asked.lock();
        asked.pop_front()
    }
}
