//! What an accountant needs to know of the cluster, and what it may do to it.

use crate::ledger::{Both, Used};
use async_trait::async_trait;
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName,
    budget::Credit,
    fact::{Fact, FactsHead, Use},
    limit::{LimitPatch, Limits},
};
use std::collections::{BTreeMap, BTreeSet};

/// Why the cluster did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// The quorum does not answer, or the lease is somebody else's by now.
    #[error("{reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// It said no.
    #[error("{text}")]
    Refused {
        /// The whole refusal, one violated level per line.
        text: String,
    },
}

/// How much was used, and what that rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// By project and vCluster.
    pub used: BTreeMap<(ProjectPath, VclusterName), Both>,
    /// Every fact up to this number is in it.
    pub through: u64,
}

/// What a node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// GPUs: one where nobody knows.
    pub gpus: u32,
    /// Their model, where somebody does.
    pub gpu_model: Option<String>,
}

/// The cluster, as an accountant sees it. Everything that changes it is done under the lease `accounting`.
#[async_trait]
pub trait Site: Send + Sync {
    /// The cluster's name.
    fn cluster(&self) -> &str;
    /// Now.
    fn now(&self) -> UnixMillis;
    /// Facts behind this number, oldest first, and where they stand; none: there are no more. Those before `since` may
    /// be left out.
    async fn facts(
        &self,
        after: u64,
        limit: u32,
        since: UnixMillis,
    ) -> Result<(Vec<Fact>, FactsHead), SiteError>;
    /// The accounting system has the facts up to this one, or never will have so many of them.
    async fn acknowledge(&self, through: u64, dropped: u64) -> Result<(), SiteError>;
    /// What was used from `from` on and before `until`; `None` while that is still being read.
    fn totals(&self, from: UnixMillis, until: UnixMillis) -> Option<Totals>;
    /// What an allocation used that ended with these uses.
    fn consumed(&self, allocation: AllocationId, uses: &[Use]) -> Used;
    /// What a node has.
    fn machine(&self, node: &NodeId) -> Machine;
    /// Every project, tenants too.
    fn projects(&self) -> BTreeSet<ProjectPath>;
    /// A tenant's own limits; `None`: there is none of that name.
    fn limits(&self, tenant: &ProjectPath) -> Option<Limits>;
    /// Takes down what the accounting system says of tenants.
    async fn note_credits(&self, credits: BTreeMap<ProjectPath, Credit>) -> Result<(), SiteError>;
    /// Sets a tenant's hard limits, as the accounting system has them.
    async fn set_limits(&self, tenant: &ProjectPath, limits: LimitPatch) -> Result<(), SiteError>;
}

/// Where an accountant is in its work. Tests stop it there; nothing else does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Before events are written to the journal.
    BeforeJournal,
    /// When some bytes of them are.
    InJournal,
    /// When they are on the disk.
    AfterJournal,
    /// Before a new file of the journal is begun.
    BeforeRotate,
    /// When it is.
    AfterRotate,
    /// Before something is sent.
    BeforeSend,
    /// When it was, and nothing was written down of that.
    AfterSend,
    /// Before the quorum is told.
    BeforeAcknowledge,
    /// When it was told, and the journal still has it.
    AfterAcknowledge,
    /// Between two files of the journal that go.
    InForget,
}

impl Step {
    /// All of them, in the order of a round.
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

/// Told of every step.
pub trait Steps: Send + Sync {
    /// It is here.
    fn at(&self, _step: Step) {}
}

/// Nobody is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Steps for Unwatched {}
