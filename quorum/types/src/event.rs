//! Events: changes of the replicated state for watchers.
//!
//! An event carries the whole record after the change, so a watcher replaces its copy. Records that are long and change
//! often (DAGs, job arrays) have separate events with the changed part.

use crate::{
    Allocation, AllocationId, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    allocation::{Rank, StopCause},
    baseline::{Baseline, Brake},
    budget::TenantBudget,
    dag::{Dag, DagProgress},
    id::{BaselineName, DagId, LeaseName, ReservationName},
    limit::OnLimit,
    limit_policy::SystemView,
    node::Node,
    node_claim::{NodeClaim, WipeOutcome},
    progress::Tally,
    project::Project,
    reservation::Reservation,
    size::encoded_bytes,
    vcluster::Vcluster,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Allocator overhead for the name and the boot id of a rank, bytes.
const ALLOCATED: usize = 64;

/// One change. `(revision, ordinal)` identifies and orders events permanently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Revision that made the change.
    pub revision: Revision,
    /// Position within the revision, from 0.
    pub ordinal: u32,
    /// State time of the change.
    pub at: UnixMillis,
    /// Kind of the change.
    pub kind: EventKind,
}

/// Kind of change of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationChange {
    /// The allocation was submitted.
    Submitted,
    /// The allocation was put on hold, or became blocked.
    Held,
    /// The allocation was released from hold, or is no longer blocked.
    Released,
    /// Nodes were assigned to the allocation.
    Assigned,
    /// The record changed but the state did not, for example by the report of a rank.
    Progressed,
    /// All ranks run.
    Started,
    /// The allocation is being stopped.
    Stopping,
    /// The allocation is queued again.
    Requeued,
    /// The allocation reached a terminal state.
    Ended,
    /// The allocation is suspended: it holds no nodes until it is resumed.
    Suspended,
    /// The allocation was resumed and waits for nodes again.
    Resumed,
    /// The allocation has more nodes.
    Grown,
    /// The allocation releases nodes, or has released one.
    Shrunk,
    /// The allocation writes a checkpoint.
    Checkpointing,
    /// A checkpoint is complete or has failed, and the allocation continues.
    Checkpointed,
    /// The walltime changed.
    Extended,
    /// An element of the job array got its own allocation, or that allocation ended.
    Counted,
}

/// Content of an event: the changed object, with its record after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An allocation changed.
    Allocation {
        /// Kind of the change.
        change: AllocationChange,
        /// Record after the change.
        record: Arc<Allocation>,
    },
    /// A node's record changed.
    Node {
        /// Record after the change.
        record: Node,
    },
    /// A project was created, or its limits or usage changed.
    Project {
        /// Record after the change.
        record: Project,
    },
    /// A project was deleted.
    ProjectDeleted {
        /// Path of the deleted project.
        path: ProjectPath,
    },
    /// A lease was granted to a new holder or released.
    Lease {
        /// Name of the lease.
        lease: LeaseName,
        /// Holder of the lease; `None` if it was released.
        holder: Option<String>,
        /// Fencing epoch of the lease.
        epoch: u64,
    },
    /// A name enrolled with a join token.
    Enrolled {
        /// Node name or service name.
        name: String,
        /// Node, if the name is that of a node.
        node: Option<NodeId>,
    },
    /// Trust changed: authorities or revoked certificates.
    Trust {
        /// Revision of the present trust: [`crate::view::TrustView::number`].
        number: Revision,
    },
    /// An audit entry was written.
    Audit {
        /// The audit entry.
        entry: crate::audit::AuditEntry,
    },
    /// A baseline has a new version.
    Baseline {
        /// Baseline in force after the change.
        record: Box<Baseline>,
    },
    /// A baseline was deleted.
    BaselineDeleted {
        /// Name of the deleted baseline.
        name: BaselineName,
    },
    /// Automatic draining was stopped or resumed.
    Brake {
        /// The brake; `None`: automatic draining is active.
        held: Option<Brake>,
    },
    /// Settings of the whole cluster changed.
    System {
        /// Settings after the change.
        record: SystemView,
    },
    /// A user claimed nodes. The changed node records have their own events. For accounting.
    NodesClaimed {
        /// Claimed nodes.
        nodes: Vec<NodeId>,
        /// The node claim: its user, project and start time.
        node_claim: NodeClaim,
    },
    /// The claim of a node ended: the claim was released, and its wipe was completed or waived. For accounting.
    NodeReleased {
        /// Released node.
        node: NodeId,
        /// The claim as it was, including its release time.
        node_claim: NodeClaim,
        /// Result of the wipe.
        wipe: WipeOutcome,
    },
    /// A vCluster was defined, or its definition or scheduler settings changed.
    Vcluster {
        /// Record after the change.
        record: Box<Vcluster>,
    },
    /// The definition and the scheduler settings of a vCluster were deleted.
    VclusterDeleted {
        /// Name of the vCluster.
        vcluster: VclusterName,
    },
    /// A DAG began or ended.
    Dag {
        /// Record after the change.
        record: Arc<Dag>,
    },
    /// Members of a running DAG ended. This event carries only the progress, since a DAG may have a thousand members.
    DagProgressed {
        /// Number of the DAG.
        id: DagId,
        /// Progress after the change.
        progress: DagProgress,
    },
    /// Elements of a job array got allocations, or those allocations ended, and nothing else in the record changed.
    /// This event carries only the counts, not the workload.
    ArrayCounted {
        /// Number of the job array.
        id: AllocationId,
        /// Counts of the elements after the change.
        tally: Box<Tally>,
        /// Cause of the array's end, if it has ended or will end.
        stop: Option<StopCause>,
    },
    /// A reservation was created or changed.
    Reservation {
        /// Record after the change.
        record: Arc<Reservation>,
    },
    /// A reservation was deleted.
    ReservationDeleted {
        /// Name of the reservation.
        name: ReservationName,
    },
    /// Budget data of a tenant changed.
    Budget {
        /// Record after the change.
        record: Box<TenantBudget>,
    },
    /// Usage records were written ([`crate::usage_record`]).
    UsageRecords {
        /// Number of the last usage record.
        through: u64,
    },
    /// The handling of a tenant's submits that do not fit its limits changed.
    OnLimit {
        /// Path of the tenant.
        tenant: ProjectPath,
        /// Handling after the change.
        on_limit: OnLimit,
    },
}

impl Event {
    /// Approximate size in memory, bytes: the encoded size, plus the fixed parts of the event, record and ranks.
    pub fn memory_bytes(&self) -> usize {
        let held = match &self.kind {
            EventKind::Allocation { record, .. } => {
                size_of::<Allocation>() + record.ranks.len() * (size_of::<Rank>() + ALLOCATED)
            }
            _ => 0,
        };
        (size_of::<Self>() + held).saturating_add(encoded_bytes(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        audit::{AuditAction, AuditEntry},
        principal::{Principal, Privilege},
        rpc::Role,
    };

    const TEXT: usize = 100_000;

    #[test]
    fn an_events_texts_count() {
        let by = Principal {
            name: "root".to_owned(),
            privilege: Privilege::Admin,
        };
        let action = AuditAction::CertificatesRevoked {
            role: Role::Agent,
            name: "n1".to_owned(),
            reason: "x".repeat(TEXT),
        };
        let entry = AuditEntry::following(None, Revision(1), UnixMillis(1), by, action);
        let event = Event {
            revision: Revision(1),
            ordinal: 0,
            at: UnixMillis(1),
            kind: EventKind::Audit { entry },
        };
        assert!(event.memory_bytes() > TEXT);
    }
}
