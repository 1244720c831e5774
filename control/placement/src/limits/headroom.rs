//! Headroom: limits and the usage of a plan in progress. The quorum checks limits again when a placement is proposed.
//! This check only prevents proposals that the quorum would reject.

use crate::{
    explain::Blocker,
    queue::{
        Project,
        interned::{Interned, NO_ENTRY},
    },
    view::{ClusterView, LevelView},
};
use lattice_quorum_types::{
    AllocationId, ProjectPath, UnixMillis,
    limit::{Resource, Usage},
    limit_policy::LimitPolicy,
    refusal::ViolatedLevel,
};
use std::collections::BTreeMap;

/// Usage at a level.
#[derive(Debug, Clone, Copy, Default)]
struct LevelUsage {
    own: Usage,
    subtree: Usage,
}

impl LevelUsage {
    fn add(&mut self, is_target: bool, nodes: u32) {
        let usage = match is_target {
            true => &mut self.own,
            false => &mut self.subtree,
        };
        usage.nodes = usage.nodes.saturating_add(u64::from(nodes));
        usage.allocations = usage.allocations.saturating_add(1);
    }

    fn with(self, other: LevelUsage) -> LevelUsage {
        LevelUsage {
            own: self.own.with(other.own),
            subtree: self.subtree.with(other.subtree),
        }
    }
}

