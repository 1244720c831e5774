//! Nodes, allocations and projects as they were.

use crate::{
    policy::{ChildSum, ChildSums},
    tree,
};
use lattice_quorum_types::{
    self as now, AllocationId, AllocationState, NodeId, ProjectPath, Revision, UnixMillis,
    VclusterName,
    allocation::{RankPhase, StopCause},
    course::Course,
    limit::{self, Limits},
    node::{self, Lifecycle},
    project,
    spec::FormerSpec,
};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    id: NodeId,
    lifecycle: Lifecycle,
    drain: Vec<DrainReason>,
    holder: Option<Holder>,
    version: u64,
    home: VclusterName,
    current: VclusterName,
    registered_at: UnixMillis,
    revision: Revision,
}

#[derive(Debug, Deserialize)]
struct DrainReason {
    owner: String,
    reason: String,
    since: UnixMillis,
}

#[derive(Debug, Deserialize)]
struct Holder {
    allocation: AllocationId,
    attempt: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Allocation {
    id: AllocationId,
    user: String,
    spec: FormerSpec,
    state: AllocationState,
    state_since: UnixMillis,
    submitted_at: UnixMillis,
    eligible_at: UnixMillis,
    started_at: Option<UnixMillis>,
    ended_at: Option<UnixMillis>,
    attempt: u32,
    ranks: Vec<Rank>,
    stop: Option<StopCause>,
    revision: Revision,
}

#[derive(Debug, Deserialize)]
struct Rank {
    node: NodeId,
    boot: Option<String>,
    phase: RankPhase,
}

/// Projects by path, and where each name of a tenant is.
#[derive(Debug, Deserialize)]
pub(crate) struct Tree {
    entries: BTreeMap<ProjectPath, Entry>,
    names: BTreeMap<(String, String), ProjectPath>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    record: Project,
    /// Sum of the finite limits and number of unlimited children, of nodes and of allocations.
    child_limits: [(u128, u64); 2],
    children: u64,
    unfinished: u64,
}

#[derive(Debug, Deserialize)]
struct Project {
    path: ProjectPath,
    limits: Limits,
    own: Usage,
    subtree: Usage,
    admins: Vec<String>,
    description: String,
    created_at: UnixMillis,
    revision: Revision,
}

#[derive(Debug, Deserialize)]
struct Usage {
    nodes: u64,
    allocations: u64,
}

impl From<Node> for node::Node {
    fn from(old: Node) -> Self {
        let drain = old.drain.into_iter().map(|reason| node::DrainReason {
            owner: reason.owner,
            reason: reason.reason,
            since: reason.since,
        });
        node::Node {
            id: old.id,
            lifecycle: old.lifecycle,
            drain: drain.collect(),
            holder: old.holder.map(|holder| node::Holder {
                allocation: holder.allocation,
                attempt: holder.attempt,
            }),
            version: old.version,
            home: old.home,
            current: old.current,
            registered_at: old.registered_at,
            revision: old.revision,
            tenure: None,
            promised: None,
            recalled_at: None,
        }
    }
}

impl From<Allocation> for now::Allocation {
    fn from(old: Allocation) -> Self {
        let ranks = old.ranks.into_iter().map(|rank| now::allocation::Rank {
            node: rank.node,
            boot: rank.boot,
            phase: rank.phase,
        });
        now::Allocation {
            id: old.id,
            user: old.user,
            spec: old.spec.into(),
            state: old.state,
            state_since: old.state_since,
            submitted_at: old.submitted_at,
            eligible_at: old.eligible_at,
            started_at: old.started_at,
            ended_at: old.ended_at,
            attempt: old.attempt,
            ranks: ranks.collect(),
            stop: old.stop,
            revision: old.revision,
            course: Course::default(),
        }
    }
}

impl From<Usage> for limit::Usage {
    fn from(old: Usage) -> Self {
        limit::Usage {
            nodes: old.nodes,
            allocations: old.allocations,
        }
    }
}

impl From<Project> for project::Project {
    fn from(old: Project) -> Self {
        project::Project {
            path: old.path,
            limits: old.limits,
            own: old.own.into(),
            subtree: old.subtree.into(),
            admins: old.admins,
            description: old.description,
            created_at: old.created_at,
            revision: old.revision,
            overcommitted: false,
        }
    }
}

impl From<Entry> for tree::Entry {
    fn from(old: Entry) -> Self {
        let sum = |(finite, unlimited)| ChildSum { finite, unlimited };
        tree::Entry {
            record: old.record.into(),
            child_limits: ChildSums::of(old.child_limits.map(sum)),
            children: old.children,
            unfinished: old.unfinished,
        }
    }
}

impl From<Tree> for tree::Tree {
    fn from(old: Tree) -> Self {
        tree::Tree {
            entries: by_key(old.entries),
            names: old.names,
        }
    }
}

/// The same map with the values of today.
pub(crate) fn by_key<K: Ord, Old, New: From<Old>>(old: BTreeMap<K, Old>) -> BTreeMap<K, New> {
    let entries = old.into_iter();
    entries.map(|(key, value)| (key, value.into())).collect()
}
