//! Explanations: why an allocation waits, and its place in the queue.

use super::allocation::ElementView;
use crate::nodes::node_status::NodeProblemView;
use lattice_quorum_types::AllocationId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Effect of one constraint on the remaining nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepView {
    /// Description of the constraint.
    pub constraint: String,
    /// Nodes that the constraint removed.
    pub removed: u32,
    /// Nodes that remained.
    pub left: u32,
}

/// One of the nine factors of the score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FactorView {
    /// Factor name, equal to the name of its weight.
    pub name: String,
    /// Factor value: 0 to 1; only wait_time exceeds 1.
    pub value: f64,
    /// Weight of the factor in the vCluster.
    pub weight: f64,
}

/// Score, which determines the place in the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScoreView {
    /// The nine factors, in the order of the scheduling document.
    pub factors: Vec<FactorView>,
    /// Sum of the values times the weights.
    pub sum: f64,
    /// Budget factor of the tenant: 1 up to 80 % of a budget used, 0.05 when it is used up.
    pub budget: f64,
    /// Share factor of the tenant: 0.05 while it holds at least as many nodes as its burst allowance permits, else 1.
    /// An earlier version of control leaves this field and `accounting` out, and combines all three factors in
    /// `budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Accounting factor of the tenant: 0.05 while the accounting system requests that its allocations rank behind
    /// those of others, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting: Option<f64>,
    /// Product of the sum and the lowest of the factors `budget`, `share` and `accounting`, by which the queue is
    /// ordered.
    pub total: f64,
    /// Number of allocations of the queue that the last cycle considered before this one.
    pub ahead: u32,
}

/// Explanation of an allocation's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplanationView {
    /// Allocation number.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Array of which the allocation is an element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementView>,
    /// State of the allocation.
    pub state: String,
    /// Summary in one sentence.
    pub summary: String,
    /// Blocking condition, if the allocation waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    /// Constraints in the order in which they were applied.
    #[serde(default)]
    pub steps: Vec<StepView>,
    /// Estimated start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start: Option<String>,
    /// Nodes that are reserved for the allocation from the estimated start on, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
    /// Score of the allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreView>,
    /// Time of the scheduling cycle that produced this explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// End of the walltime, by the nodes' clocks, while the processes run; absent when unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// Time at which SIGKILL is due: the walltime has ended, or the allocation is being stopped, and processes still
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_at: Option<String>,
    /// Nodes of the allocation that are out of order, out of service or unknown, while it holds them; worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_problems: Vec<NodeProblemView>,
}