impl ClusterView {
    /// Counts an allocation of `nodes` nodes under the limits as if it held them.
    pub fn count(&mut self, project: &ProjectPath, nodes: u32, is_sensitive: bool) {
        let levels = self.levels.iter_mut();
        for (path, level) in levels.filter(|(path, _)| project.is_within(path)) {
            let mut held = LevelUsage {
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

/// Levels of a project, from the project up, or the first unknown level.
type Path = Result<Vec<usize>, ProjectPath>;

/// Levels of each project: the project and all projects above it. Unchanged from plan to plan while no project is
/// created or deleted.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    of_project: Vec<Path>,
    /// Topmost level of each project; [`NO_ENTRY`] if a level is unknown.
    topmost: Vec<u32>,
}

impl Paths {
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Adds missing projects. Levels are identified by their position in `levels`.
    pub(crate) fn add_missing(
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
            // There are fewer than 2^32 levels.
            Ok(Some(topmost)) => *topmost as u32,
            _ => NO_ENTRY,
        };
        let new = self.of_project[known..].iter().map(topmost);
        self.topmost.extend(new);
    }
}

/// Headroom kept for a job with a reservation, from the job's planned start on.
#[derive(Debug, Clone, Copy)]
struct ReservedHeadroom {
    by: AllocationId,
    starts_at: UnixMillis,
    held: LevelUsage,
}

/// Headroom of a project over all its levels.
#[derive(Debug, Clone, Copy)]
struct PathHeadroom {
    /// Number of placements in the project's tenant when this headroom was computed.
    changes: u32,
    nodes: u64,
    allocations: u64,
}

impl PathHeadroom {
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

/// Usage at every level, including placements of this plan.
#[derive(Debug)]
pub(crate) struct Headroom<'a> {
    policy: LimitPolicy,
    paths: &'a Paths,
    levels: Vec<(&'a ProjectPath, &'a LevelView)>,
    used: Vec<LevelUsage>,
    /// Number of placements below each topmost level.
    changes: Vec<u32>,
    /// Cached headroom by project.
    rooms: Vec<PathHeadroom>,
    kept: BTreeMap<usize, Vec<ReservedHeadroom>>,
}

impl<'a> Headroom<'a> {
    pub(crate) fn new(
        policy: LimitPolicy,
        levels: &'a BTreeMap<ProjectPath, LevelView>,
        paths: &'a Paths,
    ) -> Self {
        let used = levels.values().map(|level| LevelUsage {
            own: level.own,
            subtree: level.subtree,
        });
        Self {
            policy,
            paths,
            used: used.collect(),
            changes: vec![0; levels.len()],
            rooms: vec![PathHeadroom::NOT_FOUND; paths.of_project.len()],
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

    /// Limits that `nodes` more would exceed at a level with usage `held`.
    fn exceeded_limits(
        &self,
        level: usize,
        held: LevelUsage,
        is_target: bool,
        nodes: u32,
    ) -> impl Iterator<Item = ViolatedLevel> {
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
            is_passed.then(|| ViolatedLevel {
                path: path.clone(),
                resource,
                current,
                requested,
                limit,
            })
        })
    }

    /// Checks that `nodes` more fit at every level.
    pub(crate) fn check(&mut self, project: u32, nodes: u32) -> Result<(), Blocker> {
        let room = self.cached_headroom(project)?;
        if room.has(nodes) {
            return Ok(());
        }
        let path = self.path(project)?;
        let mut levels = Vec::new();
        for (n, level) in path.iter().enumerate() {
            levels.extend(self.exceeded_limits(*level, self.used[*level], n == 0, nodes));
        }
        Err(Blocker::QuotaHeadroom { levels })
    }

    /// Headroom of a project, unchanged until its tenant gets a placement.
    fn cached_headroom(&mut self, project: u32) -> Result<PathHeadroom, Blocker> {
        let topmost = self.paths.topmost[project as usize];
        let changes = self.changes.get(topmost as usize).copied().unwrap_or(0);
        let known = &self.rooms[project as usize];
        if known.changes == changes {
            return Ok(*known);
        }
        let found = self.find_headroom(self.path(project)?, changes);
        self.rooms[project as usize] = found;
        Ok(found)
    }

    fn find_headroom(&self, path: &[usize], changes: u32) -> PathHeadroom {
        let rooms = path.iter().enumerate();
        let rooms = rooms.map(|(n, level)| self.headroom_at(*level, self.used[*level], n == 0));
        let unlimited = PathHeadroom {
            changes,
            nodes: u64::MAX,
            allocations: u64::MAX,
        };
        rooms.fold(unlimited, PathHeadroom::and)
    }

    /// Headroom of a level with usage `held`.
    fn headroom_at(&self, level: usize, held: LevelUsage, is_target: bool) -> PathHeadroom {
        let (path, view) = self.levels[level];
        let rules = self.policy.rules();
        let counted = rules.counted(path, held.own, held.subtree, is_target);
        let left = |resource| match counted.zip(view.limits.get(resource)) {
            Some((counted, limit)) => limit.saturating_sub(counted.get(resource)),
            None => u64::MAX,
        };
        PathHeadroom {
            changes: 0,
            nodes: left(Resource::Nodes),
            allocations: left(Resource::Allocations),
        }
    }

    /// Checks that `nodes` more, held until `end`, leave the headroom kept for jobs with reservations; otherwise
    /// returns the first of those jobs.
    pub(crate) fn check_reserved_headroom(
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
                if !self.headroom_at(*level, held, n == 0).has(nodes) {
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
    pub(crate) fn count_placement(&mut self, project: u32, nodes: u32) {
        let path = self.path(project).unwrap_or_default();
        for (n, level) in path.iter().enumerate() {
            self.used[*level].add(n == 0, nodes);
        }
        if let Some(topmost) = path.last() {
            self.changes[*topmost] += 1;
        }
    }

    /// Keeps headroom for a job with a reservation.
    pub(crate) fn keep_for(
        &mut self,
        project: u32,
        nodes: u32,
        by: AllocationId,
        starts_at: UnixMillis,
    ) {
        for (n, level) in self.path(project).unwrap_or_default().iter().enumerate() {
            let mut held = LevelUsage::default();
            held.add(n == 0, nodes);
            self.kept.entry(*level).or_default().push(ReservedHeadroom {
                by,
                starts_at,
                held,
            });
        }
    }
}
