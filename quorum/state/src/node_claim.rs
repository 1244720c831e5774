//! Index of node claims, so that no limit check scans all nodes. See `../../0007-node-claims.md`.

use crate::change::UsageDirection;
use lattice_quorum_types::{Allocation, NodeId, ProjectPath, limit::Usage, node::Node};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Index of node claims, derived from nodes and allocations, and updated with every change of a node or allocation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct NodeClaims {
    /// Claimed nodes open to allocations of their claimant, by user and project.
    open: BTreeMap<(String, ProjectPath), BTreeSet<NodeId>>,
    /// Number of claimed nodes, including those that await their wipe, that no allocation holds or counts.
    alone: u64,
    /// Number of nodes of the sensitive allocations that hold nodes.
    sensitive: u64,
}

impl NodeClaims {
    /// Number of nodes in sensitive use, claimed or not.
    pub(crate) fn sensitive_pool_nodes(&self) -> u64 {
        self.alone + self.sensitive
    }

    /// Claimed nodes open to allocations of this user in this project, idle or not.
    pub(crate) fn open_to(
        &self,
        user: &str,
        project: &ProjectPath,
    ) -> impl Iterator<Item = &NodeId> {
        let key = (user.to_owned(), project.clone());
        self.open.get(&key).into_iter().flatten()
    }

    /// Updates the index after a change of a node.
    pub(crate) fn follow_node(&mut self, before: Option<&Node>, after: &Node) {
        let alone = |node: &Node| u64::from(node.is_claimed_and_uncounted());
        self.alone = self.alone + alone(after) - before.map_or(0, alone);
        let node_claim = before.and_then(|node| node.node_claim.as_ref());
        if node_claim == after.node_claim.as_ref() {
            return;
        }
        if let Some(before) = node_claim.filter(|node_claim| node_claim.is_open()) {
            let key = (before.user.clone(), before.project.clone());
            if let Some(nodes) = self.open.get_mut(&key) {
                nodes.remove(&after.id);
                if nodes.is_empty() {
                    self.open.remove(&key);
                }
            }
        }
        if let Some(now) = after
            .node_claim
            .as_ref()
            .filter(|node_claim| node_claim.is_open())
        {
            let key = (now.user.clone(), now.project.clone());
            self.open.entry(key).or_default().insert(after.id.clone());
        }
    }

    /// Updates the number of nodes of sensitive allocations after a change of an allocation.
    pub(crate) fn follow_allocation(&mut self, before: Option<&Allocation>, after: &Allocation) {
        let before = before.map_or(0, Allocation::sensitive_nodes);
        self.sensitive = self.sensitive + after.sensitive_nodes() - before;
    }
}

/// Usage changes of one command by project: added and subtracted usage. All changes are committed at once, so watchers
/// never receive an intermediate sum.
#[derive(Debug, Default)]
pub(crate) struct UsageChanges(BTreeMap<ProjectPath, (Usage, Usage)>);

/// Usage of one claimed node.
const ONE_NODE: Usage = Usage {
    nodes: 1,
    allocations: 0,
};

impl UsageChanges {
    /// Records added or subtracted usage.
    pub(crate) fn count(&mut self, project: ProjectPath, usage: Usage, direction: UsageDirection) {
        let (more, less) = self.0.entry(project).or_default();
        match direction {
            UsageDirection::Add => *more = more.with(usage),
            UsageDirection::Subtract => *less = less.with(usage),
        }
    }

    /// Records the change of usage by the claim of a changed node.
    pub(crate) fn follow_node(&mut self, before: Option<&Node>, after: &Node) {
        let counts = |node: &Node| Some(node.claim_project()?.clone());
        let (was, is) = (before.and_then(counts), counts(after));
        if was == is {
            return;
        }
        if let Some(project) = was {
            self.count(project, ONE_NODE, UsageDirection::Subtract);
        }
        if let Some(project) = is {
            self.count(project, ONE_NODE, UsageDirection::Add);
        }
    }

    /// Net changes by project, zero changes left out.
    pub(crate) fn into_changes(self) -> impl Iterator<Item = (ProjectPath, Usage, UsageDirection)> {
        self.0.into_iter().flat_map(|(project, (more, less))| {
            let sums = [
                (excess(less, more), UsageDirection::Subtract),
                (excess(more, less), UsageDirection::Add),
            ];
            let sums = sums.into_iter();
            let sums = sums.filter(|(usage, _)| *usage != Usage::default());
            sums.map(move |(usage, direction)| (project.clone(), usage, direction))
        })
    }
}

/// Excess of `one` over `other`, by resource.
fn excess(one: Usage, other: Usage) -> Usage {
    Usage {
        nodes: one.nodes.saturating_sub(other.nodes),
        allocations: one.allocations.saturating_sub(other.allocations),
    }
}
