//! Node claims: nodes that belong exclusively to one user until they are released.
//!
//! Users call this a claim (`lattice node claim`). The code calls it a tenure, since a claim in the code is a node's
//! attestation ([`crate::claim`]). See `quorum/0007-tenure.md`.

use crate::{AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName, node::Lifecycle};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest number of nodes that the text of a refusal names. The refusal's fields hold all of them.
const MAX_NAMED: usize = 16;

/// The claim on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    /// User that claimed the node.
    pub user: String,
    /// Project of the claim; the node counts against the project's limits.
    pub project: ProjectPath,
    /// Purpose as stated by the user; may be empty.
    pub purpose: String,
    /// Time at which the user claimed the node.
    pub since: UnixMillis,
    /// Phase of the claim.
    pub phase: TenurePhase,
    /// Allocation that the node was taken from by force. The node counts for this allocation until the allocation ends,
    /// and for nothing else.
    pub counted_by: Option<AllocationId>,
}

/// Phase of a node claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenurePhase {
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
        /// Time at which the claim was released; see [`TenurePhase::Releasing`].
        released_at: UnixMillis,
    },
}

impl Tenure {
    /// Checks whether the node accepts allocations of its user.
    pub fn is_open(&self) -> bool {
        self.phase == TenurePhase::Claimed
    }

    /// Checks whether the node accepts allocations of this user in this project.
    pub fn is_open_to(&self, user: &str, project: &ProjectPath) -> bool {
        self.is_open() && self.user == user && self.project == *project
    }

    /// Checks whether a wipe after the claim has failed. The node is then quarantined.
    pub fn has_failed(&self) -> bool {
        match self.phase {
            TenurePhase::Claimed => false,
            TenurePhase::Releasing { has_failed, .. } => has_failed,
            TenurePhase::Unclean { .. } => true,
        }
    }

    /// Number of the wipe that the claim awaits.
    pub fn awaits_wipe(&self) -> Option<u64> {
        match self.phase {
            TenurePhase::Releasing { wipe, .. } => Some(wipe),
            TenurePhase::Claimed | TenurePhase::Unclean { .. } => None,
        }
    }
}

impl TenurePhase {
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
            Self::NotNeeded { .. } => f.write_str("the site says that nothing is to be wiped"),
            Self::Failed { reason, .. } => write!(f, "not wiped: {reason}"),
        }
    }
}

/// A node that is not available, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Name of the node.
    pub node: NodeId,
    /// Reason why the node is not available.
    pub by: TakenBy,
}

/// Reason why a node is not available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakenBy {
    /// An allocation holds the node.
    Allocation {
        /// Holding allocation.
        id: AllocationId,
        /// User of that allocation.
        user: String,
    },
    /// A user has claimed the node.
    User {
        /// User that claimed the node.
        user: String,
        /// Project of the claim.
        project: ProjectPath,
        /// Phase of the claim.
        phase: TenurePhase,
    },
    /// The node is free but out of service.
    OutOfService {
        /// Lifecycle of the node.
        lifecycle: Lifecycle,
    },
    /// The node is free but has changed since the proposer read it.
    Changed,
    /// The node belongs to, or is lent to, another vCluster, or is reclaimed by its own one.
    Vcluster {
        /// The vCluster.
        home: VclusterName,
    },
    /// The node is promised to an allocation: victims release it for that allocation.
    Promised {
        /// Allocation that gets the node next.
        id: AllocationId,
    },
}

impl fmt::Display for TakenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocation { id, user } => write!(f, "is held by allocation {id} of {user}"),
            Self::User {
                user,
                project,
                phase: TenurePhase::Claimed,
            } => write!(f, "is claimed by {user} for project \"{project}\""),
            Self::User {
                user,
                phase: TenurePhase::Releasing { .. },
                ..
            } => write!(f, "was released by {user} and is not wiped yet"),
            Self::User {
                user,
                phase: TenurePhase::Unclean { reason, .. },
                ..
            } => write!(f, "could not be wiped after {user}: {reason}"),
            Self::OutOfService { lifecycle } => write!(f, "is {lifecycle}"),
            Self::Changed => f.write_str("has changed since it was read"),
            Self::Vcluster { home } => write!(f, "belongs to vCluster \"{home}\""),
            Self::Promised { id } => write!(f, "is reserved for allocation {id}"),
        }
    }
}

/// Formats the first nodes with their reasons, and the number of the remaining ones.
pub(crate) fn fmt_taken(f: &mut fmt::Formatter<'_>, nodes: &[Taken]) -> fmt::Result {
    for (i, Taken { node, by }) in nodes.iter().take(MAX_NAMED).enumerate() {
        let separator = if i == 0 { " " } else { "; " };
        write!(f, "{separator}node {node} {by}")?;
    }
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => Ok(()),
        more => write!(f, "; and {more} more nodes"),
    }
}
