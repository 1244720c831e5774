//! Node claims: a user's exclusive right to nodes, and its release.

use lattice_quorum_types::{Revision, node_claim::NodeClaim, node_claim::NodeClaimPhase};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Node claim as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimView {
    /// User that claimed the node.
    pub user: String,
    /// Project for limits and usage of the node.
    pub project: String,
    /// Free-text purpose, given by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Time of the claim.
    pub since: String,
    /// `claimed`: the node takes sensitive allocations of its user; `releasing`: released and not wiped yet;
    /// `unclean`: the wipe failed.
    pub state: String,
    /// Why the wipe failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<&NodeClaim> for ClaimView {
    fn from(node_claim: &NodeClaim) -> Self {
        let purpose = Some(node_claim.purpose.clone()).filter(|purpose| !purpose.is_empty());
        let reason = match &node_claim.phase {
            NodeClaimPhase::Unclean { reason, .. } => Some(reason.clone()),
            NodeClaimPhase::Claimed | NodeClaimPhase::Releasing { .. } => None,
        };
        Self {
            user: node_claim.user.clone(),
            project: node_claim.project.to_string(),
            purpose,
            since: crate::notation::text::time(node_claim.since),
            state: node_claim.phase.as_str().to_owned(),
            reason,
        }
    }
}

/// Request to claim nodes for the caller alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// Project for limits and usage of the nodes. The nodes take sensitive allocations of this project.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        min_length = 1,
        max_length = 4096,
        example = "atlas/physics"
    )]
    pub project: String,
    /// Free-text purpose; kept in the audit.
    #[serde(default)]
    pub purpose: String,
}

/// Result of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimResult {
    /// Revision of the change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Claimed nodes, as a hostlist.
    pub nodes: String,
}

/// Request to release claimed nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Reason; required from a caller other than the claimant, and kept in the audit.
    #[serde(default)]
    pub reason: Option<String>,
    /// Handling of the wipe.
    #[serde(default)]
    pub wipe: Wipe,
}

/// Handling of the wipe of released nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wipe {
    /// Wipe the nodes, which become free when the wipe is confirmed.
    #[default]
    Once,
    /// Repeat a wipe that failed or hangs. For administrators.
    Again,
    /// Treat the nodes as clean although they were not wiped; the caller takes responsibility. For administrators.
    Waive,
}

impl Wipe {
    /// Returns the word that the API and the CLI use.
    pub fn as_str(self) -> &'static str {
        match self {
            Wipe::Once => "once",
            Wipe::Again => "again",
            Wipe::Waive => "waive",
        }
    }
}

impl std::str::FromStr for Wipe {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Wipe::Once, Wipe::Again, Wipe::Waive];
        let named = all.into_iter().find(|wipe| wipe.as_str() == text);
        named.ok_or_else(|| format!("{text:?} is not one of once, again, waive"))
    }
}

/// Result of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseResult {
    /// Last revision of the change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Released nodes, as a hostlist; a node becomes free when its wipe is confirmed.
    pub nodes: String,
}
