//! Accounting reconciler: synchronizes an external accounting system with the cluster.
//!
//! It runs only where a site configures accounting. Of several controls, the one that dispatches runs it. Its progress
//! is in the quorum, so that another control can take over.

use crate::{
    accounting_connection::{AccountingConnection, ReconcileRequest},
    core::Core,
    error::ProposeError,
    tasks::{
        activation::due,
        reconciler::{Reconciler, ReconcilerPace},
    },
    usage::UsageLedger,
};
use async_trait::async_trait;
use lattice_ledger::{Ledger, UNKNOWN_GPUS, Usage};
use lattice_quorum_types::{
    AllocationId, Command, NodeId, ProjectPath, UnixMillis,
    accounting_month::{AccountingMonth, MonthDifferences},
    budget::{Credit, SoftPatch},
    command::{Fence, Principal, Privilege},
    limit::{LimitPatch, Limits},
    node::Lifecycle,
    usage_record::{UsagePeriod, UsageRecord, UsageRecordsHead},
    view::{Answer, Query},
};
use lattice_view::NodeEntry;
use lattice_waldur::{
    client::WaldurClient,
    cluster::{AccountedCluster, ClusterError, NodeHardware, UsageTotals},
    step::NoObserver,
    sync::AccountingSync,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Principal under which decisions of the accounting system are proposed.
const ACCOUNTING: &str = "accounting:waldur";
/// Time after the start of this reconciler during which no totals are reported while the GPU count of any node is
/// unknown. A node with an unknown GPU count counts as one GPU. A total that is too high stays in Waldur until an
/// operator requests a reconciliation, because a round never lowers a total.
const SETTLES_AFTER: Duration = Duration::from_secs(60);

/// Reconciler that runs the synchronisation.
pub struct AccountingReconciler {
    connection: Arc<AccountingConnection>,
    cluster: Arc<ControlledCluster>,
    sync: AccountingSync,
}

impl AccountingReconciler {
    /// New [`AccountingReconciler`]; it does nothing until it is run.
    pub fn new(
        core: Arc<Core>,
        usage: Arc<UsageLedger>,
        connection: Arc<AccountingConnection>,
    ) -> Self {
        Self::since(Instant::now(), core, usage, connection)
    }

    /// Creates the reconciler for a control that has received node state since `began`.
    fn since(
        began: Instant,
        core: Arc<Core>,
        usage: Arc<UsageLedger>,
        connection: Arc<AccountingConnection>,
    ) -> Self {
        let cluster = Arc::new(ControlledCluster {
            core,
            usage,
            fence: Mutex::default(),
            began,
        });
        let sync = Self::sync(&connection, &cluster);
        Self {
            connection,
            cluster,
            sync,
        }
    }

    fn sync(connection: &AccountingConnection, cluster: &Arc<ControlledCluster>) -> AccountingSync {
        let settings = connection.settings.clone();
        let waldur = WaldurClient::new(
            cluster.cluster(),
            connection.http.clone(),
            settings.api.clone(),
            connection.secrets.clone(),
            settings.token.clone(),
        );
        let sync = AccountingSync::new(cluster.clone(), waldur, settings, Arc::new(NoObserver));
        *connection.status.lock() = sync.status();
        sync
    }
}

impl AccountingReconciler {
    /// Resolves when Waldur has an order that no round has seen; never on a control that does not act.
    async fn new_order(&self) {
        let check_in = match self.cluster.is_acting() {
            true => self.sync.order_check_in(),
            false => None,
        };
        let Some(check_in) = check_in else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(check_in).await;
            if self.sync.has_new_order().await {
                return;
            }
        }
    }
}

impl Reconciler for AccountingReconciler {
    const NAME: &'static str = "accounting";

    fn pace(&self) -> ReconcilerPace {
        let interval = self.connection.settings.interval;
        ReconcilerPace {
            period: interval,
            spacing: interval,
        }
    }

    async fn pass(&mut self, fence: Fence) {
        self.cluster.set_fence(fence);
        while let Some(asked) = self.connection.take() {
            let ReconcileRequest {
                since,
                until,
                mode,
                answer,
            } = asked;
            let done = self.sync.reconcile(since, until, mode).await;
            let _ = answer.send(done.map_err(|error| error.to_string()));
        }
        self.sync.round().await;
    }

    /// Discards pending requests and the synchronisation. The control that acts next keeps its own accounting buffer
    /// and reports its progress to the quorum.
    fn forget(&mut self) {
        while self.connection.take().is_some() {}
        if self.cluster.is_acting() {
            self.cluster.clear_fence();
            self.sync = Self::sync(&self.connection, &self.cluster);
        }
    }

    /// Also wakes for a new order of a customer, for a retry and for the last round of a month, which do not wait for the
    /// interval.
    async fn wakes(&mut self) {
        let next_round_in = match self.cluster.is_acting() {
            true => self.sync.next_round_in(),
            false => None,
        };
        let next_round_at = next_round_in.and_then(|wait| Instant::now().checked_add(wait));
        tokio::select! {
            () = self.connection.wake.notified() => {}
            () = due(next_round_at) => {}
            () = self.new_order() => {}
        }
    }
}

