//! Nodes: replicated records with holder, lifecycle and vCluster.
//!
//! The inventory and the health of a node are gossiped and read directly, never replicated.

use crate::{
    AllocationId, AllocationName, NameLookup, NodeId, ProjectPath, Revision, UnixMillis,
    VclusterName,
    node_claim::{NodeClaim, NodeClaimPhase},
    spec::AllocationSpec,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest number of nodes that the text of a refusal names. The refusal's fields hold all of them.
const MAX_NAMED: usize = 16;

/// Intended state of a node. Liveness and health are separate and not part of the replicated state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Known by name, not yet accepted for allocations.
    Joining,
    /// In service: may get allocations.
    Ready,
    /// Keeps its running allocation and gets no new one.
    Draining,
    /// Drained and empty.
    Drained,
    /// Out of use until an operator has checked the node.
    Quarantined,
    /// Permanently removed.
    Retired,
}

impl Lifecycle {
    /// Lower-case name as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Lifecycle::Joining => "joining",
            Lifecycle::Ready => "ready",
            Lifecycle::Draining => "draining",
            Lifecycle::Drained => "drained",
            Lifecycle::Quarantined => "quarantined",
            Lifecycle::Retired => "retired",
        }
    }
}

impl fmt::Display for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Holder of a node: at most one attempt of one allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Allocation that holds the node.
    pub allocation: AllocationId,
    /// Attempt of the allocation.
    pub attempt: u32,
}

/// A drain reason with its owner. Each owner clears only its own reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReason {
    /// Owner: a principal or a check.
    pub owner: String,
    /// Description of the reason.
    pub reason: String,
    /// Time at which the reason was set.
    pub since: UnixMillis,
}

/// A node's replicated record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the node.
    pub id: NodeId,
    /// Lifecycle (intended state).
    pub lifecycle: Lifecycle,
    /// Open drain reasons, one for each owner.
    pub drain: Vec<DrainReason>,
    /// Allocation that holds the node.
    pub holder: Option<Holder>,
    /// Version for plans: grows with each change of holder, lifecycle, vCluster, claim, promise or reclaim. Assignments
    /// name the expected version, so that a plan from an older view is refused.
    pub version: u64,
    /// Home vCluster: the vCluster that the node belongs to.
    pub home: VclusterName,
    /// Current vCluster: the vCluster that uses the node now; differs from `home` while the node is lent.
    pub current: VclusterName,
    /// Time of registration.
    pub registered_at: UnixMillis,
    /// Revision of the last change.
    pub revision: Revision,
    /// Node claim, until it is released and the node is wiped.
    pub node_claim: Option<NodeClaim>,
    /// Pending allocation that the node is promised to. Victims release, or have released, the node for this
    /// allocation.
    #[serde(default)]
    pub promised: Option<AllocationId>,
    /// Time since which the home vCluster reclaims the node, while the node is lent. A reclaimed node gets no new
    /// allocation of the borrower.
    #[serde(default)]
    pub reclaimed_at: Option<UnixMillis>,
}

impl Node {
    /// Checks whether the node may be assigned to any allocation: ready, not held, no drain reason, not claimed, not
    /// promised and not reclaimed.
    pub fn is_assignable(&self) -> bool {
        self.is_free()
            && self.node_claim.is_none()
            && self.promised.is_none()
            && self.reclaimed_at.is_none()
    }

    /// Checks whether the node may be assigned to an allocation of this user. A claimed node accepts only sensitive
    /// allocations of the claimant in the claim's project. Promises and reclaims are not checked here.
    pub fn is_assignable_to(&self, user: &str, spec: &AllocationSpec) -> bool {
        let is_theirs =
            |node_claim: &NodeClaim| spec.sensitive && node_claim.is_open_to(user, &spec.project);
        self.is_free() && self.node_claim.as_ref().is_none_or(is_theirs)
    }

    fn is_free(&self) -> bool {
        self.lifecycle == Lifecycle::Ready && self.holder.is_none() && self.drain.is_empty()
    }

    /// Checks whether the node is claimed and counts for no allocation.
    pub fn is_claimed_and_uncounted(&self) -> bool {
        let node_claim = self.node_claim.as_ref();
        self.holder.is_none()
            && node_claim.is_some_and(|node_claim| node_claim.counted_by.is_none())
    }

    /// Project that the node counts against because of its claim. The node counts for an allocation instead while that
    /// allocation holds it, or counts it after a forced release ([`NodeClaim::counted_by`]). After the release of the
    /// claim it counts for no project.
    pub fn claim_project(&self) -> Option<&ProjectPath> {
        let node_claim = self
            .node_claim
            .as_ref()
            .filter(|node_claim| node_claim.is_open())?;
        self.is_claimed_and_uncounted()
            .then_some(&node_claim.project)
    }
}

/// A node that is not available, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableNode {
    /// Name of the node.
    pub node: NodeId,
    /// Reason why the node is not available.
    pub by: UnavailableReason,
}

/// Reason why a node is not available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnavailableReason {
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
        phase: NodeClaimPhase,
    },
    /// The node is free but out of service.
    OutOfService {
        /// Lifecycle of the node.
        lifecycle: Lifecycle,
    },
    /// The node is free but has changed since the proposer read it.
    Changed,
    /// The node belongs to, or is lent to, another vCluster, or is reclaimed by its home vCluster.
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

impl UnavailableReason {
    fn fmt_named(&self, f: &mut fmt::Formatter<'_>, name: NameLookup<'_>) -> fmt::Result {
        match self {
            Self::Allocation { id, user } => {
                write!(f, "is held by allocation {} of {user}", name(*id))
            }
            Self::User {
                user,
                project,
                phase: NodeClaimPhase::Claimed,
            } => write!(f, "is claimed by {user} for project \"{project}\""),
            Self::User {
                user,
                phase: NodeClaimPhase::Releasing { .. },
                ..
            } => write!(f, "was released by {user} and is not wiped yet"),
            Self::User {
                user,
                phase: NodeClaimPhase::Unclean { reason, .. },
                ..
            } => write!(f, "could not be wiped after {user}: {reason}"),
            Self::OutOfService { lifecycle } => write!(f, "is {lifecycle}"),
            Self::Changed => f.write_str("has changed since it was read"),
            Self::Vcluster { home } => write!(f, "belongs to vCluster \"{home}\""),
            Self::Promised { id } => write!(f, "is promised to allocation {}", name(*id)),
        }
    }
}

impl fmt::Display for UnavailableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_named(f, &AllocationName::of_id)
    }
}

/// Formats the first nodes with their reasons, and the number of the remaining ones.
pub(crate) fn fmt_taken(
    f: &mut fmt::Formatter<'_>,
    nodes: &[UnavailableNode],
    name: NameLookup<'_>,
) -> fmt::Result {
    for (i, UnavailableNode { node, by }) in nodes.iter().take(MAX_NAMED).enumerate() {
        let separator = if i == 0 { " " } else { "; " };
        write!(f, "{separator}node {node} ")?;
        by.fmt_named(f, name)?;
    }
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => Ok(()),
        more => write!(f, "; and {more} more nodes"),
    }
}
