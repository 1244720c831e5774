//! Node claims: nodes that belong exclusively to one user until they are released.
//!
//! See `quorum/0007-node-claims.md`.

use crate::{AllocationId, ProjectPath, UnixMillis};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The claim on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClaim {
    /// User that claimed the node.
    pub user: String,
    /// Project of the claim; the node counts against the project's limits.
    pub project: ProjectPath,
    /// Purpose as stated by the user; may be empty.
    pub purpose: String,
    /// Time at which the user claimed the node.
    pub since: UnixMillis,
    /// Phase of the claim.
    pub phase: NodeClaimPhase,
    /// Allocation that the node was taken from by force. The node counts for this allocation until the allocation ends,
    /// and for nothing else.
    pub counted_by: Option<AllocationId>,
}

/// Phase of a node claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeClaimPhase {
    /// The node accepts sensitive allocations of its user in the claim's project, and nothing else.
    Claimed,
    /// The claim was released. The node accepts no allocation until its wipe is confirmed.
    Releasing {
        /// Number of the awaited wipe. Each wipe order has a new number.
        wipe: u64,
        /// Time at which this wipe was ordered.
        since: UnixMillis,
        /// Time at which the user, or an administrator in the user's place, released the claim.
        released_at: UnixMillis,
        /// Whether an earlier wipe failed.
        has_failed: bool,
    },
    /// The wipe failed. The node is quarantined until an administrator orders another wipe or accepts the unwiped node.
    Unclean {
        /// Number of the failed wipe.
        wipe: u64,
        /// Description of the failure.
        reason: String,
        /// Time of the failure.
        since: UnixMillis,
        /// Time at which the claim was released; see [`NodeClaimPhase::Releasing`].
        released_at: UnixMillis,
    },
}

impl NodeClaim {
    /// Checks whether the node accepts allocations of its user.
    pub fn is_open(&self) -> bool {
        self.phase == NodeClaimPhase::Claimed
    }

    /// Checks whether the node accepts allocations of this user in this project.
    pub fn is_open_to(&self, user: &str, project: &ProjectPath) -> bool {
        self.is_open() && self.user == user && self.project == *project
    }

    /// Checks whether a wipe after the claim has failed. The node is then quarantined.
    pub fn has_failed(&self) -> bool {
        match self.phase {
            NodeClaimPhase::Claimed => false,
            NodeClaimPhase::Releasing { has_failed, .. } => has_failed,
            NodeClaimPhase::Unclean { .. } => true,
        }
    }

    /// Number of the wipe that the claim awaits.
    pub fn awaits_wipe(&self) -> Option<u64> {
        match self.phase {
            NodeClaimPhase::Releasing { wipe, .. } => Some(wipe),
            NodeClaimPhase::Claimed | NodeClaimPhase::Unclean { .. } => None,
        }
    }
}

impl NodeClaimPhase {
    /// Lower-case name as printed.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Releasing { .. } => "releasing",
            Self::Unclean { .. } => "unclean",
        }
    }
}

/// Result of a wipe, as the node reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WipeOutcome {
    /// The site's hook ran to its end and succeeded.
    Wiped {
        /// End time, by the node's clock.
        at: UnixMillis,
        /// Boot id of the node.
        boot: String,
        /// Last line that the hook wrote.
        evidence: String,
    },
    /// The agent's configuration declares that there is nothing to wipe.
    NotNeeded {
        /// Time of the report, by the node's clock.
        at: UnixMillis,
        /// Boot id of the node.
        boot: String,
    },
    /// The wipe failed or was interrupted, or there is no hook.
    Failed {
        /// Time of the failure, by the node's clock.
        at: UnixMillis,
        /// Boot id of the node.
        boot: String,
        /// Description of the failure.
        reason: String,
    },
}

impl fmt::Display for WipeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wiped { evidence, .. } if evidence.is_empty() => f.write_str("wiped"),
            Self::Wiped { evidence, .. } => write!(f, "wiped: {evidence}"),
            Self::NotNeeded { .. } => f.write_str("no wipe needed, by configuration of the agent"),
            Self::Failed { reason, .. } => write!(f, "not wiped: {reason}"),
        }
    }
}
