//! Limit policies: the replaceable rules for limits.
//!
//! `quorum/state/0001-limit-policy.md` lists the requirements for another policy. The state machine checks commands
//! with the policy. The solver plans with it, and so does not wait for headroom that the policy does not require.

mod fault;

use super::{
    limit::{Limits, Resource, SystemLimits, Usage},
    project::Project,
};
use crate::{
    ProjectPath,
    principal::{Principal, Privilege},
};
pub use fault::LimitFault;
pub(crate) use fault::fmt_fault;
use serde::{Deserialize, Serialize};

/// Sum of the limits of a project's children for one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSum {
    /// Sum of the finite limits. Wide, so that no set of limits overflows it.
    pub finite: u128,
    /// Number of children without a limit.
    pub unlimited: u64,
}

impl ChildSum {
    /// Adds a child's limit.
    pub fn add(&mut self, limit: Option<u64>) {
        match limit {
            Some(n) => self.finite += u128::from(n),
            None => self.unlimited += 1,
        }
    }
    /// Removes a child's limit that was added before.
    pub fn remove(&mut self, limit: Option<u64>) {
        match limit {
            Some(n) => self.finite -= u128::from(n),
            None => self.unlimited -= 1,
        }
    }
}

/// Sums over a project's children, one for each of [`Resource::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSums([ChildSum; Resource::ALL.len()]);

impl ChildSums {
    /// Creates the sums from one sum for each resource.
    pub fn of(sums: [ChildSum; Resource::ALL.len()]) -> Self {
        Self(sums)
    }
    /// Sum for one resource.
    pub fn get(&self, resource: Resource) -> ChildSum {
        self.0[resource as usize]
    }
    /// Adds a child's limits.
    pub fn add(&mut self, limits: &Limits) {
        for resource in Resource::ALL {
            self.0[resource as usize].add(limits.get(resource));
        }
    }
    /// Removes a child's limits.
    pub fn remove(&mut self, limits: &Limits) {
        for resource in Resource::ALL {
            self.0[resource as usize].remove(limits.get(resource));
        }
    }
}

/// Name of a limit policy. The position of a variant is its encoding: append new variants at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitPolicy {
    /// The [`StrictPolicy`] policy.
    #[default]
    Strict,
    /// The [`FlatPolicy`] policy.
    Flat,
}

impl LimitPolicy {
    /// All policies.
    pub const ALL: [LimitPolicy; 2] = [LimitPolicy::Strict, LimitPolicy::Flat];

    /// Lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitPolicy::Strict => "strict",
            LimitPolicy::Flat => "flat",
        }
    }

    /// Rules of the policy.
    pub fn rules(self) -> &'static dyn LimitRules {
        match self {
            LimitPolicy::Strict => &StrictPolicy,
            LimitPolicy::Flat => &FlatPolicy,
        }
    }
}

impl std::fmt::Display for LimitPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for LimitPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        named.ok_or_else(|| format!("{text:?} is not a valid limit policy; use strict or flat"))
    }
}

/// Settings of the whole cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemView {
    /// Limit policy.
    pub limit_policy: LimitPolicy,
    /// Limits of the whole cluster.
    pub limits: SystemLimits,
}

/// Rules of a limit policy. The results depend only on the arguments.
pub trait LimitRules: Sync {
    /// Limits of a project that is created without limits. `above` are the limits of the levels above the project;
    /// empty for a tenant.
    fn default_limits(&self, above: &[Limits]) -> Limits {
        if above.is_empty() {
            return Limits::CLOSED;
        }
        let zero_if_limited =
            |resource| above.iter().any(|l| l.get(resource).is_some()).then_some(0);
        Limits {
            max_nodes: zero_if_limited(Resource::Nodes),
            max_concurrent_allocations: zero_if_limited(Resource::Allocations),
        }
    }

    /// Violations by `limits` at `path`, given the limits of the children. Called for every project if a command
    /// changes its own limits or its children's limits, and for all projects when the policy changes.
    fn faults(&self, path: &ProjectPath, limits: &Limits, children: &ChildSums) -> Vec<LimitFault>;

    /// Usage of a level that counts against the level's limits, when the level itself (`is_target`) or a level below
    /// requests more. `None` if the policy does not check this level.
    fn counted(
        &self,
        path: &ProjectPath,
        own: Usage,
        subtree: Usage,
        is_target: bool,
    ) -> Option<Usage>;

    /// Checks whether `principal` may create, delete or limit a project below `parent` (`None`: a tenant).
    /// Administrators of the cluster and of the parent may. Administrators of levels further up act only on their own
    /// children.
    fn may_administer(&self, principal: &Principal, parent: Option<&Project>) -> bool {
        principal.privilege == Privilege::Admin
            || parent.is_some_and(|parent| parent.admins.contains(&principal.name))
    }
}

/// Strict policy: the limits of children add up to at most their parent's limit. As in [`FlatPolicy`], a tenant's
/// `max_nodes` must be finite. A request must fit at the project and at every level above it. A project without given
/// limits is closed.
#[derive(Debug, Clone, Copy)]
pub struct StrictPolicy;

impl LimitRules for StrictPolicy {
    fn faults(&self, path: &ProjectPath, limits: &Limits, children: &ChildSums) -> Vec<LimitFault> {
        let mut faults = FlatPolicy.faults(path, limits, children);
        for resource in Resource::ALL {
            let Some(limit) = limits.get(resource) else {
                continue;
            };
            let sum = children.get(resource);
            if sum.unlimited == 0 && sum.finite <= u128::from(limit) {
                continue;
            }
            faults.push(LimitFault::ChildrenExceed {
                parent: path.clone(),
                resource,
                children: sum.finite,
                unlimited: sum.unlimited,
                limit,
            });
        }
        faults
    }

    fn counted(&self, _: &ProjectPath, own: Usage, subtree: Usage, _: bool) -> Option<Usage> {
        Some(own.with(subtree))
    }
}

/// Flat policy: limits of different levels are independent, but a tenant's `max_nodes` must be finite. A request must
/// fit the project's own limits with its own usage, and the tenant's limits with the usage of the whole tenant. A
/// project without given limits is closed.
#[derive(Debug, Clone, Copy)]
pub struct FlatPolicy;

impl LimitRules for FlatPolicy {
    fn faults(&self, path: &ProjectPath, limits: &Limits, _: &ChildSums) -> Vec<LimitFault> {
        if path.is_tenant() && limits.max_nodes.is_none() {
            let (path, resource) = (path.clone(), Resource::Nodes);
            return vec![LimitFault::MustBeFinite { path, resource }];
        }
        Vec::new()
    }

    fn counted(
        &self,
        path: &ProjectPath,
        own: Usage,
        subtree: Usage,
        is_target: bool,
    ) -> Option<Usage> {
        match is_target {
            _ if path.is_tenant() => Some(own.with(subtree)),
            true => Some(own),
            false => None,
        }
    }
}
