//! Interface through which the synchronisation uses the cluster: usage records, usage, projects and limits.

use async_trait::async_trait;
use lattice_ledger::{Usage, UsageByKind};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName,
    accounting_month::{AccountingMonth, MonthDifferences},
    budget::Credit,
    command::Principal,
    limit::{LimitPatch, Limits},
    usage_record::{UsagePeriod, UsageRecord, UsageRecordsHead},
};
use std::collections::{BTreeMap, BTreeSet};

/// Error of an operation on the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The quorum does not answer, or another control holds the lease.
    #[error("{reason}")]
    Unavailable {
        /// Cause of the failure.
        reason: String,
    },
    /// The quorum refused the command.
    #[error("{text}")]
    Refused {
        /// Complete text of the refusal, with one block per violated level.
        text: String,
    },
}

/// Usage totals, and how far they reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Usage by project and vCluster.
    pub used: BTreeMap<(ProjectPath, VclusterName), UsageByKind>,
    /// Number of the usage record up to which the totals are complete.
    pub through: u64,
    /// Time up to which usage is counted: the end of the queried time, or an earlier time up to which the ledger is
    /// current. Counted further, the usage of allocations that have just ended would be too high.
    pub until: UnixMillis,
}

/// Hardware of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHardware {
    /// GPU count; 1 if unknown.
    pub gpus: u32,
    /// GPU model, if known.
    pub gpu_model: Option<String>,
}

/// Interface to the cluster that is accounted. Implementations must make every change under a lease.
#[async_trait]
pub trait AccountedCluster: Send + Sync {
    /// Cluster name.
    fn cluster(&self) -> &str;
    /// Current time.
    fn now(&self) -> UnixMillis;
    /// Usage records with numbers above `after`, oldest first and at most `limit`, and the present head of all records.
    /// Empty if there are no more. Records before `since` may be left out.
    async fn usage_records(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> Result<(Vec<UsageRecord>, UsageRecordsHead), ClusterError>;
    /// Acknowledges that the accounting system has the usage records up to `through`, except `dropped` events that it
    /// will never get.
    async fn acknowledge(&self, through: u64, dropped: u64) -> Result<(), ClusterError>;
    /// Ended months with open or accepted differences.
    async fn months(&self) -> Result<BTreeMap<AccountingMonth, MonthDifferences>, ClusterError>;
    /// Notes whether totals of an ended month differ. An accepted month stays accepted.
    async fn note_open_month(
        &self,
        month: AccountingMonth,
        is_open: bool,
    ) -> Result<(), ClusterError>;
    /// Accepts the remaining differences of an ended month in the name of `by`; `differences` is their number.
    async fn accept_month(
        &self,
        month: AccountingMonth,
        by: &Principal,
        differences: u32,
    ) -> Result<(), ClusterError>;
    /// Usage from `from` until before `until`, but not beyond the time up to which the ledger is current; `None` while
    /// usage is still being read.
    fn totals(&self, from: UnixMillis, until: UnixMillis) -> Option<UsageTotals>;
    /// Usage of an ended allocation over all attempts; `uses` is the usage of its last attempt.
    fn consumed(&self, allocation: AllocationId, uses: &[UsagePeriod]) -> Usage;
    /// Hardware of a node.
    fn node_hardware(&self, node: &NodeId) -> NodeHardware;
    /// All projects, including tenants.
    fn projects(&self) -> BTreeSet<ProjectPath>;
    /// A tenant's own limits; `None` if the tenant does not exist.
    fn limits(&self, tenant: &ProjectPath) -> Option<Limits>;
    /// Stores the credits of tenants from the accounting system.
    async fn note_credits(
        &self,
        credits: BTreeMap<ProjectPath, Credit>,
    ) -> Result<(), ClusterError>;
    /// Sets a tenant's hard limits to those of the accounting system.
    async fn set_limits(
        &self,
        tenant: &ProjectPath,
        limits: LimitPatch,
    ) -> Result<(), ClusterError>;
}
