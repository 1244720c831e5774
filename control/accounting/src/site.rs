//! Interface of an accountant to the cluster.

use crate::ledger::{Both, Used};
use async_trait::async_trait;
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName,
    budget::Credit,
    fact::{Fact, FactsHead, Use},
    limit::{LimitPatch, Limits},
};
use std::collections::{BTreeMap, BTreeSet};

/// Error of an operation on the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// The quorum does not answer, or another control holds the lease.
    #[error("{reason}")]
    Unavailable {
        /// Cause of the failure.
        reason: String,
    },
    /// The quorum refused the command.
    #[error("{text}")]
    Refused {
        /// The whole refusal, one violated level per line.
        text: String,
    },
}

/// Usage totals, and the records that they include.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Usage by project and vCluster.
    pub used: BTreeMap<(ProjectPath, VclusterName), Both>,
    /// Number of the usage record up to which the totals are complete.
    pub through: u64,
}

/// Hardware of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// GPU count; 1 if unknown.
    pub gpus: u32,
    /// GPU model, if known.
    pub gpu_model: Option<String>,
}

/// Interface of an accountant to the cluster. Every change is made under the lease `accounting`.
#[async_trait]
pub trait Site: Send + Sync {
    /// Cluster name.
    fn cluster(&self) -> &str;
    /// Current time.
    fn now(&self) -> UnixMillis;
    /// Usage records after this number, oldest first, with their present head; empty if there are no more. Records
    /// before `since` may be left out.
    async fn facts(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> Result<(Vec<Fact>, FactsHead), SiteError>;
    /// Acknowledges that the accounting system has the usage records up to `through`. `dropped` events of them will
    /// never reach it.
    async fn acknowledge(&self, through: u64, dropped: u64) -> Result<(), SiteError>;
    /// Usage from `from` until before `until`; `None` while usage is still being read.
    fn totals(&self, from: UnixMillis, until: UnixMillis) -> Option<Totals>;
    /// Usage of an allocation that ended with these uses.
    fn consumed(&self, allocation: AllocationId, uses: &[Use]) -> Used;
    /// Hardware of a node.
    fn machine(&self, node: &NodeId) -> Machine;
    /// All projects, including tenants.
    fn projects(&self) -> BTreeSet<ProjectPath>;
    /// A tenant's own limits; `None` if the tenant does not exist.
    fn limits(&self, tenant: &ProjectPath) -> Option<Limits>;
    /// Stores the credits of tenants from the accounting system.
    async fn note_credits(&self, credits: BTreeMap<ProjectPath, Credit>) -> Result<(), SiteError>;
    /// Sets a tenant's hard limits to those of the accounting system.
    async fn set_limits(&self, tenant: &ProjectPath, limits: LimitPatch) -> Result<(), SiteError>;
}

/// Point in an accountant's round at which tests can stop it; without effect otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Before events are written to the journal.
    BeforeJournal,
    /// After a part of the events' bytes is written.
    InJournal,
    /// After the events are on disk.
    AfterJournal,
    /// Before a new journal file is created.
    BeforeRotate,
    /// After a new journal file is created.
    AfterRotate,
    /// Before a request is sent.
    BeforeSend,
    /// After a request was sent, and before its result is stored.
    AfterSend,
    /// Before usage records are acknowledged to the quorum.
    BeforeAcknowledge,
    /// After usage records are acknowledged, while the journal still has their events.
    AfterAcknowledge,
    /// Before an acknowledged journal file is removed.
    InForget,
}

impl Step {
    /// All steps, in the order of a round.
    pub const ALL: [Step; 10] = [
        Step::BeforeJournal,
        Step::InJournal,
        Step::AfterJournal,
        Step::BeforeRotate,
        Step::AfterRotate,
        Step::BeforeSend,
        Step::AfterSend,
        Step::BeforeAcknowledge,
        Step::AfterAcknowledge,
        Step::InForget,
    ];
}

/// Observer of the steps of an accountant.
pub trait Steps: Send + Sync {
    /// Called when the accountant reaches a step.
    fn at(&self, _step: Step) {}
}

/// Observer without effect.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Steps for Unwatched {}
