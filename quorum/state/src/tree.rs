//! The project tree with its incremental sums. A check costs O(depth); siblings are never walked.

use crate::{
    change::Direction,
    policy::{ChildSums, Policy},
};
use lattice_quorum_types::{
    ProjectPath, Refusal, Revision,
    limit::{Resource, Usage},
    project::Project,
    refusal::Level,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A project and what is kept about it for quick answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) record: Project,
    /// Sum of the children's limits.
    pub(crate) child_limits: ChildSums,
    /// Number of children.
    pub(crate) children: u64,
    /// Allocations of the project itself that are not terminal.
    pub(crate) unfinished: u64,
}

/// All tenants and projects.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tree {
    entries: BTreeMap<ProjectPath, Entry>,
    /// Where a name is taken within a tenant: `tenant`, `last segment`.
    names: BTreeMap<(String, String), ProjectPath>,
}

impl Tree {
    /// One project.
    pub(crate) fn get(&self, path: &ProjectPath) -> Option<&Entry> {
        self.entries.get(path)
    }
    /// One project, or the refusal that it is not known.
    pub(crate) fn require(&self, path: &ProjectPath) -> Result<&Entry, Refusal> {
        self.get(path)
            .ok_or_else(|| Refusal::UnknownProject { path: path.clone() })
    }
    /// All projects, parents first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }
    /// The project that already has the last segment of `path` within its tenant.
    pub(crate) fn namesake(&self, path: &ProjectPath) -> Option<&ProjectPath> {
        self.names.get(&name_key(path))
    }

    /// Adds a project, or replaces the record of one, keeping its usage and its parent's sums.
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

    /// Counts an allocation's nodes at its project and at every level above; the records of all
    /// levels as they are now, from the project up.
    pub(crate) fn count(
        &mut self,
        path: &ProjectPath,
        nodes: u64,
        direction: Direction,
        revision: Revision,
    ) -> Vec<Project> {
        let mut changed = Vec::new();
        for level in path.ancestors() {
            let Some(entry) = self.entries.get_mut(&level) else {
                continue;
            };
            let record = &mut entry.record;
            let usage = if level == *path {
                &mut record.own
            } else {
                &mut record.subtree
            };
            *usage = match direction {
                Direction::Take => Usage {
                    nodes: usage.nodes + nodes,
                    allocations: usage.allocations + 1,
                },
                Direction::GiveBack => Usage {
                    nodes: usage.nodes - nodes,
                    allocations: usage.allocations - 1,
                },
            };
            record.revision = revision;
            changed.push(record.clone());
        }
        changed
    }

    /// Counts an allocation that is not terminal, in or out.
    pub(crate) fn count_unfinished(&mut self, path: &ProjectPath, direction: Direction) {
        if let Some(entry) = self.entries.get_mut(path) {
            match direction {
                Direction::Take => entry.unfinished += 1,
                Direction::GiveBack => entry.unfinished -= 1,
            }
        }
    }

    /// Refuses unless one more allocation of `nodes` nodes fits at `path` and above. Names every
    /// violated level, from the project up.
    pub(crate) fn check_fits(
        &self,
        policy: Policy,
        path: &ProjectPath,
        nodes: u64,
    ) -> Result<(), Refusal> {
        let mut levels = Vec::new();
        for at in path.ancestors() {
            let project = &self.require(&at)?.record;
            let Some(counted) = policy.counted(project, at == *path) else {
                continue;
            };
            for resource in Resource::ALL {
                let Some(limit) = project.limits.get(resource) else {
                    continue;
                };
                let current = counted.get(resource);
                let requested = match resource {
                    Resource::Nodes => nodes,
                    Resource::Allocations => 1,
                };
                if current.saturating_add(requested) > limit {
                    levels.push(Level {
                        path: at.clone(),
                        resource,
                        current,
                        requested,
                        limit,
                    });
                }
            }
        }
        if levels.is_empty() {
            Ok(())
        } else {
            Err(Refusal::LimitExceeded { levels })
        }
    }

    /// The most nodes one more allocation at `path` could have; 0 when no further allocation fits.
    pub(crate) fn headroom(&self, policy: Policy, path: &ProjectPath) -> Option<u64> {
        let mut least = u64::MAX;
        for at in path.ancestors() {
            let project = &self.get(&at)?.record;
            let Some(counted) = policy.counted(project, at == *path) else {
                continue;
            };
            if let Some(limit) = project.limits.max_nodes {
                least = least.min(limit.saturating_sub(counted.nodes));
            }
            if project
                .limits
                .max_concurrent_allocations
                .is_some_and(|l| counted.allocations >= l)
            {
                least = 0;
            }
        }
        Some(least)
    }
}

fn name_key(path: &ProjectPath) -> (String, String) {
    (path.tenant().as_str().to_owned(), path.name().to_owned())
}
