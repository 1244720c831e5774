//! Facts: what is counted and billed, written down as it happens. They are rows of an append-only table of the
//! state, so whatever reads them can always begin anew, at any row.
//!
//! Only the time in which nodes were used is here. What that comes to in GPU-hours follows from what the nodes
//! have, which the quorum does not know.

use crate::{
    AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis, VclusterName,
    budget::SoftLimits, limit::Limits,
};
use serde::{Deserialize, Serialize};

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Counts them, from 1.
    pub number: u64,
    /// The revision that made it.
    pub revision: Revision,
    /// Its position among the facts of that revision, from 0. With the revision it names the fact for ever.
    pub ordinal: u32,
    /// State time.
    pub at: UnixMillis,
    /// What happened.
    pub kind: FactKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// All ranks of an attempt run: its nodes are used from now on.
    Started {
        /// Whose.
        work: Work,
        /// They.
        nodes: Vec<NodeId>,
        /// What is left of its walltime, milliseconds; `None` is unbounded.
        walltime_ms: Option<u64>,
    },
    /// More nodes are used by work that runs.
    Grew {
        /// Whose.
        work: Work,
        /// They.
        nodes: Vec<NodeId>,
    },
    /// Nodes are not used any more by work that has not ended: it shrank, was suspended, or waits again.
    Used {
        /// Whose.
        work: Work,
        /// Which, and for how long.
        uses: Vec<Use>,
    },
    /// Work has ended.
    Completed {
        /// Which.
        work: Work,
        /// How.
        state: AllocationState,
        /// Why, where it did not end by itself.
        cause: Option<String>,
        /// When its first attempt began to run.
        started_at: Option<UnixMillis>,
        /// What was used until now, and is not any more.
        uses: Vec<Use>,
        /// What all its attempts used, node-milliseconds.
        node_ms: u64,
    },
    /// A checkpoint is whole.
    Checkpointed {
        /// Whose.
        work: Work,
        /// Its number.
        number: u32,
        /// Bytes, where every rank said.
        bytes: Option<u64>,
        /// How long it took, milliseconds.
        took_ms: u64,
    },
    /// Nodes belong to a user, and are idle until work of theirs runs there.
    Claimed {
        /// Whose.
        claim: Claimant,
        /// They.
        nodes: Vec<NodeId>,
    },
    /// Claimed nodes are idle from now on.
    Idles {
        /// Whose.
        claim: Claimant,
        /// They.
        nodes: Vec<NodeId>,
    },
    /// Claimed nodes were idle.
    Idled {
        /// Whose.
        claim: Claimant,
        /// Which, and for how long.
        uses: Vec<Use>,
    },
    /// A node is nobody's any more.
    Released {
        /// Whose it was.
        claim: Claimant,
        /// Which.
        node: NodeId,
        /// Since when it was theirs.
        claimed_at: UnixMillis,
        /// When they gave it back.
        released_at: UnixMillis,
        /// What became of its wipe, in words.
        wipe: String,
        /// Whether it was wiped by its own word, or needed no wipe by the site's.
        wiped: bool,
    },
    /// A tenant's limits are others.
    LimitsChanged {
        /// Whose.
        tenant: ProjectPath,
        /// As they are now.
        limits: Limits,
        /// As they are now.
        soft: SoftLimits,
        /// Who said so.
        by: String,
    },
}

/// Whose work it is, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Work {
    /// Which allocation.
    pub allocation: AllocationId,
    /// Its attempt; 0 for work that never had nodes.
    pub attempt: u32,
    /// Whose.
    pub user: String,
    /// In which project.
    pub project: ProjectPath,
    /// In which vCluster.
    pub vcluster: VclusterName,
    /// Whether it is sensitive.
    pub sensitive: bool,
}

/// Who claimed nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claimant {
    /// Who.
    pub user: String,
    /// For which project.
    pub project: ProjectPath,
    /// The vCluster that the nodes belong to.
    pub vcluster: VclusterName,
}

/// Nodes that were used, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// They.
    pub nodes: Vec<NodeId>,
    /// Since when.
    pub from: UnixMillis,
    /// Until when.
    pub until: UnixMillis,
}

impl Use {
    /// Node-milliseconds.
    pub fn node_ms(&self) -> u64 {
        let nodes = self.nodes.len() as u64;
        nodes.saturating_mul(self.until.since(self.from))
    }
}

/// Nodes that are used at present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenUse {
    /// By whom.
    pub by: User,
    /// They.
    pub nodes: Vec<NodeId>,
    /// Since when.
    pub from: UnixMillis,
}

/// Who uses nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum User {
    /// Work.
    Work(Work),
    /// A claim: nodes of it that are idle.
    Claim(Claimant),
}

/// Where the facts stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactsHead {
    /// Number of the last one; 0 before the first.
    pub last: u64,
    /// Up to which an accounting system has them.
    pub acknowledged: u64,
    /// How many of those it never got.
    pub dropped: u64,
    /// The revision that this is of.
    pub revision: Revision,
    /// State time then.
    pub at: UnixMillis,
}
