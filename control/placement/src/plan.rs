//! The solver's answer.

use crate::{factors::Score, policy::Weights, waiting::Waiting};
use lattice_quorum_types::{AllocationId, NodeId, Revision, UnixMillis, command::ExpectedNode};
use serde::{Deserialize, Serialize};

/// What to propose, what is held back, and why the rest waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Revision of the view it was made on.
    pub revision: Revision,
    /// Age of that view, milliseconds.
    pub view_age_ms: u64,
    /// When it was made.
    pub made_at: UnixMillis,
    /// The weights that the scores were made with.
    pub weights: Weights,
    /// To be proposed in this order: the order of the queue.
    pub placements: Vec<Placement>,
    /// Nodes held back for blocked jobs.
    pub reservations: Vec<Reservation>,
    /// Every pending allocation that is not placed, and why. Empty where starts alone were asked for
    /// ([`Planner::plan_starts`](crate::Planner::plan_starts)), whoever waits.
    pub waiting: Waiting,
}

/// Nodes for one allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// The allocation.
    pub id: AllocationId,
    /// Its nodes in rank order, by group, with the versions this plan was made on.
    pub nodes: Vec<ExpectedNode>,
    /// Where they lie.
    pub layout: Layout,
    /// The score by which it was ranked.
    pub score: Score,
    /// It starts ahead of a job with a reservation, without delaying it.
    pub backfilled: bool,
}

impl Placement {
    /// The score with what is known of topology and conformance since nodes were chosen.
    pub fn score_of_nodes(&self) -> Score {
        let mut score = self.score;
        score.factors.topology = self.layout.topology;
        score.factors.conformance = self.layout.conformance;
        score
    }
}

/// How a node set lies in the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Known topology groups it touches, in order.
    pub groups: Vec<String>,
    /// Nodes whose group is not known; each counts as a group of its own.
    pub ungrouped: u32,
    /// f4 of these nodes: 1 - groups touched / groups with nodes that fit.
    pub topology: f64,
    /// f9 of these nodes: largest conformance group among them / their number.
    pub conformance: f64,
}

impl Layout {
    /// Groups touched.
    pub fn span(&self) -> u32 {
        u32::try_from(self.groups.len())
            .unwrap_or(u32::MAX)
            .saturating_add(self.ungrouped)
    }
}

/// Nodes held for a blocked allocation from a time on, for as long as it may run. Nothing that runs past
/// the time is placed on them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// The allocation.
    pub id: AllocationId,
    /// When all it asks for is expected to be there until it is over: nodes, power and bandwidth.
    pub starts_at: UnixMillis,
    /// Its nodes in rank order.
    pub nodes: Vec<NodeId>,
    /// Where they lie.
    pub layout: Layout,
}
