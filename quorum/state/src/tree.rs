//! Project tree with incremental sums. A check costs O(depth); siblings are never visited.

use crate::{
    change::UsageDirection,
    policy::{ChildSums, Policy},
};
use lattice_quorum_types::{
    ProjectPath, Refusal, Revision,
    limit::{Resource, Usage},
    limit_policy::LimitFault,
    project::Project,
    refusal::{LimitRequest, ViolatedLevel},
    view::{Headroom, HeadroomLevel},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A project with the sums needed for fast checks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) record: Project,
    /// Sum of the children's limits.
    pub(crate) child_limits: ChildSums,
    /// Number of children.
    pub(crate) children: u64,
    /// Number of the project's own allocations that are not terminal.
    pub(crate) unfinished: u64,
}

/// All tenants and projects.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tree {
    pub(crate) entries: BTreeMap<ProjectPath, Entry>,
    /// Projects by tenant and last path segment: a segment is unique within its tenant.
    pub(crate) names: BTreeMap<(String, String), ProjectPath>,
}

impl Tree {
    /// Entry of a project.
    pub(crate) fn get(&self, path: &ProjectPath) -> Option<&Entry> {
        self.entries.get(path)
    }
    /// Entry of a project, or the refusal that the project is unknown.
    pub(crate) fn require(&self, path: &ProjectPath) -> Result<&Entry, Refusal> {
        self.get(path)
            .ok_or_else(|| Refusal::UnknownProject { path: path.clone() })
    }
    /// All projects, parents first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }
    /// Project that already has the last segment of `path` within its tenant.
    pub(crate) fn project_with_name(&self, path: &ProjectPath) -> Option<&ProjectPath> {
        self.names.get(&name_key(path))
    }

    /// Adds a project or replaces its record. Keeps the parent's sums up to date.
    pub(crate) fn put(&mut self, record: Project) {
        let before = self
            .entries
            .get(&record.path)
            .map(|entry| entry.record.limits);
        if let Some(parent) = record
            .path
            .parent()
            .and_then(|up| self.entries.get_mut(&up))
        {
            match before {
                Some(limits) => parent.child_limits.remove(&limits),
                None => parent.children += 1,
            }
            parent.child_limits.add(&record.limits);
        }
        match self.entries.get_mut(&record.path) {
            Some(entry) => entry.record = record,
            None => {
                self.names
                    .insert(name_key(&record.path), record.path.clone());
                let path = record.path.clone();
                let child_limits = ChildSums::default();
                self.entries.insert(
                    path,
                    Entry {
                        record,
                        child_limits,
                        children: 0,
                        unfinished: 0,
                    },
                );
            }
        }
    }

    /// Removes a project, which must be empty.
    pub(crate) fn remove(&mut self, path: &ProjectPath) {
        let Some(gone) = self.entries.remove(path) else {
            return;
        };
        self.names.remove(&name_key(path));
        if let Some(parent) = path.parent().and_then(|up| self.entries.get_mut(&up)) {
            parent.children -= 1;
            parent.child_limits.remove(&gone.record.limits);
        }
    }

