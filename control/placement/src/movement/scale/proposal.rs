//! Scaling proposals and their outcome.

use super::{Cause, Decision};
use lattice_quorum_types::{NodeId, UnixMillis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Outcome of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalOutcome {
    /// The change is committed.
    Done,
    /// The change was rejected, or no node was available.
    Refused,
    /// The limits had no headroom for the change when it was proposed. This does not count as a rejection.
    LimitReached,
}

/// Change of a service's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// Add this number of nodes.
    More(u32),
    /// Release this node.
    Less(NodeId),
}

/// Proposed change, with its cause.
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

    /// Whether the proposal explains that the nodes `gone` left the service and `come` nodes were added.
    pub(super) fn matches(&self, gone: &BTreeSet<NodeId>, come: u32) -> bool {
        match &self.change {
            Change::More(_) => come > 0,
            Change::Less(node) => gone.contains(node),
        }
    }
}

/// Last change caused by the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastMetricChange {
    pub(super) grew: bool,
    pub(super) at: UnixMillis,
}
