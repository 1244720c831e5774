//! Nodes that belong to one user: claiming them, and giving them back.

use lattice_quorum_types::{Revision, tenure::Tenure, tenure::TenurePhase};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whose a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimView {
    /// The user who claimed it.
    pub user: String,
    /// The project against whose limits it counts.
    pub project: String,
    /// What for, in the user's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Since when.
    pub since: String,
    /// `claimed`: takes its user's sensitive work; `releasing`: given back, and not wiped yet;
    /// `unclean`: its wipe failed.
    pub state: String,
    /// How its wipe failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<&Tenure> for ClaimView {
    fn from(tenure: &Tenure) -> Self {
        let purpose = Some(tenure.purpose.clone()).filter(|purpose| !purpose.is_empty());
        let reason = match &tenure.phase {
            TenurePhase::Unclean { reason, .. } => Some(reason.clone()),
            TenurePhase::Claimed | TenurePhase::Releasing { .. } => None,
        };
        Self {
            user: tenure.user.clone(),
            project: tenure.project.to_string(),
            purpose,
            since: crate::text::time(tenure.since),
            state: tenure.phase.as_str().to_owned(),
            reason,
        }
    }
}

/// Nodes are to belong to the caller alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The project against whose limits they count, and whose sensitive work they take.
    #[schema(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
        min_length = 1,
        max_length = 4096,
        example = "atlas/physics"
    )]
    pub project: String,
    /// What for; kept in the audit.
    #[serde(default)]
    pub purpose: String,
}

/// What a claim did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// The revision it made.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// The nodes, as a hostlist.
    pub nodes: String,
}

/// Claimed nodes are given back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Why; needed from who is not the claimant, and kept in the audit.
    #[serde(default)]
    pub reason: Option<String>,
    /// What is done about the wipe.
    #[serde(default)]
    pub wipe: Wipe,
}

/// What is done about the wipe of nodes that are given back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wipe {
    /// They are wiped, and free once that is confirmed.
    #[default]
    Once,
    /// It failed, or hangs: they are wiped again. For administrators.
    Again,
    /// They are taken for clean although they were not wiped: who asks answers for that. For
    /// administrators.
    Waive,
}

impl Wipe {
    /// As it is written.
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
        named.ok_or_else(|| format!("{text:?} is none of once, again, waive"))
    }
}

/// What a release did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Released {
    /// The last revision it made.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// The nodes, as a hostlist. They are free when their wipe is confirmed.
    pub nodes: String,
}