/// The cluster, as this control sees it.
struct ControlledCluster {
    core: Arc<Core>,
    usage: Arc<UsageLedger>,
    fence: Mutex<Option<Fence>>,
    /// When this control began to receive node state.
    began: Instant,
}

impl ControlledCluster {
    fn set_fence(&self, fence: Fence) {
        *self.fence.lock() = Some(fence);
    }

    fn clear_fence(&self) {
        *self.fence.lock() = None;
    }

    fn is_acting(&self) -> bool {
        self.fence.lock().is_some()
    }

    async fn propose(&self, command: Command) -> Result<(), ClusterError> {
        self.propose_for(self.core.service(), command).await
    }

    async fn read(&self, query: Query) -> Result<Answer, ClusterError> {
        let read = self.core.read(query).await;
        read.map_err(|error| ClusterError::Unavailable {
            reason: error.to_string(),
        })
    }

    /// Proposes a command of this principal under the lease of the reconciler.
    async fn propose_for(&self, by: Principal, command: Command) -> Result<(), ClusterError> {
        let fence = self.fence.lock().clone();
        let proposed = self.core.propose_under(by, fence, command).await;
        proposed.map(drop).map_err(|error| failed(&error))
    }
}

fn unexpected_answer() -> ClusterError {
    ClusterError::Unavailable {
        reason: "unexpected response type from the quorum".to_owned(),
    }
}

fn failed(error: &ProposeError) -> ClusterError {
    match error {
        ProposeError::Refused(refusal) => ClusterError::Refused {
            text: refusal.to_string(),
        },
        ProposeError::Unavailable(unavailable) => ClusterError::Unavailable {
            reason: unavailable.to_string(),
        },
    }
}

#[async_trait]
impl AccountedCluster for ControlledCluster {
    fn cluster(&self) -> &str {
        self.core.cluster()
    }
    fn now(&self) -> UnixMillis {
        self.core.now()
    }
    async fn usage_records(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> Result<(Vec<UsageRecord>, UsageRecordsHead), ClusterError> {
        let query = Query::UsageRecords {
            after,
            limit,
            since,
        };
        match self.read(query).await? {
            Answer::UsageRecords(facts, head) => Ok((facts, head)),
            _ => Err(unexpected_answer()),
        }
    }
    async fn acknowledge(&self, through: u64, dropped: u64) -> Result<(), ClusterError> {
        self.propose(Command::AcknowledgeUsage { through, dropped })
            .await
    }
    async fn months(&self) -> Result<BTreeMap<AccountingMonth, MonthDifferences>, ClusterError> {
        match self.read(Query::AccountingMonths).await? {
            Answer::AccountingMonths(found) => Ok(found),
            _ => Err(unexpected_answer()),
        }
    }
    async fn note_open_month(
        &self,
        month: AccountingMonth,
        is_open: bool,
    ) -> Result<(), ClusterError> {
        self.propose(Command::NoteOpenMonth { month, is_open })
            .await
    }
    async fn accept_month(
        &self,
        month: AccountingMonth,
        by: &Principal,
        differences: u32,
    ) -> Result<(), ClusterError> {
        let command = Command::AcceptMonth { month, differences };
        self.propose_for(by.clone(), command).await
    }
    fn totals(&self, from: UnixMillis, until: UnixMillis) -> Option<UsageTotals> {
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
            let until = until.min(ledger.at());
            Some(UsageTotals {
                used: ledger.totals(from, until),
                through: ledger.last(),
                until,
            })
        };
        self.usage.ask(totals).flatten()
    }
    fn consumed(&self, allocation: AllocationId, uses: &[UsagePeriod]) -> Usage {
        let consumed = self.usage.ask(|ledger| ledger.consumed(allocation, uses));
        consumed.unwrap_or_default()
    }
    fn node_hardware(&self, node: &NodeId) -> NodeHardware {
        let view = self.core.view();
        let document = view
            .as_known(node)
            .and_then(|entry| entry.document.as_ref());
        let gpus = self.usage.ask(|ledger| ledger.gpus(node)).flatten();
        NodeHardware {
            gpus: gpus.unwrap_or(UNKNOWN_GPUS),
            gpu_model: document
                .and_then(|document| document.resources.gpu_model.present().cloned()),
        }
    }
    fn projects(&self) -> BTreeSet<ProjectPath> {
        self.core.view().projects.keys().cloned().collect()
    }
    fn limits(&self, tenant: &ProjectPath) -> Option<Limits> {
        let view = self.core.view();
        view.projects.get(tenant).map(|record| record.limits)
    }
    async fn note_credits(
        &self,
        credits: BTreeMap<ProjectPath, Credit>,
    ) -> Result<(), ClusterError> {
        self.propose(Command::NoteCredits { credits }).await
    }
    async fn set_limits(
        &self,
        tenant: &ProjectPath,
        limits: LimitPatch,
    ) -> Result<(), ClusterError> {
        let principal = Principal {
            name: ACCOUNTING.to_owned(),
            privilege: Privilege::Accounting,
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
