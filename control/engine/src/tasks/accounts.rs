//! Accounting reconciler: synchronizes the books of an external accounting system with the cluster.
//!
//! It runs only where a site configures accounting. Of several controls, the one that dispatches runs it. Its progress
//! is in the quorum, so that another control can take over.

use crate::{
    core::Core,
    error::ProposeError,
    tasks::reconciler::{Pace, Reconciler},
    view::NodeEntry,
};
use async_trait::async_trait;
use lattice_accounting::{
    accountant::Accountant,
    config::Settings,
    ledger::{Ledger, UNKNOWN_GPUS, Used},
    secret::{SecretRef, Secrets},
    site::{Machine, Site, SiteError, Totals, Unwatched},
    status::{Difference, Status},
    waldur::Waldur,
};
use lattice_quorum_types::{
    AllocationId, Command, NodeId, ProjectPath, UnixMillis,
    budget::{Credit, SoftPatch},
    command::{Fence, Power, Principal},
    fact::{Fact, FactsHead, Use},
    limit::{LimitPatch, Limits},
    node::Lifecycle,
    view::{Answer, Query},
};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// Principal under which decisions of the accounting system are proposed.
const ACCOUNTING: &str = "accounting:waldur";
/// Age at which the cached webhook secret is read again.
const SECRET_AGE: Duration = Duration::from_secs(60);
/// Time after the start during which no totals are reported while the GPU count of any node is unknown. A node without
/// a known GPU count counts as one GPU, and Waldur totals are never lowered.
const SETTLES_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of queued reconciliation requests.
const MOST_ASKED: usize = 8;

/// Interface between the API and the accountant. Absent where accounting is not configured.
#[derive(Debug)]
pub struct Desk {
    settings: Settings,
    http: reqwest::Client,
    secrets: Secrets,
    status: Mutex<Arc<Mutex<Status>>>,
    asked: Mutex<VecDeque<ReconcileRequest>>,
    wake: Notify,
    hook: tokio::sync::Mutex<Option<(Instant, SecretString)>>,
}

