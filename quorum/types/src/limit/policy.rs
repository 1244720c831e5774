//! What a limit means: the one replaceable piece of the rules. `quorum/state/0001-limit-policy.md`
//! says what another policy must provide. The state machine judges by it, and the solver, which must
//! not wait for room that nobody asks for, plans by it.

use super::{Limits, Resource, Usage};
use crate::{
    ProjectPath,
    command::{Power, Principal},
    project::Project,
    refusal::LimitFault,
};
use serde::{Deserialize, Serialize};

/// Sum of the limits of a project's children for one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSum {
    /// Sum of the finite ones. Wide, so that no set of limits overflows it.
    pub finite: u128,
    /// How many children have no limit.
    pub unlimited: u64,
}

impl ChildSum {
    /// Counts one child's limit.
    pub fn add(&mut self, limit: Option<u64>) {
        match limit {
            Some(n) => self.finite += u128::from(n),
            None => self.unlimited += 1,
        }
    }
    /// Takes one child's limit out, which was counted before.
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
    /// These sums.
    pub fn of(sums: [ChildSum; Resource::ALL.len()]) -> Self {
        Self(sums)
    }
    /// The sum for one resource.
    pub fn get(&self, resource: Resource) -> ChildSum {
        self.0[resource as usize]
    }
    /// Counts one child's limits.
    pub fn add(&mut self, limits: &Limits) {
        for resource in Resource::ALL {
            self.0[resource as usize].add(limits.get(resource));
        }
    }
    /// Takes one child's limits out.
    pub fn remove(&mut self, limits: &Limits) {
        for resource in Resource::ALL {
            self.0[resource as usize].remove(limits.get(resource));
        }
    }
}

/// Which rules limits follow. A variant's place is its encoding: new ones go to the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitPolicy {
    /// [`Strict`].
    #[default]
    Strict,
    /// [`Flat`].
    Flat,
}

impl LimitPolicy {
    /// All there are.
    pub const ALL: [LimitPolicy; 2] = [LimitPolicy::Strict, LimitPolicy::Flat];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitPolicy::Strict => "strict",
            LimitPolicy::Flat => "flat",
        }
    }

    /// What it says.
    pub fn rules(self) -> &'static dyn Rules {
        match self {
            LimitPolicy::Strict => &Strict,
            LimitPolicy::Flat => &Flat,
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
        named.ok_or_else(|| format!("{text:?} is no limit policy; use strict or flat"))
    }
}

/// What a policy answers, from its arguments alone.
pub trait Rules: Sync {
    /// Limits of a project created without any. `above` are the limits of the levels above it;
    /// empty for a tenant.
    fn closed(&self, above: &[Limits]) -> Limits {
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

    /// What is wrong with `limits` at `path`, given the limits its children have. Called for every
    /// project whose own limits, or whose children's limits, a command changes, and for all of them
    /// when another policy is to be followed.
    fn faults(&self, path: &ProjectPath, limits: &Limits, children: &ChildSums) -> Vec<LimitFault>;

    /// The usage of a level that counts against its limits when something below it, or itself
    /// (`is_target`), asks for more; `None` when this level has no say.
    fn counted(
        &self,
        path: &ProjectPath,
        own: Usage,
        subtree: Usage,
        is_target: bool,
    ) -> Option<Usage>;

    /// Whether `principal` may create, delete or limit a project below `parent` (`None`: a
    /// tenant). Nobody below the parent's administrators may, and administrators further up act
    /// through their own children only.
    fn may_administer(&self, principal: &Principal, parent: Option<&Project>) -> bool {
        principal.power == Power::Admin
            || parent.is_some_and(|parent| parent.admins.contains(&principal.name))
    }
}

/// Children's limits add up to at most their parent's; a request must fit at the project and at
/// every level above it. Default closed.
#[derive(Debug, Clone, Copy)]
pub struct Strict;

impl Rules for Strict {
    fn faults(&self, path: &ProjectPath, limits: &Limits, children: &ChildSums) -> Vec<LimitFault> {
        let mut faults = Flat.faults(path, limits, children);
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

/// No relation between limits; a request must fit the project's own limit with its own usage, and
/// the tenant's with everything in it. Default closed.
#[derive(Debug, Clone, Copy)]
pub struct Flat;

impl Rules for Flat {
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
