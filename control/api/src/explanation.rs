//! Why an allocation is where it is.

use lattice_quorum_types::AllocationId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One constraint's effect on the nodes that were left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepView {
    /// The constraint in words.
    pub constraint: String,
    /// Nodes it dropped.
    pub removed: u32,
    /// Nodes that were left.
    pub left: u32,
}

/// One of the nine factors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FactorView {
    /// Its name, as that of its weight.
    pub name: String,
    /// The factor: 0 to 1; only wait_time goes above.
    pub value: f64,
    /// Its weight in the vCluster.
    pub weight: f64,
}

/// What decided about the place in the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScoreView {
    /// The nine factors, in the order of the scheduling document.
    pub factors: Vec<FactorView>,
    /// Values times weights, added up.
    pub sum: f64,
    /// What the tenant's budgets leave of it: 1 up to 80 % used, 0.05 when used up.
    pub budget: f64,
    /// The product, by which the queue is ordered.
    pub total: f64,
    /// How many of its queue were looked at before it in the last cycle.
    pub ahead: u32,
}

/// Why an allocation does not run, or what it does instead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplanationView {
    /// Which.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Its state.
    pub state: String,
    /// All of it in one sentence.
    pub summary: String,
    /// What stops it, for one that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    /// Constraints in the order in which they were applied.
    #[serde(default)]
    pub steps: Vec<StepView>,
    /// When it is expected to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start: Option<String>,
    /// Nodes that are held back for it from then on, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
    /// Its place in the queue, and why it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreView>,
    /// When the scheduler last looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}
