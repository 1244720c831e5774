//! The limits as a plan uses them up. The quorum judges again when a placement is proposed; this
//! gate only keeps the solver from proposing what would be refused.

use crate::{
    explain::Blocker,
    queue::{Interned, Project},
    view::LevelView,
};
use lattice_quorum_types::{
    AllocationId, ProjectPath, UnixMillis,
    limit::{LimitPolicy, Resource, Usage},
    refusal::Level,
};
use std::collections::BTreeMap;

/// What is held at a level.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    own: Usage,
    subtree: Usage,
}

impl Held {
    fn add(&mut self, is_target: bool, nodes: u32) {
        let usage = match is_target {
            true => &mut self.own,
            false => &mut self.subtree,
        };
        usage.nodes = usage.nodes.saturating_add(u64::from(nodes));
        usage.allocations = usage.allocations.saturating_add(1);
    }

    fn with(self, other: Held) -> Held {
        Held {
            own: self.own.with(other.own),
            subtree: self.subtree.with(other.subtree),
        }
    }
}

/// A project's own level and those above it, or the first that is not known.
type Path = Result<Vec<usize>, ProjectPath>;

/// Who has which levels above it. The same from plan to plan while no project comes or goes.
#[derive(Debug, Default)]
pub(crate) struct Paths(Vec<Path>);

impl Paths {
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Adds the projects that are missing. Levels go by their place in `levels`.
    pub(crate) fn follow(
        &mut self,
        levels: &BTreeMap<ProjectPath, LevelView>,
        projects: &Interned<Project>,
    ) {
        if self.0.len() == projects.len() {
            return;
        }
        let numbers: BTreeMap<&ProjectPath, usize> = levels.keys().zip(0..).collect();
        let path = |project: &Project| {
            let up = project.path.ancestors();
            up.map(|path| numbers.get(&path).copied().ok_or(path))
                .collect()
        };
        self.0.extend(projects.iter().skip(self.0.len()).map(path));
    }
}

/// Room kept from a time on for the job with a reservation.
#[derive(Debug, Clone, Copy)]
struct Kept {
    by: AllocationId,
    starts_at: UnixMillis,
    held: Held,
}

/// Usage at every level, counting what this plan has placed.
#[derive(Debug)]
pub(crate) struct Headroom<'a> {
    policy: LimitPolicy,
    paths: &'a [Path],
    levels: Vec<(&'a ProjectPath, &'a LevelView)>,
    used: Vec<Held>,
    kept: Vec<Vec<Kept>>,
}

impl<'a> Headroom<'a> {
    pub(crate) fn new(
        policy: LimitPolicy,
        levels: &'a BTreeMap<ProjectPath, LevelView>,
        paths: &'a Paths,
    ) -> Self {
        let used = levels.values().map(|level| Held {
            own: level.own,
            subtree: level.subtree,
        });
        Self {
            policy,
            paths: &paths.0,
            used: used.collect(),
            kept: vec![Vec::new(); levels.len()],
            levels: levels.iter().collect(),
        }
    }

    fn path(&self, project: u32) -> Result<&'a [usize], Blocker> {
        match &self.paths[project as usize] {
            Ok(path) => Ok(path),
            Err(missing) => Err(Blocker::UnknownProject {
                path: missing.clone(),
            }),
        }
    }

    /// What `nodes` more would pass at a level that has `held` already.
    fn passed(
        &self,
        level: usize,
        held: Held,
        is_target: bool,
        nodes: u32,
    ) -> impl Iterator<Item = Level> {
        let (path, view) = self.levels[level];
        let counted = self
            .policy
            .rules()
            .counted(path, held.own, held.subtree, is_target);
        let asked = [
            (Resource::Nodes, u64::from(nodes)),
            (Resource::Allocations, 1),
        ];
        asked.into_iter().filter_map(move |(resource, requested)| {
            let (current, limit) = (counted?.get(resource), view.limits.get(resource)?);
            let is_passed = requested > 0 && current.saturating_add(requested) > limit;
            is_passed.then(|| Level {
                path: path.clone(),
                resource,
                current,
                requested,
                limit,
            })
        })
    }

    /// Whether `nodes` more fit at every level.
    pub(crate) fn check(&self, project: u32, nodes: u32) -> Result<(), Blocker> {
        let path = self.path(project)?;
        let mut numbered = path.iter().enumerate();
        if numbered.all(|(n, level)| self.fits(*level, self.used[*level], n == 0, nodes)) {
            return Ok(());
        }
        let mut levels = Vec::new();
        for (n, level) in path.iter().enumerate() {
            levels.extend(self.passed(*level, self.used[*level], n == 0, nodes));
        }
        Err(Blocker::QuotaHeadroom { levels })
    }

    /// Whether [`Headroom::passed`] has nothing to say.
    fn fits(&self, level: usize, held: Held, is_target: bool, nodes: u32) -> bool {
        let (path, view) = self.levels[level];
        let rules = self.policy.rules();
        let Some(counted) = rules.counted(path, held.own, held.subtree, is_target) else {
            return true;
        };
        let room =
            |limit: Option<u64>, used: u64| limit.map_or(u64::MAX, |l| l.saturating_sub(used));
        let limits = &view.limits;
        let has_nodes = nodes == 0 || room(limits.max_nodes, counted.nodes) >= u64::from(nodes);
        has_nodes && room(limits.max_concurrent_allocations, counted.allocations) >= 1
    }

    /// Whether `nodes` more, held until `end`, leave what is kept for jobs with reservations; else the
    /// first of those.
    pub(crate) fn leaves_what_is_kept(
        &self,
        project: u32,
        nodes: u32,
        end: Option<u64>,
    ) -> Result<(), Blocker> {
        for (n, level) in self.path(project)?.iter().enumerate() {
            let mut held = self.used[*level];
            let kept = self.kept[*level].iter();
            for kept in kept.filter(|kept| end.is_none_or(|end| end > kept.starts_at.0)) {
                held = held.with(kept.held);
                if !self.fits(*level, held, n == 0, nodes) {
                    return Err(Blocker::HeadroomReserved {
                        by: kept.by,
                        starts_at: kept.starts_at,
                    });
                }
            }
        }
        Ok(())
    }

    /// Counts a placement.
    pub(crate) fn consume(&mut self, project: u32, nodes: u32) {
        for (n, level) in self.path(project).unwrap_or_default().iter().enumerate() {
            self.used[*level].add(n == 0, nodes);
        }
    }

    /// Keeps room for a job with a reservation.
    pub(crate) fn keep_for(
        &mut self,
        project: u32,
        nodes: u32,
        by: AllocationId,
        starts_at: UnixMillis,
    ) {
        for (n, level) in self.path(project).unwrap_or_default().iter().enumerate() {
            let mut held = Held::default();
            held.add(n == 0, nodes);
            self.kept[*level].push(Kept {
                by,
                starts_at,
                held,
            });
        }
    }
}
