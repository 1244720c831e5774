//! What would become of a request that is only judged.

use crate::explanation::{ExplanationView, ScoreView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the next scheduling cycle would make of it, as things are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OutlookView {
    /// All of it in one sentence.
    pub summary: String,
    /// Whether it would start at once.
    pub starts_now: bool,
    /// The nodes it would start on, as a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// The topology groups that these are in.
    #[serde(default)]
    pub groups: Vec<String>,
    /// How many groups they are in; a node whose group is not known counts as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<u32>,
    /// Its score, with topology and conformance of these nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreView>,
    /// Why it would wait, as of one that waits; its number is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<ExplanationView>,
}
