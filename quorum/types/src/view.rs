//! Queries of the replicated state and their answers.

use crate::{
    Allocation, AllocationId, AllocationState, Envelope, Event, ProjectPath, Refusal, Revision,
    UnixMillis,
    accounting_month::{AccountingMonth, MonthDifferences},
    audit::{AuditEntry, AuditPage, AuditSearch},
    baseline::{Baseline, BaselinesView, VersionView},
    budget::TenantBudget,
    command::TokenGrant,
    dag::Dag,
    id::{BaselineName, DagId},
    limit::{Limits, OnLimit, Usage},
    limit_policy::SystemView,
    node::Node,
    project::Project,
    reservation::Reservation,
    rpc::Role,
    usage_record::{OpenUse, UsageRecord, UsageRecordsHead},
    vcluster::Vcluster,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A linearizable query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// The live state: project tree, nodes, and allocations that are not terminal.
    Hot,
    /// One allocation, which may be terminal.
    Allocation {
        /// Number of the allocation.
        id: AllocationId,
    },
    /// Allocations in the order of their numbers.
    Allocations {
        /// Only allocations with a higher number.
        after: AllocationId,
        /// Largest number of allocations to return.
        limit: u32,
        /// Only allocations in these states; empty: all states.
        states: Vec<AllocationState>,
        /// Only allocations of this project and of the projects below it.
        within: Option<ProjectPath>,
    },
    /// Number of allocations in each state.
    Counts,
    /// The present revision only.
    Revision,
    /// Check whether a command would be applied now. The checks are those of `apply`; nothing changes.
    Check {
        /// The command to check.
        envelope: Box<Envelope>,
    },
    /// Trusted certificate authorities and revoked certificates.
    Trust,
    /// Certificates of all names, by role and name.
    Certificates,
    /// Join tokens that can still be used.
    Tokens,
    /// Audit entries, oldest first. A page may hold fewer entries than requested; an empty page is the last one.
    Audit {
        /// Only entries with a higher number; 0 for all.
        after: u64,
        /// Largest number of entries to return.
        limit: u32,
    },
    /// All baselines in force, and the brake on automatic draining.
    Baselines,
    /// One baseline.
    Baseline {
        /// Name of the baseline.
        name: BaselineName,
        /// Version of the baseline; `None`: the version in force.
        version: Option<u32>,
    },
    /// Retained versions of a baseline.
    BaselineVersions {
        /// Name of the baseline.
        name: BaselineName,
    },
    /// Settings of the whole cluster.
    System,
    /// Audit entries that match a search.
    AuditSearch {
        /// The search.
        search: Box<AuditSearch>,
    },
    /// Headroom of a project: how many more nodes and allocations its limits permit now.
    Headroom {
        /// Path of the project.
        path: ProjectPath,
    },
    /// All vClusters with a definition or with scheduler settings, by name.
    Vclusters,
    /// All leases, by name. The lease of a scheduler is removed together with its vCluster.
    Leases,
    /// One DAG.
    Dag {
        /// Number of the DAG.
        id: DagId,
    },
    /// DAGs in the order of their numbers: running ones, and the most recent of those that ended.
    Dags {
        /// Only DAGs with a higher number.
        after: DagId,
        /// Largest number of DAGs to return.
        limit: u32,
        /// Only DAGs of this project and of the projects below it.
        within: Option<ProjectPath>,
    },
    /// All reservations, by name.
    Reservations,
    /// Tenant budgets, by tenant. Tenants without stored budget data are absent.
    Budgets,
    /// Usage records, oldest first. A page may hold fewer records than requested; an empty page is the last one.
    UsageRecords {
        /// Only records with a higher number; 0 for all.
        after: u64,
        /// Largest number of records to return.
        limit: u32,
        /// Records before this time may be left out.
        since: UnixMillis,
    },
    /// Nodes in use, each with its user and start time, and the head of the usage records.
    OpenUses,
    /// Handling of submits that do not fit the limits, by tenant. Absent tenants refuse them.
    OnLimits,
    /// Ended months with open or accepted differences of accounting.
    AccountingMonths,
}

/// Headroom of a project: how many more nodes and allocations its limits permit now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// Revision at which the headroom was computed.
    pub revision: Revision,
    /// Largest number of nodes that one more allocation could have; 0 if no further allocation fits, `None` if no level
    /// limits nodes.
    pub nodes: Option<u64>,
    /// Number of additional allocations that could hold nodes; `None` if no level limits them.
    pub allocations: Option<u64>,
    /// Levels that the limit policy checks, from the project upwards.
    pub levels: Vec<HeadroomLevel>,
}

/// One level of a [`Headroom`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadroomLevel {
    /// Path of the project or tenant.
    pub path: ProjectPath,
    /// Limits of the level.
    pub limits: Limits,
    /// Usage that counts against the limits for a request of the queried project.
    pub counted: Usage,
}

/// A trusted certificate authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// blake3 of the authority's certificate, lower-case hex.
    pub pin: String,
    /// Certificate of the authority (DER).
    pub certificate: Bytes,
    /// Whether this authority issues certificates. The others are only trusted.
    pub issuing: bool,
    /// Time at which the authority became trusted.
    pub since: UnixMillis,
}

/// Revocation of certificates of one name, listed at least until all these certificates have expired.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revoked {
    /// Role of the certificates' holder.
    pub role: Role,
    /// Name of the certificates' holder.
    pub name: String,
    /// All certificates issued before this time are invalid.
    pub issued_before: UnixMillis,
    /// Time at which all these certificates have expired.
    pub forget_at: UnixMillis,
}

