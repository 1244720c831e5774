//! The limits as a plan uses them up. The quorum judges again when a placement is proposed; this
//! gate only keeps the solver from proposing what would be refused.

use crate::{explain::Blocker, view::LevelView};
use lattice_quorum_types::{
    ProjectPath,
    limit::{LimitPolicy, Limits, Resource, Rules, Usage},
    refusal::Level,
};
use std::collections::BTreeMap;

#[derive(Debug)]
struct LevelState {
    path: ProjectPath,
    limits: Limits,
    used: Held,
    /// Kept for the job with the reservation.
    kept: Held,
}

/// What is held at a level.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    own: Usage,
    subtree: Usage,
}

impl LevelState {
    /// What counts against the limits for a request from here (`is_target`) or from below; `None`
    /// where the level has no say.
    fn counted(&self, rules: &dyn Rules, held: Held, is_target: bool) -> Option<Usage> {
        rules.counted(&self.path, held.own, held.subtree, is_target)
    }
}

/// A project's own level and those above it, or the first that is not known.
type Path = Result<Vec<usize>, ProjectPath>;

/// Usage at every level, counting what this plan has placed.
#[derive(Debug)]
pub(crate) struct Headroom<'a> {
    policy: LimitPolicy,
    levels: Vec<LevelState>,
    paths: BTreeMap<&'a ProjectPath, Path>,
}

impl<'a> Headroom<'a> {
    pub(crate) fn new(
        policy: LimitPolicy,
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
            used: Held {
                own: level.own,
                subtree: level.subtree,
            },
            kept: Held::default(),
        });
        Self {
            policy,
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
        let rules = self.policy.rules();
        for (n, number) in self.path(project)?.iter().enumerate() {
            let level = &self.levels[*number];
            let Some(counted) = level.counted(rules, level.used, n == 0) else {
                continue;
            };
            for (resource, requested) in asked(nodes) {
                let current = counted.get(resource);
                if let Some(limit) = level.limits.get(resource)
                    && requested > 0
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
        let rules = self.policy.rules();
        path.iter().enumerate().all(|(n, number)| {
            let level = &self.levels[*number];
            let held = Held {
                own: level.used.own.with(level.kept.own),
                subtree: level.used.subtree.with(level.kept.subtree),
            };
            let counted = level.counted(rules, held, n == 0);
            counted.is_none_or(|counted| {
                asked(nodes).into_iter().all(|(resource, requested)| {
                    let used = counted.get(resource).saturating_add(requested);
                    let limit = level.limits.get(resource);
                    requested == 0 || limit.is_none_or(|limit| used <= limit)
                })
            })
        })
    }

    /// Counts a placement.
    pub(crate) fn consume(&mut self, project: &ProjectPath, nodes: u32) {
        self.add(project, nodes, |level| &mut level.used);
    }

    /// Keeps room for the job with the reservation.
    pub(crate) fn keep_for(&mut self, project: &ProjectPath, nodes: u32) {
        self.add(project, nodes, |level| &mut level.kept);
    }

    fn add(&mut self, project: &ProjectPath, nodes: u32, field: fn(&mut LevelState) -> &mut Held) {
        let Some(Ok(path)) = self.paths.get(project) else {
            return;
        };
        for (n, number) in path.iter().enumerate() {
            let held = field(&mut self.levels[*number]);
            let usage = match n {
                0 => &mut held.own,
                _ => &mut held.subtree,
            };
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
