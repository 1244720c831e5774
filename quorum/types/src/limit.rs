//! Hard limits and what is counted against them.

mod policy;

use crate::{Allocation, node::Node};
pub use policy::{ChildSum, ChildSums, Flat, LimitPolicy, Rules, Strict};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A resource that hard limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Nodes held by Starting, Running, Checkpointing and Stopping allocations.
    Nodes,
    /// Number of allocations in those states.
    Allocations,
}

impl Resource {
    /// All of them, in the order refusals list them.
    pub const ALL: [Resource; 2] = [Resource::Nodes, Resource::Allocations];

    /// The limit's public name.
    pub fn limit_name(self) -> &'static str {
        match self {
            Resource::Nodes => "max_nodes",
            Resource::Allocations => "max_concurrent_allocations",
        }
    }
    /// The unit in which it is counted, plural.
    pub fn unit(self) -> &'static str {
        match self {
            Resource::Nodes => "nodes",
            Resource::Allocations => "allocations",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.unit())
    }
}

/// A project's ceilings. `None` means unlimited, which a project below a finite parent cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Nodes held at the same time by the project and everything below it.
    pub max_nodes: Option<u64>,
    /// Allocations holding nodes at the same time.
    pub max_concurrent_allocations: Option<u64>,
}

impl Limits {
    /// Default closed: a new project may hold nothing until somebody says otherwise.
    pub const CLOSED: Limits = Limits {
        max_nodes: Some(0),
        max_concurrent_allocations: None,
    };

    /// The ceiling for one resource.
    pub fn get(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Nodes => self.max_nodes,
            Resource::Allocations => self.max_concurrent_allocations,
        }
    }
    /// This limit set with `patch` applied.
    pub fn patched(mut self, patch: &LimitPatch) -> Limits {
        patch.max_nodes.apply(&mut self.max_nodes);
        patch
            .max_concurrent_allocations
            .apply(&mut self.max_concurrent_allocations);
        self
    }
}

/// A change to one optional ceiling: a missing field stays, null lifts, a number sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patch {
    /// Leave it as it is.
    #[default]
    Unchanged,
    /// No ceiling.
    Unlimited,
    /// This ceiling.
    Set(u64),
}

impl Patch {
    pub(crate) fn apply(self, slot: &mut Option<u64>) {
        match self {
            Patch::Unchanged => {}
            Patch::Unlimited => *slot = None,
            Patch::Set(n) => *slot = Some(n),
        }
    }
}

/// A change to a limit set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitPatch {
    /// Change to `max_nodes`.
    pub max_nodes: Patch,
    /// Change to `max_concurrent_allocations`.
    pub max_concurrent_allocations: Patch,
}

/// What is counted, for a project itself or for everything below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Nodes held.
    pub nodes: u64,
    /// Allocations holding nodes.
    pub allocations: u64,
}

impl Usage {
    /// The count of one resource.
    pub fn get(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Nodes => self.nodes,
            Resource::Allocations => self.allocations,
        }
    }
    /// Both together; what passes the largest number is that.
    #[must_use]
    pub fn with(self, other: Usage) -> Usage {
        Usage {
            nodes: self.nodes.saturating_add(other.nodes),
            allocations: self.allocations.saturating_add(other.allocations),
        }
    }
}

/// What is limited for the whole cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemLimits {
    /// Nodes that can be claimed for sensitive use, in all tenants together; `None`: unlimited.
    pub sensitive_pool_size: Option<u64>,
}

impl SystemLimits {
    /// These limits with `patch` applied.
    #[must_use]
    pub fn patched(mut self, patch: &SystemLimitPatch) -> SystemLimits {
        patch
            .sensitive_pool_size
            .apply(&mut self.sensitive_pool_size);
        self
    }
}

/// Nodes in sensitive use, of all tenants together: claimed by users, given back and not wiped yet, or held
/// by sensitive work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensitivePool {
    /// How many are.
    pub used: u64,
    /// How many may be ([`SystemLimits::sensitive_pool_size`]); `None`: any number.
    pub size: Option<u64>,
}

impl SensitivePool {
    /// Counts them among these nodes and allocations.
    pub fn count<'a>(
        size: Option<u64>,
        nodes: impl Iterator<Item = &'a Node>,
        allocations: impl Iterator<Item = &'a Allocation>,
    ) -> Self {
        let alone = nodes.filter(|node| node.is_tenured_alone()).count();
        let held: u64 = allocations.map(Allocation::sensitive_nodes).sum();
        let used = held.saturating_add(alone as u64);
        Self { used, size }
    }

    /// Whether so many nodes more may be. What takes none of it never passes it.
    pub fn has_room_for(self, more: u64) -> bool {
        let fits = |size| self.used.saturating_add(more) <= size;
        more == 0 || self.size.is_none_or(fits)
    }
}

/// A change to [`SystemLimits`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemLimitPatch {
    /// Change to `sensitive_pool_size`.
    pub sensitive_pool_size: Patch,
}