/// Trusted certificate authorities and revoked certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustView {
    /// Revision of the last change; 0 if there was none.
    pub number: Revision,
    /// Authorities in the order in which they were added.
    pub authorities: Vec<Authority>,
    /// Revoked certificates, by role and name.
    pub revoked: Vec<Revoked>,
}

/// Certificates of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateView {
    /// Role of the certificates' holder.
    pub role: Role,
    /// Name of the certificates' holder.
    pub name: String,
    /// Issue time of the newest certificate; `None`: the quorum issued none.
    pub issued_at: Option<UnixMillis>,
    /// Expiry time of the newest certificate.
    pub expires_at: Option<UnixMillis>,
    /// Last revocation of certificates of the name, which may include the newest; `None` if none is recorded.
    pub revoked: Option<Revocation>,
}

/// Revocation of certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// All certificates issued before this time are invalid.
    pub issued_before: UnixMillis,
    /// Time at which all these certificates have expired.
    pub forget_at: UnixMillis,
    /// Reason for the revocation.
    pub reason: String,
    /// Principal that revoked the certificates.
    pub by: String,
}

/// A join token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// Permissions of the token. `uses` is the number of remaining uses; `hash` is cut to its first 12 characters.
    pub grant: TokenGrant,
    /// Principal that created the token.
    pub by: String,
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Name of the lease.
    pub name: String,
    /// Holder of the lease; `None` if the lease was released or has expired.
    pub holder: Option<String>,
    /// Fencing epoch, which grows with each grant and each release. A command with another epoch is refused.
    pub epoch: u64,
    /// Expiry in state time, unless the lease is renewed. It lies in the past for an expired lease.
    pub expires_at: UnixMillis,
}

/// The live state: the starting point onto which a control service applies events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveState {
    /// Revision of this state.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
    /// All projects, parents before children.
    pub projects: Vec<Project>,
    /// All nodes, by name.
    pub nodes: Vec<Node>,
    /// Allocations that are not terminal, by number.
    pub allocations: Vec<Allocation>,
    /// Settings of the whole cluster.
    pub system: SystemView,
}

/// Answer to a [`Query`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Answer to [`Query::Hot`].
    Hot(Box<LiveState>),
    /// Answer to [`Query::Allocation`]; `None` if there is no such allocation.
    Allocation(Option<Box<Allocation>>),
    /// Answer to [`Query::Allocations`].
    Allocations(Vec<Allocation>),
    /// Answer to [`Query::Counts`].
    Counts(Vec<(AllocationState, u64)>),
    /// Answer to [`Query::Revision`].
    Revision(Revision),
    /// Answer to [`Query::Check`]: the revision at which the command was checked, or the refusal.
    Check(Result<Revision, Refusal>),
    /// Answer to [`Query::Trust`].
    Trust(TrustView),
    /// Answer to [`Query::Certificates`].
    Certificates(Vec<CertificateView>),
    /// Answer to [`Query::Tokens`].
    Tokens(Vec<TokenView>),
    /// Answer to [`Query::Audit`].
    Audit(Vec<AuditEntry>),
    /// Answer to [`Query::Baselines`].
    Baselines(Box<BaselinesView>),
    /// Answer to [`Query::Baseline`]; `None` if there is no such baseline or version.
    Baseline(Option<Box<Baseline>>),
    /// Answer to [`Query::BaselineVersions`], oldest first; empty if there is no baseline of that name.
    BaselineVersions(Vec<VersionView>),
    /// Answer to [`Query::System`].
    System(SystemView),
    /// Answer to [`Query::AuditSearch`].
    AuditSearch(Box<AuditPage>),
    /// Answer to [`Query::Headroom`]; `None` for an unknown project.
    Headroom(Option<Box<Headroom>>),
    /// Answer to [`Query::Vclusters`].
    Vclusters(Vec<Vcluster>),
    /// Answer to [`Query::Leases`].
    Leases(Vec<LeaseView>),
    /// Answer to [`Query::Dag`]; `None` if there is no such DAG.
    Dag(Option<Box<Dag>>),
    /// Answer to [`Query::Dags`].
    Dags(Vec<Dag>),
    /// Answer to [`Query::Reservations`].
    Reservations(Vec<Reservation>),
    /// Answer to [`Query::Budgets`].
    Budgets(Vec<TenantBudget>),
    /// Answer to [`Query::UsageRecords`], with the head of the usage records at that time.
    UsageRecords(Vec<UsageRecord>, UsageRecordsHead),
    /// Answer to [`Query::OpenUses`], with the head of the usage records at that time.
    OpenUses(Vec<OpenUse>, UsageRecordsHead),
    /// Answer to [`Query::OnLimits`].
    OnLimits(BTreeMap<ProjectPath, OnLimit>),
    /// Answer to [`Query::AccountingMonths`].
    AccountingMonths(BTreeMap<AccountingMonth, MonthDifferences>),
}

/// One item of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchItem {
    /// Events in order. All events of a revision are in one item.
    Events(Vec<Event>),
    /// No further event up to this revision. Sent at intervals, so that the watcher detects a dead connection.
    Idle(Revision),
    /// The events after the requested revision are not available: they are no longer retained, or the revision is from
    /// another history. The watcher reads [`Query::Hot`] and starts a new watch from [`LiveState::revision`].
    Compacted {
        /// Oldest revision from which a watch can start.
        oldest: Revision,
    },
}
