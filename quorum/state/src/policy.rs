//! What a limit means: the one replaceable piece of the rules. `0001-limit-policy.md` says what
//! another policy must provide.

use lattice_quorum_types::{
    command::{Power, Principal},
    limit::{Limits, Resource, Usage},
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

/// Which rules limits follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Children's limits add up to at most their parent's; a request must fit at the project and
    /// at every level above it. Default closed.
    Strict,
    /// No relation between limits; a request must fit the project's own limit with its own usage,
    /// and the tenant's with everything in it. Default closed.
    Flat,
}

impl Policy {
    /// Limits of a project created without any: 0 of what a level above it limits. `above` are
    /// the limits of those levels; empty for a tenant.
    pub fn closed(self, above: &[Limits]) -> Limits {
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

    /// What is wrong with `limits` on `project`, given the limits its children have. Called for
    /// every project whose own limits, or whose children's limits, a command changes.
    pub fn faults(
        self,
        project: &Project,
        limits: &Limits,
        children: &ChildSums,
    ) -> Vec<LimitFault> {
        let mut faults = Vec::new();
        if project.path.is_tenant() && limits.max_nodes.is_none() {
            let (path, resource) = (project.path.clone(), Resource::Nodes);
            faults.push(LimitFault::MustBeFinite { path, resource });
        }
        if self == Policy::Flat {
            return faults;
        }
        for resource in Resource::ALL {
            let Some(limit) = limits.get(resource) else {
                continue;
            };
            let sum = children.get(resource);
            let children = match sum.unlimited {
                0 if sum.finite <= u128::from(limit) => continue,
                0 => Some(u64::try_from(sum.finite).unwrap_or(u64::MAX)),
                _ => None,
            };
            let parent = project.path.clone();
            faults.push(LimitFault::ChildrenExceed {
                parent,
                resource,
                children,
                limit,
            });
        }
        faults
    }

    /// The usage of `level` that counts against its limits when something below it, or itself
    /// (`is_target`), asks for more; `None` when this level has no say.
    pub fn counted(self, level: &Project, is_target: bool) -> Option<Usage> {
        match self {
            Policy::Strict => Some(level.total()),
            Policy::Flat if level.path.is_tenant() => Some(level.total()),
            Policy::Flat if is_target => Some(level.own),
            Policy::Flat => None,
        }
    }

    /// Whether `principal` may create, delete or limit a project below `parent` (`None`: a
    /// tenant). Nobody below the parent's administrators may, and administrators further up act
    /// through their own children only.
    pub fn may_administer(self, principal: &Principal, parent: Option<&Project>) -> bool {
        principal.power == Power::Admin
            || parent.is_some_and(|parent| parent.admins.contains(&principal.name))
    }
}
