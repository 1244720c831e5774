//! Plan: the result of a scheduling cycle.

pub(crate) mod placement;
pub(crate) mod waiting;

use crate::priority::policy::Weights;
use lattice_quorum_types::{Revision, UnixMillis};
use placement::{Placement, PlannedReservation};
use serde::Serialize;
use waiting::WaitingJobs;

/// Placements to propose, reservations, and explanations of waiting jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Revision of the view on which the plan is based.
    pub revision: Revision,
    /// Age of that view, milliseconds.
    pub view_age_ms: u64,
    /// Time of the plan.
    pub made_at: UnixMillis,
    /// Weights used for the scores.
    pub weights: Weights,
    /// Placements in the order in which they must be proposed: queue order.
    pub placements: Vec<Placement>,
    /// Nodes reserved for blocked jobs.
    pub reservations: Vec<PlannedReservation>,
    /// Explanation of every pending allocation that is not placed. Always empty for a plan of starts only
    /// ([`Planner::plan_starts`](crate::Planner::plan_starts)).
    pub waiting: WaitingJobs,
}
