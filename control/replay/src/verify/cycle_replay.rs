//! Replay of all cycles in a row, in which each cycle continues from the replay's own placements. External inputs are
//! those of the record: submissions, run times, nodes, limits, weights, promises of nodes, and the times of plans.

use lattice_placement::{
    ClusterView, Delta, LevelView, NodeView, PendingView, Planner, RunningView,
    record::{Cycle, Line, Outcome},
};
use lattice_quorum_types::{
    AllocationId, AllocationState, NodeId, ProjectPath, UnixMillis, VclusterName,
    event::AllocationChange, limit::Usage,
};
use std::collections::{BTreeMap, BTreeSet};

/// Recorded course of one allocation.
#[derive(Debug, Clone, Default)]
struct RecordedProgress {
    submitted_at: Option<UnixMillis>,
    /// Time of the plan that placed the last attempt, and the nodes of this attempt in rank order.
    started: Option<(UnixMillis, Vec<NodeId>)>,
    ended_at: Option<UnixMillis>,
}

/// Replayed course of one allocation.
#[derive(Debug, Clone)]
struct ReplayedProgress {
    vcluster: VclusterName,
    project: ProjectPath,
    started_at: UnixMillis,
    nodes: Vec<NodeId>,
    walltime_ms: Option<u64>,
    /// Whether the allocation started as in the record, and therefore ends as in the record.
    started_as_recorded: bool,
    has_ended: bool,
}

/// Replay of all cycles in a row.
#[derive(Default)]
pub(super) struct CycleReplay {
    planners: BTreeMap<VclusterName, Planner>,
    recorded: BTreeMap<AllocationId, RecordedProgress>,
    replayed: BTreeMap<AllocationId, ReplayedProgress>,
    /// Number of plans read from the record; `plans_replayed` is the number of replayed plans. Plans are identified by
    /// these numbers, since two plans may have the same time.
    plans_read: u64,
    plans_replayed: u64,
    /// Recorded placements without an outcome yet, with the number of their plan.
    placed: BTreeMap<(UnixMillis, AllocationId), (u64, Vec<NodeId>)>,
    /// By allocation and nodes: number of recorded assignments, less those that answer a placement.
    unanswered: BTreeMap<(AllocationId, Vec<NodeId>), i64>,
    /// Recorded placements that did not start, by the number of their plan.
    failed: BTreeSet<(u64, AllocationId)>,
    /// Whether any placement differs from the record so far.
    differs: bool,
}

/// Comparison of the record with the replay.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CycleComparison {
    pub(super) allocations: u64,
    pub(super) same_start: u64,
    pub(super) same_nodes: u64,
    pub(super) mean_start_difference_s: f64,
    pub(super) max_start_difference_s: f64,
    pub(super) makespan_recorded_s: f64,
    pub(super) makespan_replayed_s: f64,
    pub(super) wait_distance: f64,
}

impl CycleReplay {
    /// Reads a recorded line. The caller reads all lines before the first replayed cycle.
    pub(super) fn read_line(&mut self, line: &Line) {
        match line {
            Line::View { view, .. } => self.submitted(view.pending.iter()),
            Line::Cycle(cycle) => {
                let came = cycle.delta.iter().flat_map(|delta| &delta.pending);
                self.submitted(came.filter_map(|(id, known)| Some((id, known.as_ref()?))));
                self.plans_read += 1;
                for of in &cycle.placed {
                    let placed = (self.plans_read, of.nodes.clone());
                    if let Some((plan, _)) = self.placed.insert((cycle.at, of.id), placed) {
                        self.failed.insert((plan, of.id));
                    }
                }
            }
            Line::Outcome {
                planned_at,
                id,
                outcome,
                ..
            } => {
                let Some((plan, nodes)) = self.placed.remove(&(*planned_at, *id)) else {
                    return;
                };
                match outcome {
                    Outcome::Assigned { .. } => {
                        *self.unanswered.entry((*id, nodes.clone())).or_default() -= 1;
                        self.recorded.entry(*id).or_default().started = Some((*planned_at, nodes));
                    }
                    Outcome::Refused { .. } | Outcome::HeldBack { .. } => {
                        self.failed.insert((plan, *id));
                    }
                }
            }
            Line::Allocation(changed) if changed.change == AllocationChange::Ended => {
                let ended_at = changed.ended_at.unwrap_or(changed.at);
                if changed.state != AllocationState::Cancelled || changed.started_at.is_some() {
                    self.recorded.entry(changed.id).or_default().ended_at = Some(ended_at);
                }
            }
            Line::Allocation(changed) if changed.change == AllocationChange::Assigned => {
                let key = (changed.id, changed.nodes.clone());
                *self.unanswered.entry(key).or_default() += 1;
            }
            Line::Begin { .. } | Line::Allocation(_) | Line::RefusedSubmit { .. } => {}
        }
    }

