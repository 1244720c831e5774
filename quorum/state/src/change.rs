//! Changes: the effects of an accepted command, as complete new records. Committing changes cannot fail.

use crate::{lease::Lease, token::Token, trust::Identity};
use lattice_quorum_types::{
    Allocation, AllocationId, NodeId, Outcome, ProjectPath, VclusterName,
    accounting_month::{AccountingMonth, MonthDifferences},
    audit::AuditAction,
    baseline::{Baseline, Brake},
    budget::TenantBudget,
    command::Principal,
    dag::{Dag, DagProgress},
    event::{AllocationChange, EventKind},
    hostlist::Hosts,
    id::{BaselineName, DagId, LeaseName, ReservationName},
    limit::{OnLimit, Usage},
    limit_policy::SystemView,
    node::Node,
    project::Project,
    reservation::Reservation,
    rpc::Role,
    usage_record::UsageRecordKind,
    vcluster::Vcluster,
    view::Authority,
};
use std::sync::Arc;

/// One change. The commit sets the revision of the record.
#[derive(Debug)]
pub(crate) enum Change {
    /// Puts an allocation record; a terminal record goes to the archive.
    Allocation {
        change: AllocationChange,
        record: Box<Allocation>,
    },
    /// Sets the number of attempts of an allocation that do not count for its requeue policy. Comes before the change
    /// of the allocation itself.
    UncountedAttempts { id: AllocationId, attempts: u32 },
    /// Puts a node record.
    Node(Box<Node>),
    /// Puts a project record: a new project, changed limits, or a changed overcommitted mark. Usage is not changed this
    /// way.
    Project(Box<Project>),
    /// Deletes a project.
    DeleteProject(ProjectPath),
    /// Adds or subtracts usage of a project, counted at every level above it too.
    Usage {
        path: ProjectPath,
        usage: Usage,
        direction: UsageDirection,
    },
    /// Puts a lease. A renewal emits no event and makes no revision.
    Lease {
        name: LeaseName,
        lease: Lease,
        announce: bool,
    },
    /// Removes a lease.
    RemoveLease(LeaseName),
    /// Puts a join token.
    Token { hash: String, token: Box<Token> },
    /// Removes a join token.
    RevokeToken { hash: String },
    /// Reports an enrolment under `name`; `node` is set for the role agent.
    Enrolled { name: String, node: Option<NodeId> },
    /// Puts the record of a name's certificates. `renumber` is set if the signed trust bundle changes; without it, the
    /// change emits no event and makes no revision.
    Identity {
        role: Role,
        name: String,
        identity: Box<Identity>,
        renumber: bool,
    },
    /// Replaces the list of trusted CAs.
    Authorities { authorities: Vec<Authority> },
    /// Appends an entry to the audit.
    Audit { by: Principal, action: AuditAction },
    /// Puts a new version of a baseline, with the nodes that it names.
    Baseline(Box<Baseline>, Arc<Hosts>),
    /// Deletes a baseline.
    DeleteBaseline(BaselineName),
    /// Holds (`Some`) or releases (`None`) the brake on automatic draining.
    Brake(Option<Brake>),
    /// Replaces the cluster-wide limits and limit policy.
    System(SystemView),
    /// Puts a vCluster record.
    Vcluster(Box<Vcluster>),
    /// Deletes a vCluster.
    DeleteVcluster(VclusterName),
    /// Puts a DAG record: a new DAG, or an ended one. Comes after the changes of its members.
    Dag(Box<Dag>),
    /// Sets the progress of a running DAG. Comes after the changes of its members.
    DagProgress { id: DagId, progress: DagProgress },
    /// Puts a reservation.
    Reservation(Box<Reservation>),
    /// Deletes a reservation.
    DeleteReservation(ReservationName),
    /// Puts the budget of a tenant.
    Budget(Box<TenantBudget>),
    /// Removes the budget of a tenant that is deleted.
    DeleteBudget(ProjectPath),
    /// Sets the handling of a tenant's submits that do not fit with the present usage.
    OnLimit {
        tenant: ProjectPath,
        on_limit: OnLimit,
    },
    /// Appends a usage record in addition to those derived from other changes.
    UsageRecord(Box<UsageRecordKind>),
    /// Sets the last usage record that an accounting system has, and adds to the count of those it will never receive.
    /// Emits no event and makes no revision.
    AcknowledgeUsage { through: u64, dropped: u64 },
    /// Sets the differences of accounting of an ended month; `None` for no differences.
    Month(AccountingMonth, Option<MonthDifferences>),
    /// Emits an event in addition to those of the changed records.
    Announce(Box<EventKind>),
}

/// Whether usage is added or subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageDirection {
    /// Adds usage.
    Add,
    /// Subtracts usage.
    Subtract,
}

/// Effects of an accepted command.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Result that the proposer receives.
    pub(crate) outcome: Outcome,
    /// Changes in the order in which watchers receive their events; empty when the command changes nothing.
    pub(crate) changes: Vec<Change>,
}

impl Verdict {
    /// Accepted; the state is already as requested, so nothing changes.
    pub(crate) fn unchanged() -> Self {
        Verdict {
            outcome: Outcome::Done,
            changes: Vec::new(),
        }
    }
    /// Accepted with these changes and the outcome `Done`.
    pub(crate) fn done(changes: Vec<Change>) -> Self {
        Verdict {
            outcome: Outcome::Done,
            changes,
        }
    }
}
