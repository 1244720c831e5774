//! The limits as a plan uses them up. The quorum judges again when a placement is proposed; this
//! gate only keeps the solver from proposing what would be refused.

use crate::{
    explain::Blocker,
    queue::{Interned, NONE, Project},
    view::{ClusterView, LevelView},
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

impl ClusterView {
    /// Counts work of so many nodes under the limits as if it held them.
    pub fn count(&mut self, project: &ProjectPath, nodes: u32, is_sensitive: bool) {
        let levels = self.levels.iter_mut();
        for (path, level) in levels.filter(|(path, _)| project.is_within(path)) {
            let mut held = Held {
                own: level.own,
                subtree: level.subtree,
            };
            held.add(path == project, nodes);
            (level.own, level.subtree) = (held.own, held.subtree);
        }
        if is_sensitive {
            let used = &mut self.sensitive_pool.used;
            *used = used.saturating_add(u64::from(nodes));
        }
    }
}

/// A project's own level and those above it, or the first that is not known.
type Path = Result<Vec<usize>, ProjectPath>;

/// Who has which levels above it. The same from plan to plan while no project comes or goes.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    of_project: Vec<Path>,
    /// The topmost level of each project, [`NONE`] where a level is not known.
    topmost: Vec<u32>,
}

impl Paths {
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Adds the projects that are missing. Levels go by their place in `levels`.
    pub(crate) fn follow(
        &mut self,
        levels: &BTreeMap<ProjectPath, LevelView>,
        projects: &Interned<Project>,
    ) {
        let known = self.of_project.len();
        if known == projects.len() {
            return;
        }
        let levels: Vec<&str> = levels.keys().map(ProjectPath::as_str).collect();
        let path = |project: &Project| {
            let up = std::iter::successors(Some(project.path.as_str()), |path| {
                path.rsplit_once('/').map(|(parent, _)| parent)
            });
            let number = |path| levels.binary_search(&path).ok();
            let all: Option<Vec<usize>> = up.map(number).collect();
            all.ok_or_else(|| {
                let is_known = |path: &ProjectPath| levels.binary_search(&path.as_str()).is_ok();
                let missing = project.path.ancestors().find(|path| !is_known(path));
                missing.unwrap_or_else(|| project.path.clone())
            })
        };
        self.of_project
            .extend(projects.iter().skip(known).map(path));
        let topmost = |path: &Path| match path.as_ref().map(|path| path.last()) {
            // There are not 2^32 levels.
            Ok(Some(topmost)) => *topmost as u32,
            _ => NONE,
        };
        let new = self.of_project[known..].iter().map(topmost);
        self.topmost.extend(new);
    }
}

/// Room kept from a time on for the job with a reservation.
#[derive(Debug, Clone, Copy)]
struct Kept {
    by: AllocationId,
    starts_at: UnixMillis,
    held: Held,
}

/// What a project may still have, at all its levels.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// How often its tenant had been given something when this was found.
    changes: u32,
    nodes: u64,
    allocations: u64,
}

impl Room {
    const NOT_FOUND: Self = Self {
        changes: u32::MAX,
        nodes: 0,
        allocations: 0,
    };

    fn has(&self, nodes: u32) -> bool {
        (nodes == 0 || self.nodes >= u64::from(nodes)) && self.allocations >= 1
    }

    fn and(self, other: Self) -> Self {
        Self {
            changes: self.changes,
            nodes: self.nodes.min(other.nodes),
            allocations: self.allocations.min(other.allocations),
        }
    }
}

/// Usage at every level, counting what this plan has placed.
#[derive(Debug)]
pub(crate) struct Headroom<'a> {
    policy: LimitPolicy,
    paths: &'a Paths,
    levels: Vec<(&'a ProjectPath, &'a LevelView)>,
    used: Vec<Held>,
    /// How often something below each topmost level was given something.
    changes: Vec<u32>,
    /// By project.
    rooms: Vec<Room>,
    kept: BTreeMap<usize, Vec<Kept>>,
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
            paths,
            used: used.collect(),
            changes: vec![0; levels.len()],
            rooms: vec![Room::NOT_FOUND; paths.of_project.len()],
            kept: BTreeMap::new(),
            levels: levels.iter().collect(),
        }
    }

    fn path(&self, project: u32) -> Result<&'a [usize], Blocker> {
        match &self.paths.of_project[project as usize] {
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
    pub(crate) fn check(&mut self, project: u32, nodes: u32) -> Result<(), Blocker> {
        let room = self.room(project)?;
        if room.has(nodes) {
            return Ok(());
        }
        let path = self.path(project)?;
        let mut levels = Vec::new();
        for (n, level) in path.iter().enumerate() {
            levels.extend(self.passed(*level, self.used[*level], n == 0, nodes));
        }
        Err(Blocker::QuotaHeadroom { levels })
    }

    /// What is left for a project, which is the same until its tenant is given something.
    fn room(&mut self, project: u32) -> Result<Room, Blocker> {
        let topmost = self.paths.topmost[project as usize];
        let changes = self.changes.get(topmost as usize).copied().unwrap_or(0);
        let known = &self.rooms[project as usize];
        if known.changes == changes {
            return Ok(*known);
        }
        let found = self.find_room(self.path(project)?, changes);
        self.rooms[project as usize] = found;
        Ok(found)
    }

    fn find_room(&self, path: &[usize], changes: u32) -> Room {
        let rooms = path.iter().enumerate();
        let rooms = rooms.map(|(n, level)| self.room_at(*level, self.used[*level], n == 0));
        let unlimited = Room {
            changes,
            nodes: u64::MAX,
            allocations: u64::MAX,
        };
        rooms.fold(unlimited, Room::and)
    }

    /// What is left at a level that has `held` already.
    fn room_at(&self, level: usize, held: Held, is_target: bool) -> Room {
        let (path, view) = self.levels[level];
        let rules = self.policy.rules();
        let counted = rules.counted(path, held.own, held.subtree, is_target);
        let left = |resource| match counted.zip(view.limits.get(resource)) {
            Some((counted, limit)) => limit.saturating_sub(counted.get(resource)),
            None => u64::MAX,
        };
        Room {
            changes: 0,
            nodes: left(Resource::Nodes),
            allocations: left(Resource::Allocations),
        }
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
            let Some(kept) = self.kept.get(level) else {
                continue;
            };
            let mut held = self.used[*level];
            for kept in kept
                .iter()
                .filter(|kept| end.is_none_or(|end| end > kept.starts_at.0))
            {
                held = held.with(kept.held);
                if !self.room_at(*level, held, n == 0).has(nodes) {
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
        let path = self.path(project).unwrap_or_default();
        for (n, level) in path.iter().enumerate() {
            self.used[*level].add(n == 0, nodes);
        }
        if let Some(topmost) = path.last() {
            self.changes[*topmost] += 1;
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
            self.kept.entry(*level).or_default().push(Kept {
                by,
                starts_at,
                held,
            });
        }
    }
}