    /// Completes the reading. The answer of the quorum to a placement may be lost; the placement has started if the
    /// record has its assignment. Otherwise, as in the last plan of a record or of a control that crashed, a placement
    /// without an outcome counts as not started.
    pub(super) fn finish_reading(&mut self) {
        let unknown = std::mem::take(&mut self.placed);
        // The scheduler plans again after a lost answer; the last of equal plans is the one that was assigned.
        for ((planned_at, id), (plan, nodes)) in unknown.into_iter().rev() {
            let key = (id, nodes);
            let Some(count) = self.unanswered.get_mut(&key).filter(|count| **count > 0) else {
                self.failed.insert((plan, id));
                continue;
            };
            *count -= 1;
            let then = self.recorded.entry(id).or_default();
            if then.started.as_ref().is_none_or(|(at, _)| *at < planned_at) {
                then.started = Some((planned_at, key.1));
            }
        }
    }

    fn submitted<'a>(
        &mut self,
        pending: impl Iterator<Item = (&'a AllocationId, &'a PendingView)>,
    ) {
        for (id, known) in pending {
            let then = self.recorded.entry(*id).or_default();
            then.submitted_at.get_or_insert(known.submitted_at);
        }
    }

    /// Creates the planner of a scheduler from a recorded view. After a difference, the view is adapted to the replay.
    pub(super) fn view(&mut self, vcluster: &VclusterName, view: &ClusterView) {
        let view = match self.differs {
            false => view.clone(),
            true => self.adapted_view(vcluster, view),
        };
        self.planners.insert(vcluster.clone(), Planner::new(view));
    }

    /// Returns the view with the replay's own placements instead of the recorded ones.
    fn adapted_view(&self, vcluster: &VclusterName, view: &ClusterView) -> ClusterView {
        let mut ours = view.clone();
        ours.pending.retain(|id, _| !self.replayed.contains_key(id));
        ours.running.clear();
        for (id, now) in self
            .replayed
            .iter()
            .filter(|(_, now)| !now.has_ended && now.vcluster == *vcluster)
        {
            ours.running.insert(*id, running(now));
        }
        let held = self.held();
        for (name, node) in &mut ours.nodes {
            node.holder = held.get(name).copied();
        }
        for (path, level) in &mut ours.levels {
            *level = self.level(path, *level);
        }
        ours
    }

    fn held(&self) -> BTreeMap<&NodeId, AllocationId> {
        let holds = self.replayed.iter().filter(|(_, now)| !now.has_ended);
        holds
            .flat_map(|(id, now)| now.nodes.iter().map(|node| (node, *id)))
            .collect()
    }

    /// Recorded limits with the replay's own usage.
    fn level(&self, path: &ProjectPath, level: LevelView) -> LevelView {
        let (mut own, mut subtree) = (Usage::default(), Usage::default());
        for now in self.replayed.values().filter(|now| !now.has_ended) {
            let used = Usage {
                nodes: now.nodes.len() as u64,
                allocations: 1,
            };
            if now.project == *path {
                own = own.with(used);
            } else if now.project.levels().any(|up| up == path.as_str()) {
                subtree = subtree.with(used);
            }
        }
        LevelView {
            own,
            subtree,
            ..level
        }
    }

    pub(super) fn cycle(&mut self, cycle: &Cycle) {
        self.end(cycle.at);
        self.plans_replayed += 1;
        let Some(mut planner) = self.planners.remove(&cycle.vcluster) else {
            return;
        };
        if let Some(delta) = &cycle.delta {
            let delta = match self.differs {
                false => (**delta).clone(),
                true => self.adapted_delta(&cycle.vcluster, delta, planner.view()),
            };
            self.apply_recorded_ends(&delta);
            planner.update(delta);
        }
        planner.set_policy(cycle.policy);
        let plan = planner.plan_with_promised(cycle.promised.clone(), cycle.at);
        let mut taken: BTreeSet<AllocationId> = BTreeSet::new();
        for placed in &plan.placements {
            if self.failed.contains(&(self.plans_replayed, placed.id)) {
                continue;
            }
            let nodes: Vec<NodeId> = placed.nodes.iter().map(|n| n.node.clone()).collect();
            let known = planner.view().pending.get(&placed.id);
            let Some(known) = known.or_else(|| cycle.promised.get(&placed.id)) else {
                continue;
            };
            // The placement is compared with the recorded plan, not with the last recorded start: an allocation that is
            // stopped and requeued starts several times.
            let mut then = cycle.placed.iter();
            let is_as_then = then.any(|then| then.id == placed.id && then.nodes == nodes);
            self.differs |= !is_as_then;
            let now = ReplayedProgress {
                vcluster: cycle.vcluster.clone(),
                project: known.project.clone(),
                started_at: cycle.at,
                nodes,
                walltime_ms: known.walltime_ms,
                started_as_recorded: is_as_then,
                has_ended: false,
            };
            self.replayed.insert(placed.id, now);
            taken.insert(placed.id);
        }
        // A recorded placement without a replayed one is a difference too.
        let was = cycle
            .placed
            .iter()
            .filter(|was| !self.failed.contains(&(self.plans_replayed, was.id)));
        self.differs |= was.clone().any(|was| !taken.contains(&was.id));
        self.planners.insert(cycle.vcluster.clone(), planner);
    }

    /// Ends the allocations that are over at this time. An allocation with another start runs for its recorded run
    /// time.
    fn end(&mut self, at: UnixMillis) {
        for (id, now) in &mut self.replayed {
            let ends_at = ends_at(self.recorded.get(id), now);
            if ends_at.is_some_and(|ends_at| ends_at <= at) {
                now.has_ended = true;
            }
        }
    }

    /// Takes the end of an allocation from the record if the allocation started as recorded.
    fn apply_recorded_ends(&mut self, delta: &Delta) {
        for (id, running) in &delta.running {
            if let (None, Some(now)) = (running, self.replayed.get_mut(id)) {
                now.has_ended |= now.started_as_recorded;
            }
        }
    }

    /// Adapts a delta after a difference: external inputs come from the record, and consequences of placements
    /// (holders, running allocations, usage) from the replay.
    fn adapted_delta(&self, vcluster: &VclusterName, delta: &Delta, known: &ClusterView) -> Delta {
        let mut ours = Delta {
            pending: BTreeMap::new(),
            running: BTreeMap::new(),
            nodes: BTreeMap::new(),
            levels: BTreeMap::new(),
            ..delta.clone()
        };
        for (id, pending) in &delta.pending {
            let was_placed = self
                .recorded
                .get(id)
                .is_some_and(|then| then.started.is_some());
            match pending {
                Some(pending) if !self.replayed.contains_key(id) => {
                    ours.pending.insert(*id, Some(pending.clone()));
                }
                // The allocation left the queue without a start: cancelled, held, or past its deadline.
                None if !was_placed => drop(ours.pending.insert(*id, None)),
                _ => {}
            }
        }
        for id in known
            .pending
            .keys()
            .filter(|id| self.replayed.contains_key(id))
        {
            ours.pending.insert(*id, None);
        }
        for (id, now) in self
            .replayed
            .iter()
            .filter(|(_, now)| now.vcluster == *vcluster)
        {
            ours.running
                .insert(*id, (!now.has_ended).then(|| running(now)));
        }
        for id in known
            .running
            .keys()
            .filter(|id| !self.replayed.contains_key(id))
        {
            // The allocation started before the record, and ends as recorded.
            if let Some(change) = delta.running.get(id) {
                ours.running.insert(*id, change.clone());
            }
        }
        let held = self.held();
        let before = |name: &NodeId| known.nodes.get(name).and_then(|node| node.holder);
        for (name, node) in &known.nodes {
            let news = delta.nodes.get(name);
            let node = news.cloned().unwrap_or_else(|| Some(node.clone()));
            let Some(node) = node else {
                ours.nodes.insert(name.clone(), None);
                continue;
            };
            // A holder that started before the record stays as recorded.
            let foreign = before(name).filter(|id| !self.replayed.contains_key(id));
            let foreign = foreign.filter(|id| news.is_none() || node.holder == Some(*id));
            let holder = held.get(name).copied().or(foreign);
            let is_news = news.is_some() || before(name) != holder;
            if is_news {
                ours.nodes
                    .insert(name.clone(), Some(NodeView { holder, ..node }));
            }
        }
        for (name, node) in delta
            .nodes
            .iter()
            .filter(|(name, _)| !known.nodes.contains_key(*name))
        {
            let holder = held.get(name).copied();
            let node = node.clone().map(|node| NodeView { holder, ..node });
            ours.nodes.insert(name.clone(), node);
        }
        let levels = known
            .levels
            .iter()
            .map(|(path, level)| (path, Some(*level)));
        let levels: BTreeMap<&ProjectPath, Option<LevelView>> = levels
            .chain(delta.levels.iter().map(|(path, level)| (path, *level)))
            .collect();
        for (path, level) in levels {
            ours.levels
                .insert(path.clone(), level.map(|level| self.level(path, level)));
        }
        ours
    }

    pub(super) fn compared(mut self) -> CycleComparison {
        self.end(UnixMillis(u64::MAX));
        let mut compared = CycleComparison::default();
        let (mut waits_then, mut waits_now) = (Vec::new(), Vec::new());
        let (mut sum_s, mut both) = (0.0, 0_u64);
        let (mut last_then, mut last_now) = (None, None);
        for (id, then) in &self.recorded {
            let now = self.replayed.get(id);
            if then.started.is_none() && now.is_none() {
                continue;
            }
            compared.allocations += 1;
            if let (Some((at, nodes)), Some(now)) = (&then.started, now) {
                let difference_s = seconds(at.since(now.started_at) + now.started_at.since(*at));
                (sum_s, both) = (sum_s + difference_s, both + 1);
                compared.max_start_difference_s = compared.max_start_difference_s.max(difference_s);
                let same_start = *at == now.started_at;
                compared.same_start += u64::from(same_start);
                compared.same_nodes += u64::from(same_start && *nodes == now.nodes);
            }
            let submitted = then.submitted_at;
            if let (Some((at, _)), Some(submitted)) = (&then.started, submitted) {
                waits_then.push(at.since(submitted));
            }
            if let (Some(now), Some(submitted)) = (now, submitted) {
                waits_now.push(now.started_at.since(submitted));
            }
            last_then = last_then.max(then.ended_at);
            last_now = last_now.max(now.and_then(|now| ends_at(Some(then), now)));
        }
        let first = self
            .recorded
            .values()
            .filter_map(|then| then.submitted_at)
            .min();
        let makespan = |last: Option<UnixMillis>| match (first, last) {
            (Some(first), Some(last)) => seconds(last.since(first)),
            _ => 0.0,
        };
        compared.mean_start_difference_s = sum_s / both.max(1) as f64;
        compared.makespan_recorded_s = makespan(last_then);
        compared.makespan_replayed_s = makespan(last_now);
        compared.wait_distance = distance(waits_then, waits_now);
        compared
    }
}

