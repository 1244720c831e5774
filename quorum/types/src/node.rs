//! Nodes: replicated records with holder, lifecycle and vCluster.
//!
//! What a node consists of (inventory, health) is gossiped and read directly, never replicated.

use crate::{
    AllocationId, NodeId, ProjectPath, Revision, UnixMillis, VclusterName, spec::AllocationSpec,
    tenure::Tenure,
};
use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// vCluster that the node belongs to.
    pub home: VclusterName,
    /// vCluster that the node serves now; differs from `home` while the node is lent.
    pub current: VclusterName,
    /// Time of registration.
    pub registered_at: UnixMillis,
    /// Revision of the last change.
    pub revision: Revision,
    /// Node claim, until it is released and the node is wiped.
    pub tenure: Option<Tenure>,
    /// Pending allocation that the node is promised to. Victims release, or have released, the node for this
    /// allocation.
    #[serde(default)]
    pub promised: Option<AllocationId>,
    /// Time since which the node's own vCluster reclaims it, while the node is lent. A reclaimed node gets no new
    /// allocation of the borrower.
    #[serde(default)]
    pub recalled_at: Option<UnixMillis>,
}

impl Node {
    /// Checks whether the node may be assigned to any allocation: ready, not held, no drain reason, not claimed, not
    /// promised and not reclaimed.
    pub fn is_assignable(&self) -> bool {
        self.is_free()
            && self.tenure.is_none()
            && self.promised.is_none()
            && self.recalled_at.is_none()
    }

    /// Checks whether the node may be assigned to an allocation of this user. A claimed node accepts only sensitive
    /// allocations of the claimant in the claim's project. Promises and reclaims are not checked here.
    pub fn is_assignable_to(&self, user: &str, spec: &AllocationSpec) -> bool {
        let is_theirs = |tenure: &Tenure| spec.sensitive && tenure.is_open_to(user, &spec.project);
        self.is_free() && self.tenure.as_ref().is_none_or(is_theirs)
    }

    fn is_free(&self) -> bool {
        self.lifecycle == Lifecycle::Ready && self.holder.is_none() && self.drain.is_empty()
    }

    /// Checks whether the node is claimed and counts for no allocation.
    pub fn is_tenured_alone(&self) -> bool {
        let tenure = self.tenure.as_ref();
        self.holder.is_none() && tenure.is_some_and(|tenure| tenure.counted_by.is_none())
    }

    /// Project that the node counts against because of its claim. The node counts for its holder instead while it is
    /// held, and for no project after the claim is released.
    pub fn counts_for(&self) -> Option<&ProjectPath> {
        let tenure = self.tenure.as_ref().filter(|tenure| tenure.is_open())?;
        self.is_tenured_alone().then_some(&tenure.project)
    }
}
