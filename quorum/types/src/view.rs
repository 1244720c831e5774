//! Reads of the replicated state.

use crate::{
    Allocation, AllocationId, AllocationState, Envelope, Event, ProjectPath, Refusal, Revision,
    UnixMillis, VoterId,
    audit::{AuditEntry, AuditPage, AuditSearch},
    baseline::{Baseline, BaselinesView, VersionView},
    budget::TenantBudget,
    command::TokenGrant,
    dag::Dag,
    fact::{Fact, FactsHead, OpenUse},
    id::{BaselineName, DagId},
    limit::{LimitPolicy, Limits, SystemLimits, Usage},
    node::Node,
    project::Project,
    reservation::Reservation,
    rpc::Role,
    vcluster::Vcluster,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A linearizable question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// The hot state: tree, nodes, allocations that are not terminal.
    Hot,
    /// One allocation, terminal ones included.
    Allocation {
        /// Which.
        id: AllocationId,
    },
    /// Allocations in id order.
    Allocations {
        /// Only ids above this one.
        after: AllocationId,
        /// At most so many.
        limit: u32,
        /// Only in these states; empty means all.
        states: Vec<AllocationState>,
        /// Only within this project.
        within: Option<ProjectPath>,
    },
    /// How many allocations are in each state.
    Counts,
    /// Only the revision.
    Revision,
    /// Would this command be applied now? Judged as `apply` does; changes nothing.
    Check {
        /// The command.
        envelope: Box<Envelope>,
    },
    /// Who is trusted.
    Trust,
    /// Everybody with a certificate, by role and name.
    Certificates,
    /// Join tokens that can still be used.
    Tokens,
    /// What was written down, oldest first. A page may hold fewer than were asked for; an empty one is
    /// the last.
    Audit {
        /// Only entries after this one; 0 for all.
        after: u64,
        /// At most so many.
        limit: u32,
    },
    /// Every baseline in force, and the brake on automatic draining.
    Baselines,
    /// One baseline.
    Baseline {
        /// Which.
        name: BaselineName,
        /// `None`: the one in force.
        version: Option<u32>,
    },
    /// Which versions of a baseline are kept.
    BaselineVersions {
        /// Of which.
        name: BaselineName,
    },
    /// What holds for the whole cluster.
    System,
    /// The entries of the audit that somebody asks for.
    AuditSearch {
        /// Which.
        search: Box<AuditSearch>,
    },
    /// How much more a project could be given now, as far as limits go.
    Headroom {
        /// Which.
        path: ProjectPath,
    },
    /// Every vCluster of which somebody has said what it is, or how its scheduler decides, by name.
    Vclusters,
    /// Every lease, by name; those of schedulers whose vCluster is gone are forgotten.
    Leases,
    /// One graph.
    Dag {
        /// Which.
        id: DagId,
    },
    /// Graphs in the order of their numbers: those that run and the last ones that ended.
    Dags {
        /// Only numbers above this one.
        after: DagId,
        /// At most so many.
        limit: u32,
        /// Only within this project.
        within: Option<ProjectPath>,
    },
    /// Every reservation, by name.
    Reservations,
    /// What is known of tenants' budgets, by tenant; of those of which nothing is, nothing.
    Budgets,
    /// What was counted and billed, oldest first. A page may hold fewer than were asked for; an empty one is the
    /// last.
    Facts {
        /// Only facts after this one; 0 for all.
        after: u64,
        /// At most so many.
        limit: u32,
        /// Facts before this moment may be left out.
        since: UnixMillis,
    },
    /// Which nodes are used, by whom and since when; and where the facts stand.
    OpenUses,
}

/// What holds for the whole cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemView {
    /// By which rules limits are judged.
    pub limit_policy: LimitPolicy,
    /// What is limited for all together.
    pub limits: SystemLimits,
}

/// How much more a project could be given now, as far as limits go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// The revision it was judged at.
    pub revision: Revision,
    /// Most nodes that one more allocation could have; 0 when none fits, `None` when no level limits
    /// them.
    pub nodes: Option<u64>,
    /// Allocations that could hold nodes besides; `None` when no level limits them.
    pub allocations: Option<u64>,
    /// The levels that have a say, from the project up.
    pub levels: Vec<HeadroomLevel>,
}

/// One level of a [`Headroom`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadroomLevel {
    /// The project, or tenant.
    pub path: ProjectPath,
    /// Its ceilings.
    pub limits: Limits,
    /// What counts against them for a request from here.
    pub counted: Usage,
}

/// An authority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// blake3 of its certificate, lower-case hex.
    pub pin: String,
    /// Its certificate (DER).
    pub certificate: Bytes,
    /// Whether it is the one that issues; the others are only trusted.
    pub issuing: bool,
    /// Since when it is known.
    pub since: UnixMillis,
}

/// Certificates that hold no more though they have not ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revoked {
    /// Whose.
    pub role: Role,
    /// Whose.
    pub name: String,
    /// All issued before this moment.
    pub issued_before: UnixMillis,
    /// Then all of them have ended by themselves.
    pub forget_at: UnixMillis,
}

