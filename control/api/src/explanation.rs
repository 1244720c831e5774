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

/// Why an allocation does not run, or what it does instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// When the scheduler last looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}