/// A requested reconciliation.
#[derive(Debug)]
struct ReconcileRequest {
    since: UnixMillis,
    until: UnixMillis,
    only_look: bool,
    answer: oneshot::Sender<Result<Vec<Difference>, String>>,
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

impl Desk {
    pub fn new(settings: Settings, http: reqwest::Client) -> Self {
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

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Status of the accountant. On a control that does not act, the last status it had.
    pub fn status(&self) -> Status {
        let status = self.status.lock().clone();
        let status = status.lock();
        status.clone()
    }

    /// Wakes the accountant at once after an event in the accounting system.
    pub fn looks_now(&self) {
        self.wake.notify_one();
    }

    /// Compares totals and corrects them, or only compares with `only_look`.
    pub async fn reconcile(
        &self,
        since: UnixMillis,
        until: UnixMillis,
        only_look: bool,
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
                only_look,
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

    fn take(&self) -> Option<ReconcileRequest> {
        let mut asked = self.asked.lock();
        asked.pop_front()
    }
}

/// Reconciler that runs the accountant.
pub struct Accounts {
    desk: Arc<Desk>,
    site: Arc<ControlSite>,
    accountant: Accountant,
}

impl Accounts {
    pub fn new(core: Arc<Core>, desk: Arc<Desk>) -> Self {
        Self::since(Instant::now(), core, desk)
    }

    /// Creates the reconciler for a control that has received node state since `began`.
    fn since(began: Instant, core: Arc<Core>, desk: Arc<Desk>) -> Self {
        let site = Arc::new(ControlSite {
            core,
            fence: Mutex::default(),
            began,
        });
        let accountant = Self::accountant(&desk, &site);
        Self {
            desk,
            site,
            accountant,
        }
    }

    fn accountant(desk: &Desk, site: &Arc<ControlSite>) -> Accountant {
        let settings = desk.settings.clone();
        let waldur = Waldur::new(
            desk.http.clone(),
            settings.api.clone(),
            desk.secrets.clone(),
            settings.token.clone(),
        );
        let accountant = Accountant::new(site.clone(), waldur, settings, Arc::new(Unwatched));
        *desk.status.lock() = accountant.status();
        accountant
    }
}

impl Reconciler for Accounts {
    const NAME: &'static str = "accounting";

    fn pace(&self) -> Pace {
        let interval = self.desk.settings.interval;
        Pace {
            period: interval,
            spacing: interval,
        }
    }

    async fn pass(&mut self, fence: Fence) {
        self.site.acts_under(fence);
        while let Some(asked) = self.desk.take() {
            let ReconcileRequest {
                since,
                until,
                only_look,
                answer,
            } = asked;
            let done = self.accountant.reconcile(since, until, only_look).await;
            let _ = answer.send(done.map_err(|error| error.to_string()));
        }
        self.accountant.round().await;
    }

    /// Discards pending requests and the accountant. The control that acts next keeps its own journal and reports its
    /// progress to the quorum.
    fn forget(&mut self) {
        while self.desk.take().is_some() {}
        if self.site.is_acting() {
            self.site.acts_no_more();
            self.accountant = Self::accountant(&self.desk, &self.site);
        }
    }

    async fn wakes(&mut self) {
        self.desk.wake.notified().await;
    }
}

/// The cluster, as this control sees it.
struct ControlSite {
    core: Arc<Core>,
    fence: Mutex<Option<Fence>>,
    /// When this control began to receive node state.
    began: Instant,
}

impl ControlSite {
    fn acts_under(&self, fence: Fence) {
        *self.fence.lock() = Some(fence);
    }

    fn acts_no_more(&self) {
        *self.fence.lock() = None;
    }

    fn is_acting(&self) -> bool {
        self.fence.lock().is_some()
    }

    async fn propose(&self, command: Command) -> Result<(), SiteError> {
        let fence = self.fence.lock().clone();
        let proposed = self.core.propose_as_service(fence, command).await;
        proposed.map(drop).map_err(|error| failed(&error))
    }
}

fn failed(error: &ProposeError) -> SiteError {
    match error {
        ProposeError::Refused(refusal) => SiteError::Refused {
            text: refusal.to_string(),
        },
        ProposeError::Unavailable(unavailable) => SiteError::Unavailable {
            reason: unavailable.to_string(),
        },
    }
}

#[async_trait]
impl Site for ControlSite {
    fn cluster(&self) -> &str {
        self.core.cluster()
    }
    fn now(&self) -> UnixMillis {
        self.core.now()
    }
    async fn facts(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> Result<(Vec<Fact>, FactsHead), SiteError> {
        let query = Query::Facts {
            after,
            limit,
            since,
        };
        let unavailable = |reason: String| SiteError::Unavailable { reason };
        match self.core.read(query).await {
            Ok(Answer::Facts(facts, head)) => Ok((facts, head)),
            Ok(_) => Err(unavailable(
                "the answer does not match the request".to_owned(),
            )),
            Err(error) => Err(unavailable(error.to_string())),
        }
    }
    async fn acknowledge(&self, through: u64, dropped: u64) -> Result<(), SiteError> {
        self.propose(Command::AcknowledgeFacts { through, dropped })
            .await
    }
    fn totals(&self, from: UnixMillis, until: UnixMillis) -> Option<Totals> {
        let view = self.core.view();
        let totals = |ledger: &Ledger| {
            let is_unknown = |(id, entry): (&NodeId, &Arc<NodeEntry>)| {
                let record = entry.record.as_ref();
                record.is_some_and(|record| record.lifecycle != Lifecycle::Retired)
                    && ledger.gpus(id).is_none()
            };
            if self.began.elapsed() < SETTLES_AFTER && view.nodes.iter().any(is_unknown) {
                return None;
            }
            Some(Totals {
                used: ledger.totals(from, until),
                through: ledger.last(),
            })
        };
        self.core.books.ask(totals).flatten()
    }
    fn consumed(&self, allocation: AllocationId, uses: &[Use]) -> Used {
        let consumed = self
            .core
            .books
            .ask(|ledger| ledger.consumed(allocation, uses));
        consumed.unwrap_or_default()
    }
    fn machine(&self, node: &NodeId) -> Machine {
        let view = self.core.view();
        let document = view
            .as_known(node)
            .and_then(|entry| entry.document.as_ref());
        let gpus = self.core.books.ask(|ledger| ledger.gpus(node)).flatten();
        Machine {
            gpus: gpus.unwrap_or(UNKNOWN_GPUS),
            gpu_model: document.and_then(|document| document.facts.gpu_model.present().cloned()),
        }
    }
    fn projects(&self) -> BTreeSet<ProjectPath> {
        self.core.view().projects.keys().cloned().collect()
    }
    fn limits(&self, tenant: &ProjectPath) -> Option<Limits> {
        let view = self.core.view();
        view.projects.get(tenant).map(|record| record.limits)
    }
    async fn note_credits(&self, credits: BTreeMap<ProjectPath, Credit>) -> Result<(), SiteError> {
        self.propose(Command::NoteCredits { credits }).await
    }
    async fn set_limits(&self, tenant: &ProjectPath, limits: LimitPatch) -> Result<(), SiteError> {
        let principal = Principal {
            name: ACCOUNTING.to_owned(),
            power: Power::Accounting,
        };
        let command = Command::UpdateTenant {
            tenant: tenant.clone(),
            limits,
            soft: SoftPatch::default(),
            force: false,
        };
        let proposed = self.core.propose(principal, None, command).await;
        proposed.map(drop).map_err(|error| failed(&error))
    }
}

#[cfg(test)]
mod tests;
