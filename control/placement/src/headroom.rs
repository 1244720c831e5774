//! The limits as a plan uses them up. The quorum judges again when a placement is proposed; this
//! gate only keeps the solver from proposing what would be refused.

use crate::{explain::Blocker, view::LevelView};
use lattice_quorum_types::{
    ProjectPath,
    limit::{Limits, Resource, Usage},
    refusal::Level,
};
use std::collections::BTreeMap;

#[derive(Debug)]
struct LevelState {
    path: ProjectPath,
    limits: Limits,
    usage: Usage,
    /// Kept for the job with the reservation.
    kept: Usage,
}

/// A project's own level and those above it, or the first that is not known.
type Path = Result<Vec<usize>, ProjectPath>;

/// Usage at every level, counting what this plan has placed.
#[derive(Debug)]
pub(crate) struct Headroom<'a> {
    levels: Vec<LevelState>,
    paths: BTreeMap<&'a ProjectPath, Path>,
}

impl<'a> Headroom<'a> {
    pub(crate) fn new(
        view: &BTreeMap<ProjectPath, LevelView>,
        projects: impl Iterator<Item = &'a ProjectPath>,
    ) -> Self {
        let numbers: BTreeMap<&ProjectPath, usize> =
            view.keys().enumerate().map(|(n, path)| (path, n)).collect();
        let mut paths = BTreeMap::new();
        for project in projects {
            paths.entry(project).or_insert_with(|| {
                let up = project.ancestors();
                up.map(|path| numbers.get(&path).copied().ok_or(path))
                    .collect()
            });
        }
        let levels = view.iter().map(|(path, level)| LevelState {
            path: path.clone(),
            limits: level.limits,
            usage: level.total,
            kept: Usage::default(),
        });
        Self {
            levels: levels.collect(),
            paths,
        }
    }

    fn path(&self, project: &ProjectPath) -> Result<&[usize], Blocker> {
        match self.paths.get(project) {
            Some(Ok(path)) => Ok(path),
            Some(Err(missing)) => Err(Blocker::UnknownProject {
                path: missing.clone(),
            }),
            None => Err(Blocker::UnknownProject {
                path: project.clone(),
            }),
        }
    }

    /// Whether `nodes` more fit at every level.
    pub(crate) fn check(&self, project: &ProjectPath, nodes: u32) -> Result<(), Blocker> {
        let mut violated = Vec::new();
        for number in self.path(project)? {
            let level = &self.levels[*number];
            for (resource, requested) in asked(nodes) {
                let current = level.usage.get(resource);
                if let Some(limit) = level.limits.get(resource)
                    && current.saturating_add(requested) > limit
                {
                    let path = level.path.clone();
                    violated.push(Level {
                        path,
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
            Err(Blocker::QuotaHeadroom { levels: violated })
        }
    }

    /// Whether `nodes` more leave what is kept for the job with the reservation.
    pub(crate) fn leaves_what_is_kept(&self, project: &ProjectPath, nodes: u32) -> bool {
        let Ok(path) = self.path(project) else {
            return false;
        };
        path.iter()
            .map(|number| &self.levels[*number])
            .all(|level| {
                asked(nodes).into_iter().all(|(resource, requested)| {
                    let used = level
                        .usage
                        .get(resource)
                        .saturating_add(level.kept.get(resource));
                    level
                        .limits
                        .get(resource)
                        .is_none_or(|limit| used.saturating_add(requested) <= limit)
                })
            })
    }

    /// Counts a placement.
    pub(crate) fn consume(&mut self, project: &ProjectPath, nodes: u32) {
        self.add(project, nodes, |level| &mut level.usage);
    }

    /// Keeps room for the job with the reservation.
    pub(crate) fn keep_for(&mut self, project: &ProjectPath, nodes: u32) {
        self.add(project, nodes, |level| &mut level.kept);
    }

    fn add(&mut self, project: &ProjectPath, nodes: u32, field: fn(&mut LevelState) -> &mut Usage) {
        let Some(Ok(path)) = self.paths.get(project) else {
            return;
        };
        for number in path {
            let usage = field(&mut self.levels[*number]);
            usage.nodes = usage.nodes.saturating_add(u64::from(nodes));
            usage.allocations = usage.allocations.saturating_add(1);
        }
    }
}

fn asked(nodes: u32) -> [(Resource, u64); 2] {
    [
        (Resource::Nodes, u64::from(nodes)),
        (Resource::Allocations, 1),
    ]
}
