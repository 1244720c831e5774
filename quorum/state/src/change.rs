//! What a judged command will do: whole records as they will be. Committing them cannot fail.

use crate::{lease::Lease, token::Token, trust::Identity};
use lattice_quorum_types::{
    Allocation, AllocationId, NodeId, Outcome, ProjectPath, VclusterName,
    audit::AuditAction,
    baseline::{Baseline, Brake},
    budget::TenantBudget,
    command::Principal,
    dag::{Dag, Progress},
    event::{AllocationChange, EventKind},
    fact::FactKind,
    hostlist::Hosts,
    id::{BaselineName, DagId, LeaseName, ReservationName},
    limit::Usage,
    node::Node,
    project::Project,
    reservation::Reservation,
    rpc::Role,
    vcluster::Vcluster,
    view::{Authority, SystemView},
};
use std::sync::Arc;

/// One change. Revisions are filled in at commit.
#[derive(Debug)]
pub(crate) enum Change {
    /// An allocation as it will be; archived when terminal.
    Allocation {
        change: AllocationChange,
        record: Box<Allocation>,
    },
    /// How many attempts of an allocation count for nothing, as it will be. Before the allocation
    /// itself.
    Uncounted { id: AllocationId, attempts: u32 },
    /// A node as it will be.
    Node(Box<Node>),
    /// A project as it will be: new, or with other limits. Usage is not changed this way.
    Project(Box<Project>),
    /// A project goes.
    DeleteProject(ProjectPath),
    /// Usage of a project, counted at every level above it too.
    Usage {
        path: ProjectPath,
        usage: Usage,
        direction: Direction,
    },
    /// A lease as it will be. A renewal is not announced and makes no revision.
    Lease {
        name: LeaseName,
        lease: Lease,
        announce: bool,
    },
    /// A lease goes.
    RemoveLease(LeaseName),
    /// A join token as it will be.
    Token { hash: String, token: Box<Token> },
    /// A join token goes.
    RevokeToken { hash: String },
    /// Somebody enrolled.
    Enrolled { name: String, node: Option<NodeId> },
    /// What is known of a name's certificates, as it will be. Unless what members sign changes
    /// (`renumber`), it is not announced and makes no revision.
    Identity {
        role: Role,
        name: String,
        identity: Box<Identity>,
        renumber: bool,
    },
    /// Who is trusted.
    Authorities { authorities: Vec<Authority> },
    /// Something is written down for ever.
    Audit { by: Principal, action: AuditAction },
    /// The newest version of a baseline, and whom it names.
    Baseline(Box<Baseline>, Arc<Hosts>),
    /// A baseline goes.
    DeleteBaseline(BaselineName),
    /// Automatic draining stands still, or goes on.
    Brake(Option<Brake>),
    /// What holds for the whole cluster, as it will be.
    System(SystemView),
    /// A vCluster as it will be.
    Vcluster(Box<Vcluster>),
    /// A vCluster goes.
    DeleteVcluster(VclusterName),
    /// A graph as it will be: new, or over. Behind its members.
    Dag(Box<Dag>),
    /// How far a graph will be that goes on. Behind its members.
    DagProgress { id: DagId, progress: Progress },
    /// A reservation as it will be.
    Reservation(Box<Reservation>),
    /// A reservation goes.
    DeleteReservation(ReservationName),
    /// What is known of a tenant's budgets, as it will be.
    Budget(Box<TenantBudget>),
    /// Nothing is known of them any more, for the tenant goes.
    DeleteBudget(ProjectPath),
    /// Something that is counted or billed, beside what follows from other changes.
    Fact(Box<FactKind>),
    /// How far an accounting system has the facts, and how many of them it does not get. Not announced, and no
    /// revision.
    Acknowledged { through: u64, dropped: u64 },
    /// Something that watchers are told beside the records that changed.
    Announce(Box<EventKind>),
}

/// Whether nodes are taken or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// More is held.
    Take,
    /// Less is held.
    GiveBack,
}

/// An accepted command.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// For the proposer.
    pub(crate) outcome: Outcome,
    /// In the order in which watchers learn of them; empty when there is nothing to do.
    pub(crate) changes: Vec<Change>,
}

impl Verdict {
    /// Accepted, and it is so already.
    pub(crate) fn nothing() -> Self {
        Verdict {
            outcome: Outcome::Done,
            changes: Vec::new(),
        }
    }
    /// Accepted, with nothing to tell beyond "done".
    pub(crate) fn done(changes: Vec<Change>) -> Self {
        Verdict {
            outcome: Outcome::Done,
            changes,
        }
    }
}