/// Returns the end of an allocation in the replay. With the recorded start and nodes, this is the recorded end;
/// otherwise, the start plus the recorded run time. `None` if the record has no end or no start.
fn ends_at(then: Option<&RecordedProgress>, now: &ReplayedProgress) -> Option<UnixMillis> {
    let then = then?;
    let ended_at = then.ended_at?;
    if now.started_as_recorded {
        return Some(ended_at);
    }
    let (started_at, _) = then.started.as_ref()?;
    Some(now.started_at.after(ended_at.since(*started_at)))
}

fn running(now: &ReplayedProgress) -> RunningView {
    RunningView {
        ends_at: now.walltime_ms.map(|ms| now.started_at.after(ms)),
        walltime_ms: now.walltime_ms,
        storage_mb_s: BTreeMap::new(),
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Kolmogorov-Smirnov distance: the largest difference between the two distribution functions.
fn distance(mut a: Vec<u64>, mut b: Vec<u64>) -> f64 {
    if a.is_empty() || b.is_empty() {
        return if a.len() == b.len() { 0.0 } else { 1.0 };
    }
    a.sort_unstable();
    b.sort_unstable();
    let part =
        |of: &[u64], at: u64| of.partition_point(|value| *value <= at) as f64 / of.len() as f64;
    let values = a.iter().chain(&b);
    values
        .map(|at| (part(&a, *at) - part(&b, *at)).abs())
        .fold(0.0, f64::max)
}
