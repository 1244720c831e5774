//! Hard limits and the usage that counts against them.

use crate::{Allocation, node::Node};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A resource with a hard limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Nodes that allocations hold, and claimed nodes.
    Nodes,
    /// Allocations that hold nodes: in state starting, running, checkpointing or stopping.
    Allocations,
}

impl Resource {
    /// All resources, in the order in which refusals list them.
    pub const ALL: [Resource; 2] = [Resource::Nodes, Resource::Allocations];

    /// Public name of the limit.
    pub fn limit_name(self) -> &'static str {
        match self {
            Resource::Nodes => "max_nodes",
            Resource::Allocations => "max_concurrent_allocations",
        }
    }
    /// Unit of the resource, plural.
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

/// Limits of a project. `None`: unlimited. Under the strict policy, a child of a limited project must be limited,
/// unless an administrator forces the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Nodes that the project and the projects below it hold at the same time.
    pub max_nodes: Option<u64>,
    /// Allocations of the project and of the projects below it that hold nodes at the same time.
    pub max_concurrent_allocations: Option<u64>,
}

impl Limits {
    /// Closed limits: a new project may hold no nodes until an administrator sets limits.
    pub const CLOSED: Limits = Limits {
        max_nodes: Some(0),
        max_concurrent_allocations: None,
    };

    /// Limit of one resource.
    pub fn get(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Nodes => self.max_nodes,
            Resource::Allocations => self.max_concurrent_allocations,
        }
    }
    /// Returns these limits with `patch` applied.
    pub fn patched(mut self, patch: &LimitPatch) -> Limits {
        patch.max_nodes.apply(&mut self.max_nodes);
        patch
            .max_concurrent_allocations
            .apply(&mut self.max_concurrent_allocations);
        self
    }
}

/// Handling of a submit that fits the limits themselves, but not with the present usage.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// The submit is refused.
    #[default]
    Reject,
    /// The allocation is accepted and waits until the limits have headroom for it.
    Wait,
}

impl OnLimit {
    /// All values.
    pub const ALL: [OnLimit; 2] = [OnLimit::Reject, OnLimit::Wait];
    /// Public name of the setting.
    pub const NAME: &'static str = "on_limit";

    /// Lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            OnLimit::Reject => "reject",
            OnLimit::Wait => "wait",
        }
    }

    /// Number under which the audit stores the value: 0 for reject, 1 for wait.
    pub fn number(self) -> u64 {
        match self {
            OnLimit::Reject => 0,
            OnLimit::Wait => 1,
        }
    }

    /// Value with this number; `None` for any other number.
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.number() == number)
    }
}

impl fmt::Display for OnLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for OnLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|value| value.as_str() == text);
        named.ok_or_else(|| format!("{text:?} is not valid; use reject or wait"))
    }
}

/// Change of one optional limit. In the API's JSON, an absent field keeps the limit, null removes it, and a number sets
/// it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patch {
    /// Keep the limit.
    #[default]
    Unchanged,
    /// Remove the limit.
    Unlimited,
    /// Set the limit.
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

/// A change of a project's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitPatch {
    /// Change to `max_nodes`.
    pub max_nodes: Patch,
    /// Change to `max_concurrent_allocations`.
    pub max_concurrent_allocations: Patch,
}

/// Usage of a project itself, or of everything below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Nodes held by allocations, and claimed nodes.
    pub nodes: u64,
    /// Allocations that hold nodes.
    pub allocations: u64,
}

impl Usage {
    /// Usage of one resource.
    pub fn get(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Nodes => self.nodes,
            Resource::Allocations => self.allocations,
        }
    }
    /// Sum of two usages, saturating.
    #[must_use]
    pub fn with(self, other: Usage) -> Usage {
        Usage {
            nodes: self.nodes.saturating_add(other.nodes),
            allocations: self.allocations.saturating_add(other.allocations),
        }
    }
}

/// Limits of the whole cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemLimits {
    /// Nodes in sensitive use over all tenants; `None`: unlimited.
    pub sensitive_pool_size: Option<u64>,
}

impl SystemLimits {
    /// Returns these limits with `patch` applied.
    #[must_use]
    pub fn patched(mut self, patch: &SystemLimitPatch) -> SystemLimits {
        patch
            .sensitive_pool_size
            .apply(&mut self.sensitive_pool_size);
        self
    }
}

/// Sensitive pool: nodes in sensitive use over all tenants. These are claimed nodes, released nodes that are not wiped
/// yet, and nodes of sensitive allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensitivePool {
    /// Number of nodes in sensitive use.
    pub used: u64,
    /// Limit ([`SystemLimits::sensitive_pool_size`]); `None`: unlimited.
    pub size: Option<u64>,
}

impl SensitivePool {
    /// Counts the nodes in sensitive use among these nodes and allocations.
    pub fn count<'a>(
        size: Option<u64>,
        nodes: impl Iterator<Item = &'a Node>,
        allocations: impl Iterator<Item = &'a Allocation>,
    ) -> Self {
        let alone = nodes.filter(|node| node.is_claimed_and_uncounted()).count();
        let held: u64 = allocations.map(Allocation::sensitive_nodes).sum();
        let used = held.saturating_add(alone as u64);
        Self { used, size }
    }

    /// Checks whether `more` nodes fit. A request for none always fits.
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn on_limit_reads_what_it_writes() {
        for value in OnLimit::ALL {
            assert_eq!(value.as_str().parse::<OnLimit>().unwrap(), value);
            assert_eq!(OnLimit::of_number(value.number()), Some(value));
        }
        assert_eq!(OnLimit::of_number(2), None);
        let refused = "queue".parse::<OnLimit>().unwrap_err();
        assert_eq!(refused, "\"queue\" is not valid; use reject or wait");
    }
}
