//! What is kept beside the nodes about those that belong to users, so that no gate walks all nodes.
//! See `../../0007-tenure.md`.

use crate::change::Direction;
use lattice_quorum_types::{Allocation, NodeId, ProjectPath, limit::Usage, node::Node};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Follows from nodes and allocations, and is kept with every change of one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tenures {
    /// Nodes that take their claimant's work, by user and project.
    open: BTreeMap<(String, ProjectPath), BTreeSet<NodeId>>,
    /// Nodes with a tenure that no allocation counts.
    alone: u64,
    /// Nodes that allocations of sensitive work count.
    sensitive: u64,
}

impl Tenures {
    /// Nodes that are in sensitive use, claimed or not.
    pub(crate) fn pool(&self) -> u64 {
        self.alone + self.sensitive
    }

    /// The nodes that take this user's work for this project, whether or not something runs there.
    pub(crate) fn open_to(
        &self,
        user: &str,
        project: &ProjectPath,
    ) -> impl Iterator<Item = &NodeId> {
        let key = (user.to_owned(), project.clone());
        self.open.get(&key).into_iter().flatten()
    }

    /// A node's record became another.
    pub(crate) fn follow_node(&mut self, before: Option<&Node>, after: &Node) {
        let alone = |node: &Node| u64::from(node.is_tenured_alone());
        self.alone = self.alone + alone(after) - before.map_or(0, alone);
        let tenure = before.and_then(|node| node.tenure.as_ref());
        if tenure == after.tenure.as_ref() {
            return;
        }
        if let Some(before) = tenure.filter(|tenure| tenure.is_open()) {
            let key = (before.user.clone(), before.project.clone());
            if let Some(nodes) = self.open.get_mut(&key) {
                nodes.remove(&after.id);
                if nodes.is_empty() {
                    self.open.remove(&key);
                }
            }
        }
        if let Some(now) = after.tenure.as_ref().filter(|tenure| tenure.is_open()) {
            let key = (now.user.clone(), now.project.clone());
            self.open.entry(key).or_default().insert(after.id.clone());
        }
    }

    /// An allocation's record became another.
    pub(crate) fn follow_allocation(&mut self, before: Option<&Allocation>, after: &Allocation) {
        let before = before.map_or(0, Allocation::sensitive_nodes);
        self.sensitive = self.sensitive + after.sensitive_nodes() - before;
    }
}

/// What one command changes of what is counted, by project: of each what is taken, and what is given
/// back. Committed at once: watchers are never told of a sum in between.
#[derive(Debug, Default)]
pub(crate) struct Recount(BTreeMap<ProjectPath, (Usage, Usage)>);

/// One node that is claimed.
const ONE: Usage = Usage {
    nodes: 1,
    allocations: 0,
};

impl Recount {
    /// So much is taken, or given back.
    pub(crate) fn count(&mut self, project: ProjectPath, usage: Usage, direction: Direction) {
        let (more, less) = self.0.entry(project).or_default();
        match direction {
            Direction::Take => *more = more.with(usage),
            Direction::GiveBack => *less = less.with(usage),
        }
    }

    /// A node's record became another.
    pub(crate) fn follow_node(&mut self, before: Option<&Node>, after: &Node) {
        let counts = |node: &Node| Some(node.counts_for()?.clone());
        let (was, is) = (before.and_then(counts), counts(after));
        if was == is {
            return;
        }
        if let Some(project) = was {
            self.count(project, ONE, Direction::GiveBack);
        }
        if let Some(project) = is {
            self.count(project, ONE, Direction::Take);
        }
    }

    /// What comes of it for each project for which it is not nothing.
    pub(crate) fn into_changes(self) -> impl Iterator<Item = (ProjectPath, Usage, Direction)> {
        self.0.into_iter().flat_map(|(project, (more, less))| {
            let sums = [
                (beyond(less, more), Direction::GiveBack),
                (beyond(more, less), Direction::Take),
            ];
            let sums = sums.into_iter();
            let sums = sums.filter(|(usage, _)| *usage != Usage::default());
            sums.map(move |(usage, direction)| (project.clone(), usage, direction))
        })
    }
}

/// By how much `one` is more than `other`.
fn beyond(one: Usage, other: Usage) -> Usage {
    Usage {
        nodes: one.nodes.saturating_sub(other.nodes),
        allocations: one.allocations.saturating_sub(other.allocations),
    }
}