/// Who is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustView {
    /// Revision of the last change; 0 when there was none.
    pub number: Revision,
    /// In the order in which they became known.
    pub authorities: Vec<Authority>,
    /// By role and name.
    pub revoked: Vec<Revoked>,
}

/// What is known of one name's certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateView {
    /// Its role.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// When its newest certificate was issued; `None`: not by enrolment.
    pub issued_at: Option<UnixMillis>,
    /// When that one ends.
    pub expires_at: Option<UnixMillis>,
    /// Those issued before hold no more, why, and who said so.
    pub revoked: Option<Revocation>,
}

/// Why certificates hold no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// All issued before this moment.
    pub issued_before: UnixMillis,
    /// Then all of them have ended by themselves.
    pub forget_at: UnixMillis,
    /// Why.
    pub reason: String,
    /// Who said so.
    pub by: String,
}

/// A join token, without anything that would let somebody use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// What it permits; `uses` are those left, `hash` is cut to its first 12 characters.
    pub grant: TokenGrant,
    /// Who made it.
    pub by: String,
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Its name.
    pub name: String,
    /// Who has it; `None` where it was given back or has run out.
    pub holder: Option<String>,
    /// Grows with each grant and each return. What is fenced by an earlier one is refused.
    pub epoch: u64,
    /// When it runs out unless it is renewed, or ran out, in state time.
    pub expires_at: UnixMillis,
}

/// Everything a control service folds events onto.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// The revision it shows.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
    /// All projects, parents before children.
    pub projects: Vec<Project>,
    /// All nodes by name.
    pub nodes: Vec<Node>,
    /// Allocations that are not terminal, by id.
    pub allocations: Vec<Allocation>,
    /// What holds for the whole cluster.
    pub system: SystemView,
}

/// The answer to a [`Query`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Query::Hot`].
    Hot(Box<Hot>),
    /// To [`Query::Allocation`].
    Allocation(Option<Box<Allocation>>),
    /// To [`Query::Allocations`].
    Allocations(Vec<Allocation>),
    /// To [`Query::Counts`].
    Counts(Vec<(AllocationState, u64)>),
    /// To [`Query::Revision`].
    Revision(Revision),
    /// To [`Query::Check`]: the revision it was judged at, or the refusal.
    Check(Result<Revision, Refusal>),
    /// To [`Query::Trust`].
    Trust(TrustView),
    /// To [`Query::Certificates`].
    Certificates(Vec<CertificateView>),
    /// To [`Query::Tokens`].
    Tokens(Vec<TokenView>),
    /// To [`Query::Audit`].
    Audit(Vec<AuditEntry>),
    /// To [`Query::Baselines`].
    Baselines(Box<BaselinesView>),
    /// To [`Query::Baseline`].
    Baseline(Option<Box<Baseline>>),
    /// To [`Query::BaselineVersions`], oldest first; empty when there is none of that name.
    BaselineVersions(Vec<VersionView>),
    /// To [`Query::System`].
    System(SystemView),
    /// To [`Query::AuditSearch`].
    AuditSearch(Box<AuditPage>),
    /// To [`Query::Headroom`]; `None` for a project that is not known.
    Headroom(Option<Box<Headroom>>),
    /// To [`Query::Vclusters`].
    Vclusters(Vec<Vcluster>),
    /// To [`Query::Leases`].
    Leases(Vec<LeaseView>),
    /// To [`Query::Dag`].
    Dag(Option<Box<Dag>>),
    /// To [`Query::Dags`].
    Dags(Vec<Dag>),
    /// To [`Query::Reservations`].
    Reservations(Vec<Reservation>),
    /// To [`Query::Budgets`].
    Budgets(Vec<TenantBudget>),
    /// To [`Query::Facts`]; where the facts stood then.
    Facts(Vec<Fact>, FactsHead),
    /// To [`Query::OpenUses`].
    OpenUses(Vec<OpenUse>, FactsHead),
}

/// One step of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchItem {
    /// Events in order, whole revisions at a time.
    Events(Vec<Event>),
    /// Nothing happened up to this revision; sent now and then so that a silent watch is seen alive.
    Idle(Revision),
    /// The revision asked for is no longer kept: read [`Query::Hot`] and watch from there.
    Compacted {
        /// Oldest revision that can still be watched from.
        oldest: Revision,
    },
}

/// A member's own, not linearizable, account of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its number.
    pub id: VoterId,
    /// Who it believes leads.
    pub leader: Option<VoterId>,
    /// Raft term.
    pub term: u64,
    /// Last applied log index.
    pub applied_index: u64,
    /// Revision of its state.
    pub revision: Revision,
    /// All members with their mesh addresses.
    pub members: Vec<(VoterId, String)>,
    /// Which life of the cluster it belongs to.
    pub incarnation: crate::membership::Incarnation,
    /// Log entry that made them the members.
    pub membership_index: u64,
}
