//! Events: what watchers learn. Each carries the record as it now is, so folding is replacing; of what is
//! long and changes often, what of it changes.

use crate::{
    Allocation, AllocationId, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    allocation::StopCause,
    baseline::{Baseline, Brake},
    budget::TenantBudget,
    course::Tally,
    dag::{Dag, Progress},
    id::{BaselineName, DagId, LeaseName, ReservationName},
    node::Node,
    project::Project,
    reservation::Reservation,
    tenure::{Tenure, WipeOutcome},
    vcluster::Vcluster,
    view::SystemView,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One change. `(revision, ordinal)` identifies it for ever and orders it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The revision that made it.
    pub revision: Revision,
    /// Position within the revision, from 0.
    pub ordinal: u32,
    /// State time.
    pub at: UnixMillis,
    /// What changed.
    pub kind: EventKind,
}

/// What happened to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationChange {
    /// New.
    Submitted,
    /// Put on hold.
    Held,
    /// Taken off hold.
    Released,
    /// Got nodes.
    Assigned,
    /// A rank reported; the state did not change.
    Progressed,
    /// All ranks run.
    Started,
    /// Being stopped.
    Stopping,
    /// Queued again.
    Requeued,
    /// Terminal.
    Ended,
    /// Off its nodes; it waits for somebody to resume it.
    Suspended,
    /// Waits for nodes again.
    Resumed,
    /// Has more nodes.
    Grown,
    /// Gives nodes back, or gave one back.
    Shrunk,
    /// Writes a checkpoint.
    Checkpointing,
    /// A checkpoint is whole, or came to nothing; the work goes on.
    Checkpointed,
    /// Has another walltime.
    Extended,
    /// An element of it has its own allocation now, or that one has ended.
    Counted,
}

/// What changed, with the record after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An allocation.
    Allocation {
        /// What happened.
        change: AllocationChange,
        /// As it is now.
        record: Arc<Allocation>,
    },
    /// A node's record.
    Node {
        /// As it is now.
        record: Node,
    },
    /// A project was created, or its limits or usage changed.
    Project {
        /// As it is now.
        record: Project,
    },
    /// A project was deleted.
    ProjectDeleted {
        /// Which.
        path: ProjectPath,
    },
    /// A lease changed hands.
    Lease {
        /// Which.
        lease: LeaseName,
        /// The holder; `None` when given back.
        holder: Option<String>,
        /// Its epoch.
        epoch: u64,
    },
    /// A join token was used by this name.
    Enrolled {
        /// Node name, or service name.
        name: String,
        /// The node, when it is one.
        node: Option<NodeId>,
    },
    /// Who is trusted changed: authorities, or revoked certificates.
    Trust {
        /// Of the present trust; [`crate::view::TrustView::number`].
        number: Revision,
    },
    /// Something that is written down for ever.
    Audit {
        /// The entry.
        entry: crate::audit::AuditEntry,
    },
    /// A baseline has a new version.
    Baseline {
        /// As it is now.
        record: Box<Baseline>,
    },
    /// A baseline is gone.
    BaselineDeleted {
        /// Which.
        name: BaselineName,
    },
    /// Automatic draining stands still, or goes on.
    Brake {
        /// `None`: it goes on.
        held: Option<Brake>,
    },
    /// What holds for the whole cluster changed.
    System {
        /// As it is now.
        record: SystemView,
    },
    /// Nodes belong to a user from now on; their own records come with it. For accounting.
    NodesClaimed {
        /// Which.
        nodes: Vec<NodeId>,
        /// Whose, for which project, since when.
        tenure: Tenure,
    },
    /// A node is nobody's any more: it was given back (its tenure says when) and what became of its
    /// wipe. For accounting.
    NodeReleased {
        /// Which.
        node: NodeId,
        /// As it was.
        tenure: Tenure,
        /// Its confirmation.
        wipe: WipeOutcome,
    },
    /// What a vCluster is was said.
    Vcluster {
        /// As it is now.
        record: Box<Vcluster>,
    },
    /// What was said of a vCluster holds no more.
    VclusterDeleted {
        /// Which.
        vcluster: VclusterName,
    },
    /// A graph began, or is over.
    Dag {
        /// As it is now.
        record: Arc<Dag>,
    },
    /// Members of a graph that goes on have ended. A thousand members are not told of with each.
    DagProgressed {
        /// Which graph.
        id: DagId,
        /// How far it is now.
        progress: Progress,
    },
    /// Elements of an array have allocations now, or those have ended; nothing else of it is another. What it
    /// runs is not told of with each of them.
    ArrayCounted {
        /// Which array.
        id: AllocationId,
        /// What became of its elements until now.
        tally: Box<Tally>,
        /// Why it ended, or will.
        stop: Option<StopCause>,
    },
    /// Nodes are kept for some.
    Reservation {
        /// As it is now.
        record: Arc<Reservation>,
    },
    /// Nothing is kept under this name any more.
    ReservationDeleted {
        /// Which.
        name: ReservationName,
    },
    /// What is known of a tenant's budgets.
    Budget {
        /// As it is now.
        record: Box<TenantBudget>,
    },
    /// What is counted and billed was written down ([`crate::fact`]).
    Facts {
        /// Number of the last one.
        through: u64,
    },
}
