//! Scheduling record: inputs and decisions of a scheduler, one JSON value per line, sufficient to repeat the decisions.
//!
//! A control writes these lines as it plans. `lattice replay record` fetches the lines, and `lattice replay verify`
//! plans again from them. The lines contain no programs or environments of jobs.

use crate::{
    plan::{Plan, placement::Placement},
    priority::policy::Policy,
    view::{ClusterView, Delta, PendingView},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Revision, UnixMillis, VclusterName,
    event::AllocationChange,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the line format. A record in any other version is rejected.
pub const RECORD_FORMAT: u32 = 1;

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// First line of a record, and of each file that a control keeps.
    Begin {
        /// [`RECORD_FORMAT`].
        format: u32,
        /// Name of the cluster.
        cluster: String,
        /// Control that wrote the record.
        control: String,
        /// Version of the control.
        version: String,
        /// Time of the line.
        at: UnixMillis,
    },
    /// Complete view with which a scheduler begins; replaces any earlier view.
    View {
        /// vCluster of the scheduler.
        vcluster: VclusterName,
        /// Time of the view.
        at: UnixMillis,
        /// The view.
        view: Box<ClusterView>,
    },
    /// Plan of a scheduler.
    Cycle(Box<Cycle>),
    /// Outcome of a placement.
    Outcome {
        /// vCluster of the scheduler.
        vcluster: VclusterName,
        /// Time of the plan.
        planned_at: UnixMillis,
        /// Allocation that was placed.
        id: AllocationId,
        /// Outcome of the placement.
        outcome: Outcome,
    },
    /// Change of an allocation.
    Allocation(Box<ChangedAllocation>),
    /// Rejected submission.
    RefusedSubmit {
        /// Time of the rejection.
        at: UnixMillis,
        /// Submitting user.
        user: String,
        /// Reason, as returned to the user.
        refusal: String,
    },
}

impl Line {
    /// Time of the line. An outcome has the time of its plan.
    pub fn at(&self) -> UnixMillis {
        match self {
            Self::Begin { at, .. } | Self::View { at, .. } | Self::RefusedSubmit { at, .. } => *at,
            Self::Cycle(cycle) => cycle.at,
            Self::Outcome { planned_at, .. } => *planned_at,
            Self::Allocation(changed) => changed.at,
        }
    }
}

/// One plan of a scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cycle {
    /// vCluster of the scheduler.
    pub vcluster: VclusterName,
    /// Time for which the plan was made.
    pub at: UnixMillis,
    /// Lease epoch of the scheduler.
    pub epoch: u64,
    /// Policy of the plan.
    pub policy: Policy,
    /// Changes of the view since the last plan. `None`: a [`Line::View`] precedes this line.
    pub delta: Option<Box<Delta>>,
    /// Jobs that wait for promised nodes and were added to the queue for this plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub promised: BTreeMap<AllocationId, PendingView>,
    /// Placements, in order.
    pub placed: Vec<PlacedAllocation>,
    /// Reservations, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<BlockedReservation>,
}

/// Nodes that an allocation was to get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedAllocation {
    /// Id of the allocation.
    pub id: AllocationId,
    /// Nodes in rank order.
    pub nodes: Vec<NodeId>,
    /// Whether the allocation starts ahead of a job with a reservation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backfilled: bool,
}

/// Reservation of a blocked allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedReservation {
    /// Id of the allocation.
    pub id: AllocationId,
    /// Start of the reservation.
    pub starts_at: UnixMillis,
}

/// Outcome of a placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The quorum committed the assignment.
    Assigned {
        /// Revision of the assignment.
        revision: Revision,
    },
    /// The quorum rejected the assignment.
    Refused {
        /// Reason of the refusal.
        refusal: String,
    },
    /// The placement was not proposed.
    HeldBack {
        /// Reason.
        reason: String,
    },
}

/// An allocation after a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangedAllocation {
    /// Id of the allocation.
    pub id: AllocationId,
    /// Kind of change.
    pub change: AllocationChange,
    /// Time of the change, state time.
    pub at: UnixMillis,
    /// Revision of the change.
    pub revision: Revision,
    /// State after the change.
    pub state: AllocationState,
    /// Attempt after the change.
    pub attempt: u32,
    /// vCluster of the allocation.
    pub vcluster: VclusterName,
    /// Request of the allocation; recorded only on submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<PendingView>,
    /// Nodes in rank order; recorded only on assignment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeId>,
    /// Start of the first process, by the clock of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<UnixMillis>,
    /// End of the last process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UnixMillis>,
}

impl Cycle {
    /// Placements and reservations of a plan, as recorded.
    pub fn decided(plan: &Plan) -> (Vec<PlacedAllocation>, Vec<BlockedReservation>) {
        let placed = |placement: &Placement| PlacedAllocation {
            id: placement.id,
            nodes: placement.nodes.iter().map(|n| n.node.clone()).collect(),
            backfilled: placement.backfilled,
        };
        let reserved = plan
            .reservations
            .iter()
            .map(|reservation| BlockedReservation {
                id: reservation.id,
                starts_at: reservation.starts_at,
            });
        (
            plan.placements.iter().map(placed).collect(),
            reserved.collect(),
        )
    }
}

impl ChangedAllocation {
    /// Describes an allocation after a change; `record` is the committed record with the change applied.
    pub fn new(change: AllocationChange, record: &Allocation, at: UnixMillis) -> Self {
        let is_new = change == AllocationChange::Submitted;
        let is_assigned = change == AllocationChange::Assigned;
        Self {
            id: record.id,
            change,
            at,
            revision: record.revision,
            state: record.state,
            attempt: record.attempt,
            vcluster: record.spec.vcluster.clone(),
            asks: is_new.then(|| PendingView::from(record)),
            nodes: match is_assigned {
                true => record.ranks.iter().map(|rank| rank.node.clone()).collect(),
                false => Vec::new(),
            },
            started_at: record.started_at,
            ended_at: record.ended_at,
        }
    }
}
