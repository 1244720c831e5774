//! What is proposed for a service, and what becomes of it.

use super::{Cause, Decision};
use lattice_quorum_types::{NodeId, UnixMillis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What became of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is committed.
    Done,
    /// It was refused, or there is no node for it.
    Refused,
    /// Limits had no room for it after all. That is no error.
    LimitReached,
}

/// How a service is to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// So many nodes more.
    More(u32),
    /// This one less.
    Less(NodeId),
}

/// What was proposed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Proposal {
    pub(super) change: Change,
    pub(super) cause: Cause,
}

impl Proposal {
    pub(super) fn of(decision: &Decision) -> Option<Self> {
        let (change, cause) = match decision {
            Decision::Grow { nodes, cause, .. } => (Change::More(*nodes), *cause),
            Decision::Shrink { node, cause } => (Change::Less(node.clone()), *cause),
            Decision::Wait(_) => return None,
        };
        Some(Self { change, cause })
    }

    /// Whether that is what it led to.
    pub(super) fn explains(&self, gone: &BTreeSet<NodeId>, come: u32) -> bool {
        match &self.change {
            Change::More(_) => come > 0,
            Change::Less(node) => gone.contains(node),
        }
    }
}

/// The last change for the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) grew: bool,
    pub(super) at: UnixMillis,
}
