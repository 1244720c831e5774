//! Scheduling outlook of a dry run.

use super::explanation::{ExplanationView, ScoreView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Result of the next scheduling cycle for the request, in the present state of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OutlookView {
    /// Summary in one sentence.
    pub summary: String,
    /// Whether the allocation would start at once.
    pub starts_now: bool,
    /// Nodes that the allocation would start on, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Topology groups of these nodes.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Number of topology groups; each node without a known group counts as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<u32>,
    /// Score, with the topology and conformance factors of these nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreView>,
    /// Why the allocation would wait, in the form for a waiting allocation; the allocation number is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<ExplanationView>,
}
