//! Nodes as the quorum knows them: who holds them and what is intended for them. What they *are*
//! (inventory, health) is gossiped and read directly, never replicated.

use crate::{
    AllocationId, NodeId, ProjectPath, Revision, UnixMillis, VclusterName, spec::AllocationSpec,
    tenure::Tenure,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Intent for a node. Liveness and health are separate words and live elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Known by name, not yet accepted for work.
    Joining,
    /// May be given work.
    Ready,
    /// Keeps what runs, gets nothing new.
    Draining,
    /// Drained and empty.
    Drained,
    /// Out of use until a person looks.
    Quarantined,
    /// Gone for good.
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

/// Who holds a node: one allocation attempt at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The allocation.
    pub allocation: AllocationId,
    /// Its attempt.
    pub attempt: u32,
}

/// A drain reason with its owner: clearing one owner's reason does not undrain another's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReason {
    /// Who set it: a principal or a check.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: UnixMillis,
}

/// A node's replicated record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// What is intended for it.
    pub lifecycle: Lifecycle,
    /// Open drain reasons, one per owner.
    pub drain: Vec<DrainReason>,
    /// The allocation that holds it.
    pub holder: Option<Holder>,
    /// Grows with each change of holder, lifecycle or vCluster. Assignments name the version they
    /// expect, so that a plan made on an older view is refused.
    pub version: u64,
    /// The vCluster it belongs to.
    pub home: VclusterName,
    /// The vCluster that uses it now; differs from `home` while it is lent.
    pub current: VclusterName,
    /// When it was registered.
    pub registered_at: UnixMillis,
    /// Last change.
    pub revision: Revision,
    /// The user it belongs to, until it is given back and wiped.
    pub tenure: Option<Tenure>,
    /// The pending allocation that gets it next: others made, or make, room for that one.
    #[serde(default)]
    pub promised: Option<AllocationId>,
    /// Since when its own vCluster wants it back, while it is lent. It gets no new work there.
    #[serde(default)]
    pub recalled_at: Option<UnixMillis>,
}

impl Node {
    /// Ready, not held, no drain reason, nobody's, promised to nobody and not wanted back: may be assigned
    /// to anybody.
    pub fn is_assignable(&self) -> bool {
        self.is_free()
            && self.tenure.is_none()
            && self.promised.is_none()
            && self.recalled_at.is_none()
    }

    /// May be assigned to this work of that user: a node that belongs to somebody takes nothing but
    /// their sensitive work in the project for which they claimed it.
    pub fn is_assignable_to(&self, user: &str, spec: &AllocationSpec) -> bool {
        let is_theirs = |tenure: &Tenure| spec.sensitive && tenure.is_open_to(user, &spec.project);
        self.is_free() && self.tenure.as_ref().is_none_or(is_theirs)
    }

    fn is_free(&self) -> bool {
        self.lifecycle == Lifecycle::Ready && self.holder.is_none() && self.drain.is_empty()
    }

    /// It belongs to somebody, and no allocation counts it.
    pub fn is_tenured_alone(&self) -> bool {
        let tenure = self.tenure.as_ref();
        self.holder.is_none() && tenure.is_some_and(|tenure| tenure.counted_by.is_none())
    }

    /// The project against whose limits it counts because it was claimed for it. What holds it counts
    /// it instead, and one that was given back counts for nobody.
    pub fn counts_for(&self) -> Option<&ProjectPath> {
        let tenure = self.tenure.as_ref().filter(|tenure| tenure.is_open())?;
        self.is_tenured_alone().then_some(&tenure.project)
    }
}
