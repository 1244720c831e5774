//! What a scheduler was told and what it decided, line by line: enough to decide it again elsewhere.
//!
//! A control writes such lines as it plans; `lattice replay record` fetches them and `lattice replay verify` plans
//! again. Nothing of what runs (programs, environments) is in them.

use crate::{
    plan::{Placement, Plan},
    policy::Policy,
    view::{ClusterView, Delta, PendingView},
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Revision, UnixMillis, VclusterName,
    event::AllocationChange,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The form of the lines. Another one is not read.
pub const RECORD_FORMAT: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line, and the first one of each file that a control keeps.
    Begin {
        /// [`RECORD_FORMAT`].
        format: u32,
        /// The cluster's name.
        cluster: String,
        /// Which control wrote it.
        control: String,
        /// Its version.
        version: String,
        /// When.
        at: UnixMillis,
    },
    /// A scheduler begins with this: all that it knows. What it knew before is forgotten.
    View {
        /// Whose.
        vcluster: VclusterName,
        /// When.
        at: UnixMillis,
        /// What it knows.
        view: Box<ClusterView>,
    },
    /// A scheduler has planned.
    Cycle(Box<Cycle>),
    /// What became of what it placed.
    Outcome {
        /// Whose.
        vcluster: VclusterName,
        /// The instant of the plan.
        planned_at: UnixMillis,
        /// Of which allocation.
        id: AllocationId,
        /// What.
        outcome: Outcome,
    },
    /// An allocation changed.
    Allocation(Box<Changed>),
    /// A submit was refused.
    RefusedSubmit {
        /// When.
        at: UnixMillis,
        /// Whose.
        user: String,
        /// Why, as it was told.
        refusal: String,
    },
}

/// One plan of a scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cycle {
    /// Whose.
    pub vcluster: VclusterName,
    /// The instant that was planned for.
    pub at: UnixMillis,
    /// Under which epoch of its lease.
    pub epoch: u64,
    /// How it decided.
    pub policy: Policy,
    /// What it had heard since it planned last. `None`: a [`Line::View`] stands before.
    pub delta: Option<Box<Delta>>,
    /// Work that is promised nodes, and was planned with those in the queue too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub promised: BTreeMap<AllocationId, PendingView>,
    /// What it placed, in its order.
    pub placed: Vec<Placed>,
    /// Who was held nodes for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<Reserved>,
}

/// Nodes that an allocation was to get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Which.
    pub id: AllocationId,
    /// In rank order.
    pub nodes: Vec<NodeId>,
    /// Ahead of one with a reservation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backfilled: bool,
}

/// A reservation of a blocked allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Which.
    pub id: AllocationId,
    /// Its start.
    pub starts_at: UnixMillis,
}

/// What became of a placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The quorum took it.
    Assigned {
        /// As which revision.
        revision: Revision,
    },
    /// The quorum refused it.
    Refused {
        /// Why.
        refusal: String,
    },
    /// It was not proposed.
    HeldBack {
        /// Why.
        reason: String,
    },
}

/// An allocation after a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Which.
    pub id: AllocationId,
    /// What happened.
    pub change: AllocationChange,
    /// When, by the quorum's time.
    pub at: UnixMillis,
    /// The revision that made it.
    pub revision: Revision,
    /// Its state after that.
    pub state: AllocationState,
    /// Its attempt.
    pub attempt: u32,
    /// In which vCluster.
    pub vcluster: VclusterName,
    /// What it asks for; said when it is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<PendingView>,
    /// Its nodes in rank order; said when it is assigned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeId>,
    /// When its first process started, by its node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<UnixMillis>,
    /// When its last process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UnixMillis>,
}

impl Cycle {
    /// What a plan decided, as it is written down.
    pub fn decided(plan: &Plan) -> (Vec<Placed>, Vec<Reserved>) {
        let placed = |placement: &Placement| Placed {
            id: placement.id,
            nodes: placement.nodes.iter().map(|n| n.node.clone()).collect(),
            backfilled: placement.backfilled,
        };
        let reserved = plan.reservations.iter().map(|reservation| Reserved {
            id: reservation.id,
            starts_at: reservation.starts_at,
        });
        (
            plan.placements.iter().map(placed).collect(),
            reserved.collect(),
        )
    }
}

impl Changed {
    /// Of a record as a change has left it.
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