    /// The project and every level above it.
    ///
    /// # Errors
    /// An unknown level yields a refusal in place of its entry.
    fn levels<'a>(
        &'a self,
        path: &'a ProjectPath,
    ) -> impl Iterator<Item = Result<&'a Entry, Refusal>> {
        path.levels().map(|at| {
            self.entries.get(at).ok_or_else(|| {
                let known = |up: &ProjectPath| up.as_str() == at;
                let missing = path.ancestors().find(known);
                let path = missing.unwrap_or_else(|| path.clone());
                Refusal::UnknownProject { path }
            })
        })
    }

    /// Adds or subtracts usage at `path` and at every level above it. Returns the changed records, from the project up.
    pub(crate) fn count(
        &mut self,
        path: &ProjectPath,
        held: Usage,
        direction: UsageDirection,
        revision: Revision,
    ) -> Vec<Project> {
        let mut changed = Vec::new();
        for level in path.levels() {
            let Some(entry) = self.entries.get_mut(level) else {
                continue;
            };
            let record = &mut entry.record;
            let usage = if level == path.as_str() {
                &mut record.own
            } else {
                &mut record.subtree
            };
            *usage = match direction {
                UsageDirection::Add => usage.with(held),
                UsageDirection::Subtract => Usage {
                    nodes: usage.nodes - held.nodes,
                    allocations: usage.allocations - held.allocations,
                },
            };
            record.revision = revision;
            changed.push(record.clone());
        }
        changed
    }

    /// Adds or removes one allocation that is not terminal.
    pub(crate) fn count_unfinished(&mut self, path: &ProjectPath, direction: UsageDirection) {
        if let Some(entry) = self.entries.get_mut(path) {
            match direction {
                UsageDirection::Add => entry.unfinished += 1,
                UsageDirection::Subtract => entry.unfinished -= 1,
            }
        }
    }

    /// Rejects `usage` that does not fit at `path` and above. Reports every violated level, from the project up.
    /// Resources with a request of zero are not checked.
    pub(crate) fn check_fits(
        &self,
        policy: Policy,
        path: &ProjectPath,
        usage: Usage,
        asked: LimitRequest,
    ) -> Result<(), Refusal> {
        let rules = policy.rules();
        let mut violated = Vec::new();
        for (n, level) in self.levels(path).enumerate() {
            let project = &level?.record;
            let Some(counted) = rules.counted(&project.path, project.own, project.subtree, n == 0)
            else {
                continue;
            };
            for resource in Resource::ALL {
                let Some(limit) = project.limits.get(resource) else {
                    continue;
                };
                let (current, requested) = (counted.get(resource), usage.get(resource));
                if requested > 0 && current.saturating_add(requested) > limit {
                    violated.push(ViolatedLevel {
                        path: project.path.clone(),
                        resource,
                        current,
                        requested,
                        limit,
                    });
                }
            }
        }
        if violated.is_empty() {
            Ok(())
        } else {
            let levels = violated;
            Err(Refusal::LimitExceeded { levels, asked })
        }
    }

    /// Rejects `usage` that would not fit at `path` and above even if nothing were used.
    pub(crate) fn check_feasible(
        &self,
        policy: Policy,
        path: &ProjectPath,
        usage: Usage,
    ) -> Result<(), Refusal> {
        let rules = policy.rules();
        let mut levels = Vec::new();
        for (n, level) in self.levels(path).enumerate() {
            let project = &level?.record;
            let Some(counted) = rules.counted(&project.path, project.own, project.subtree, n == 0)
            else {
                continue;
            };
            for resource in Resource::ALL {
                let requested = usage.get(resource);
                let limit = project.limits.get(resource);
                levels.extend(limit.filter(|limit| requested > *limit).map(|limit| {
                    ViolatedLevel {
                        path: project.path.clone(),
                        resource,
                        current: counted.get(resource),
                        requested,
                        limit,
                    }
                }));
            }
        }
        let asked = LimitRequest::Infeasible;
        match levels.is_empty() {
            true => Ok(()),
            false => Err(Refusal::LimitExceeded { levels, asked }),
        }
    }

    /// Headroom at `path`; `None` if a level is unknown.
    pub(crate) fn headroom(
        &self,
        policy: Policy,
        path: &ProjectPath,
        revision: Revision,
    ) -> Option<Headroom> {
        let rules = policy.rules();
        let mut least: [Option<u64>; Resource::ALL.len()] = Default::default();
        let mut levels = Vec::new();
        for (n, level) in self.levels(path).enumerate() {
            let project = &level.ok()?.record;
            let Some(counted) = rules.counted(&project.path, project.own, project.subtree, n == 0)
            else {
                continue;
            };
            for (least, resource) in least.iter_mut().zip(Resource::ALL) {
                if let Some(limit) = project.limits.get(resource) {
                    let free = limit.saturating_sub(counted.get(resource));
                    *least = Some(least.map_or(free, |least| least.min(free)));
                }
            }
            levels.push(HeadroomLevel {
                path: project.path.clone(),
                limits: project.limits,
                counted,
            });
        }
        let [nodes, allocations] = least;
        Some(Headroom {
            revision,
            nodes: if allocations == Some(0) {
                Some(0)
            } else {
                nodes
            },
            allocations,
            levels,
        })
    }

    /// Faults of the present limits under another policy.
    pub(crate) fn faults(&self, policy: Policy) -> Vec<LimitFault> {
        let rules = policy.rules();
        let faults = |entry: &Entry| {
            let record = &entry.record;
            rules.faults(&record.path, &record.limits, &entry.child_limits)
        };
        self.entries.values().flat_map(faults).collect()
    }
}

fn name_key(path: &ProjectPath) -> (String, String) {
    (path.tenant().as_str().to_owned(), path.name().to_owned())
}
