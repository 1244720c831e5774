//! Placements and reservations of a plan.

use crate::priority::factors::Score;
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, command::ExpectedNode};
use serde::{Deserialize, Serialize};

/// Nodes for one allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Allocation to place.
    pub id: AllocationId,
    /// Nodes in rank order, by group, with the versions in the view.
    pub nodes: Vec<ExpectedNode>,
    /// Layout of the nodes.
    pub layout: Layout,
    /// Score that determined the allocation's position in the queue.
    pub score: Score,
    /// Whether the allocation starts ahead of a job with a reservation, without delaying that job.
    pub backfilled: bool,
}

impl Placement {
    /// Score with the topology and conformance of the chosen nodes.
    pub fn score_of_nodes(&self) -> Score {
        let mut score = self.score;
        score.factors.topology = self.layout.topology;
        score.factors.conformance = self.layout.conformance;
        score
    }
}

/// Layout of a node set in the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Known topology groups touched, in order.
    pub groups: Vec<String>,
    /// Nodes without a known group; each counts as a group of its own.
    pub ungrouped: u32,
    /// f4 of these nodes: 1 - groups touched / groups with nodes that fit.
    pub topology: f64,
    /// f9 of these nodes: size of their largest conformance group / number of all these nodes.
    pub conformance: f64,
}

impl Layout {
    /// Number of groups touched.
    pub fn span(&self) -> u32 {
        u32::try_from(self.groups.len())
            .unwrap_or(u32::MAX)
            .saturating_add(self.ungrouped)
    }
}

/// Nodes reserved for a blocked allocation from a time on, for as long as the allocation may run. A job that may run
/// past that time is not placed on these nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedReservation {
    /// Allocation that holds the reservation.
    pub id: AllocationId,
    /// Time from which nodes, power and bandwidth are expected to be available for the full run of the allocation.
    pub starts_at: UnixMillis,
    /// Nodes in rank order.
    pub nodes: Vec<NodeId>,
    /// Layout of the nodes.
    pub layout: Layout,
}
