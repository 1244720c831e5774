//! Replay of all cycles in a row, in which each cycle continues from the replay's own placements. External inputs are
//! those of the record: submissions, holds, limits, nodes, weights, promises of nodes, and the times of plans.
//!
//! An allocation may start several times: it is requeued, or suspended and resumed, or preempted, or its node is lost.
//! The record has the attempts of each allocation in order. An attempt of the replay takes from the recorded attempt of
//! the same number its run time, and the time from its end until the allocation is in the queue again.

mod adaptation;

use super::attempts::{RecordedAttempt, RecordedProgress, RecordedStarts};
use lattice_placement::{
    ClusterView, Delta, LevelView, Planner, RunningView,
    record::{Cycle, Line},
};
use lattice_quorum_types::{AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName, hostlist};
use std::collections::{BTreeMap, BTreeSet};

/// Replayed course of one allocation that has started at least once.
#[derive(Debug, Clone)]
struct ReplayedProgress {
    vcluster: VclusterName,
    project: ProjectPath,
    /// Attempts in the order of their starts.
    attempts: Vec<ReplayedAttempt>,
    /// Time at which the allocation is in the queue again, after the end of its last attempt.
    returns_at: Option<UnixMillis>,
}

/// Replayed attempt of an allocation.
#[derive(Debug, Clone)]
struct ReplayedAttempt {
    started_at: UnixMillis,
    /// Nodes of the start, in rank order.
    nodes: Vec<NodeId>,
    /// Nodes held now: growing and shrinking change them.
    held: BTreeSet<NodeId>,
    /// Entry of the running allocation in the solver's view.
    running: RunningView,
    /// Whether the attempt started as the recorded attempt of the same number, and therefore ends with it.
    started_as_recorded: bool,
    has_ended: bool,
}

impl ReplayedProgress {
    /// Attempt that holds nodes now.
    fn active(&self) -> Option<&ReplayedAttempt> {
        self.attempts.last().filter(|last| !last.has_ended)
    }

    /// Attempt that holds nodes now, with its position among the attempts.
    fn active_mut(&mut self) -> Option<(usize, &mut ReplayedAttempt)> {
        let number = self.attempts.len().checked_sub(1)?;
        let last = self.attempts.last_mut().filter(|last| !last.has_ended)?;
        Some((number, last))
    }
}

/// First placement in the sequence of all plans that differs from the record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SequenceDifference {
    pub(super) line: u64,
    pub(super) cycle: u64,
    pub(super) vcluster: VclusterName,
    pub(super) at: UnixMillis,
    pub(super) id: AllocationId,
    pub(super) what: String,
}

/// Replay of all cycles in a row.
#[derive(Default)]
pub(super) struct CycleReplay {
    planners: BTreeMap<VclusterName, Planner>,
    recorded: RecordedStarts,
    replayed: BTreeMap<AllocationId, ReplayedProgress>,
    plans_replayed: u64,
    /// Number of recorded starts of each allocation, up to the last replayed plan.
    recorded_starts: BTreeMap<AllocationId, usize>,
    /// Allocations that hold nodes in the record now and were started by its plans.
    recorded_running: BTreeSet<AllocationId>,
    /// Recorded limits and usage, by vCluster of the scheduler that received them.
    recorded_levels: BTreeMap<VclusterName, BTreeMap<ProjectPath, LevelView>>,
    /// Allocations that the last plan of each scheduler started. They are still in the queue of its planner, and the
    /// attempt may end before the next plan.
    last_started: BTreeMap<VclusterName, BTreeSet<AllocationId>>,
    /// First placement that differs from the record; `None` while every placement is as recorded.
    first_difference: Option<SequenceDifference>,
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
    pub(super) first_difference: Option<SequenceDifference>,
}

impl CycleReplay {
    /// Reads a recorded line. The caller reads all lines before the first replayed cycle.
    pub(super) fn read_line(&mut self, line: &Line) {
        self.recorded.read_line(line);
    }

    /// Completes the reading.
    pub(super) fn finish_reading(&mut self) {
        self.recorded.finish();
    }

    /// Creates the planner of a scheduler from a recorded view. After a difference, the view is adapted to the replay.
    pub(super) fn view(&mut self, vcluster: &VclusterName, at: UnixMillis, view: &ClusterView) {
        self.end(at);
        self.recorded_levels
            .insert(vcluster.clone(), view.levels.clone());
        let present: BTreeSet<AllocationId> = view.running.keys().copied().collect();
        self.recorded_running.retain(|id| present.contains(id));
        let started = present
            .into_iter()
            .filter(|id| self.recorded_starts.contains_key(id));
        self.recorded_running.extend(started);
        let ours = match self.first_difference {
            None => view.clone(),
            Some(_) => self.adapted_view(vcluster, at, view),
        };
        self.clear_returned(vcluster, at);
        self.planners.insert(vcluster.clone(), Planner::new(ours));
    }

    /// Number of attempts that the replay has started.
    fn replayed_starts(&self, id: AllocationId) -> usize {
        self.replayed.get(&id).map_or(0, |now| now.attempts.len())
    }

    fn recorded_starts(&self, id: AllocationId) -> usize {
        self.recorded_starts.get(&id).copied().unwrap_or(0)
    }

    /// Marks the allocations that returned to the queue by this time. From then on the record's changes of the queue
    /// apply to them.
    fn clear_returned(&mut self, vcluster: &VclusterName, at: UnixMillis) {
        let own = self.replayed.values_mut();
        for now in own.filter(|now| now.vcluster == *vcluster) {
            now.returns_at = now.returns_at.filter(|returns_at| *returns_at > at);
        }
    }

    /// Replays a plan, which is at line `line` of the record.
    pub(super) fn cycle(&mut self, line: u64, cycle: &Cycle) {
        self.end(cycle.at);
        self.plans_replayed += 1;
        if let Some(delta) = &cycle.delta {
            self.follow_record(&cycle.vcluster, cycle.at, delta);
        }
        if let Some(mut planner) = self.planners.remove(&cycle.vcluster) {
            if let Some(delta) = &cycle.delta {
                let delta = match self.first_difference {
                    None => (**delta).clone(),
                    Some(_) => self.adapted_delta(cycle, delta, planner.view()),
                };
                planner.update(delta);
            }
            self.clear_returned(&cycle.vcluster, cycle.at);
            planner.set_policy(cycle.policy);
            self.place(line, cycle, &mut planner);
            self.planners.insert(cycle.vcluster.clone(), planner);
        }
        for was in self.recorded.started(self.plans_replayed, &cycle.placed) {
            *self.recorded_starts.entry(was.id).or_default() += 1;
        }
    }

    /// Plans, and starts the placements, except those that did not start in the record.
    fn place(&mut self, line: u64, cycle: &Cycle, planner: &mut Planner) {
        let plan = planner.plan_with_promised(cycle.promised.clone(), cycle.at);
        let mut taken: BTreeSet<AllocationId> = BTreeSet::new();
        let mut difference = None;
        for placed in &plan.placements {
            if self.recorded.has_failed(self.plans_replayed, placed.id) {
                continue;
            }
            let nodes: Vec<NodeId> = placed.nodes.iter().map(|n| n.node.clone()).collect();
            let known = planner.view().pending.get(&placed.id);
            let Some(known) = known.or_else(|| cycle.promised.get(&placed.id)) else {
                continue;
            };
            let then = cycle.placed.iter().find(|then| then.id == placed.id);
            let is_as_then = then.is_some_and(|then| then.nodes == nodes)
                && self.replayed_starts(placed.id) == self.recorded_starts(placed.id);
            if !is_as_then && difference.is_none() {
                let recorded = then.map(|then| then.nodes.as_slice());
                difference = Some((placed.id, placement_texts(recorded, Some(nodes.as_slice()))));
            }
            let running = RunningView {
                ends_at: known.walltime_ms.map(|ms| cycle.at.after(ms)),
                walltime_ms: known.walltime_ms,
                storage_mb_s: known.storage_mb_s.clone(),
            };
            let attempt = ReplayedAttempt {
                started_at: cycle.at,
                held: nodes.iter().cloned().collect(),
                nodes,
                running,
                started_as_recorded: is_as_then,
                has_ended: false,
            };
            let now = self
                .replayed
                .entry(placed.id)
                .or_insert_with(|| ReplayedProgress {
                    vcluster: cycle.vcluster.clone(),
                    project: known.project.clone(),
                    attempts: Vec::new(),
                    returns_at: None,
                });
            now.attempts.push(attempt);
            now.returns_at = None;
            taken.insert(placed.id);
        }
        // A recorded start without a replayed one is a difference too.
        let started = self.recorded.started(self.plans_replayed, &cycle.placed);
        let missing = started.into_iter().find(|was| !taken.contains(&was.id));
        let missing =
            missing.map(|was| (was.id, placement_texts(Some(was.nodes.as_slice()), None)));
        self.last_started.insert(cycle.vcluster.clone(), taken);
        if self.first_difference.is_none()
            && let Some((id, what)) = difference.or(missing)
        {
            self.first_difference = Some(SequenceDifference {
                line,
                cycle: self.plans_replayed,
                vcluster: cycle.vcluster.clone(),
                at: cycle.at,
                id,
                what: format!("allocation {id} {what}"),
            });
        }
    }

    /// Ends the attempts that are over at this time. An attempt with another start runs for its recorded run time.
    fn end(&mut self, at: UnixMillis) {
        let recorded = &self.recorded;
        for (id, now) in &mut self.replayed {
            let then = recorded.progress(*id);
            let Some((number, last)) = now.active_mut() else {
                continue;
            };
            if let Some(ends_at) = ends_at(then, number, last).filter(|ends_at| *ends_at <= at) {
                last.has_ended = true;
                now.returns_at = returns_at(then, number, ends_at);
            }
        }
    }

    /// Applies the record's changes to the attempts that started as recorded: their ends, walltimes, and the nodes that
    /// they gained or released.
    fn follow_record(&mut self, vcluster: &VclusterName, at: UnixMillis, delta: &Delta) {
        let levels = self.recorded_levels.entry(vcluster.clone()).or_default();
        for (path, level) in &delta.levels {
            match level {
                Some(level) => levels.insert(path.clone(), *level),
                None => levels.remove(path),
            };
        }
        for (id, running) in &delta.running {
            match running {
                Some(_) if self.recorded_starts.contains_key(id) => {
                    self.recorded_running.insert(*id)
                }
                _ => self.recorded_running.remove(id),
            };
            let recorded_starts = self.recorded_starts(*id);
            let then = self.recorded.progress(*id);
            let Some(now) = self.replayed.get_mut(id) else {
                continue;
            };
            let Some((number, last)) = now.active_mut() else {
                continue;
            };
            if number + 1 != recorded_starts {
                continue;
            }
            match running {
                Some(running) if last.started_as_recorded => last.running = running.clone(),
                Some(running) => {
                    last.running.ends_at = running.walltime_ms.map(|ms| last.started_at.after(ms));
                    last.running.walltime_ms = running.walltime_ms;
                }
                // Without a recorded end, this is the end.
                None if last.started_as_recorded => {
                    let attempt = then.and_then(|then| then.attempts.get(number));
                    let ended_at = attempt.and_then(|attempt| attempt.ended_at);
                    if ended_at.is_none_or(|ended_at| ended_at <= at) {
                        last.has_ended = true;
                        now.returns_at = returns_at(then, number, ended_at.unwrap_or(at));
                    }
                }
                None => {}
            }
        }
        self.follow_resizing(vcluster, delta);
    }

    /// Adds nodes to attempts that grew, and removes nodes from those that shrank or lost one. An attempt that started
    /// otherwise than recorded keeps the nodes of its start.
    fn follow_resizing(&mut self, vcluster: &VclusterName, delta: &Delta) {
        let mut by_holder: BTreeMap<AllocationId, Vec<&NodeId>> = BTreeMap::new();
        for (name, node) in &delta.nodes {
            if let Some(id) = node.as_ref().and_then(|node| node.holder) {
                by_holder.entry(id).or_default().push(name);
            }
        }
        for (id, running) in &delta.running {
            let recorded_starts = self.recorded_starts(*id);
            let Some(now) = self.replayed.get_mut(id) else {
                continue;
            };
            let follows = running.is_some()
                && now.vcluster == *vcluster
                && now.attempts.len() == recorded_starts;
            let last = now.active_mut().map(|(_, last)| last);
            let Some(last) = last.filter(|last| follows && last.started_as_recorded) else {
                continue;
            };
            last.held.retain(|name| {
                let node = delta.nodes.get(name);
                node.is_none_or(|node| node.as_ref().and_then(|node| node.holder) == Some(*id))
            });
            let gained = by_holder.get(id).into_iter().flatten();
            last.held.extend(gained.map(|name| (*name).clone()));
        }
    }

    pub(super) fn compared(mut self) -> CycleComparison {
        self.end(UnixMillis(u64::MAX));
        let mut compared = CycleComparison::default();
        let (mut waits_then, mut waits_now) = (Vec::new(), Vec::new());
        let (mut sum_s, mut both) = (0.0, 0_u64);
        let (mut last_then, mut last_now) = (None, None);
        for (id, then) in self.recorded.all() {
            let now = self.replayed.get(id);
            let attempts = now.map_or(&[][..], |now| now.attempts.as_slice());
            if then.attempts.is_empty() && attempts.is_empty() {
                continue;
            }
            compared.allocations += 1;
            let (mut same_start, mut same_nodes) = (then.attempts.len() == attempts.len(), true);
            for (was, is) in then.attempts.iter().zip(attempts) {
                let (was_at, is_at) = (was.started_at, is.started_at);
                let difference_s = seconds(was_at.since(is_at) + is_at.since(was_at));
                (sum_s, both) = (sum_s + difference_s, both + 1);
                compared.max_start_difference_s = compared.max_start_difference_s.max(difference_s);
                same_start &= was_at == is_at;
                same_nodes &= was.nodes == is.nodes;
            }
            compared.same_start += u64::from(same_start);
            compared.same_nodes += u64::from(same_start && same_nodes);
            if let (Some(was), Some(submitted)) = (then.attempts.first(), then.submitted_at) {
                waits_then.push(was.started_at.since(submitted));
            }
            if let (Some(is), Some(submitted)) = (attempts.first(), then.submitted_at) {
                waits_now.push(is.started_at.since(submitted));
            }
            let last = then.attempts.last();
            last_then = last_then.max(last.and_then(|last| last.ended_at));
            let last = attempts.last().zip(attempts.len().checked_sub(1));
            last_now = last_now.max(last.and_then(|(last, n)| ends_at(Some(then), n, last)));
        }
        let first = self
            .recorded
            .all()
            .filter_map(|(_, then)| then.submitted_at)
            .min();
        let makespan = |last: Option<UnixMillis>| match (first, last) {
            (Some(first), Some(last)) => seconds(last.since(first)),
            _ => 0.0,
        };
        compared.mean_start_difference_s = sum_s / both.max(1) as f64;
        compared.makespan_recorded_s = makespan(last_then);
        compared.makespan_replayed_s = makespan(last_now);
        compared.wait_distance = distance(waits_then, waits_now);
        compared.first_difference = self.first_difference;
        compared
    }
}

/// Describes a placement that differs: nodes of the record and of the replay.
fn placement_texts(recorded: Option<&[NodeId]>, replayed: Option<&[NodeId]>) -> String {
    let text = |nodes: Option<&[NodeId]>| match nodes {
        Some(nodes) => format!("is on {}", hostlist::fold(nodes)),
        None => "does not start".to_owned(),
    };
    format!(
        "{} in the record and {} in the replay",
        text(recorded),
        text(replayed)
    )
}

/// Returns the end of an attempt in the replay. With the recorded start and nodes, this is the recorded end; otherwise,
/// the start plus the recorded run time. `None` if the record has no end of the attempt. An attempt that the record does
/// not have ends with its allocation, which was cancelled, for example.
fn ends_at(
    then: Option<&RecordedProgress>,
    number: usize,
    now: &ReplayedAttempt,
) -> Option<UnixMillis> {
    let then = then?;
    let Some(attempt) = then.attempts.get(number) else {
        return then.ended_at.map(|ended_at| ended_at.max(now.started_at));
    };
    let ended_at = attempt.ended_at?;
    Some(match now.started_as_recorded {
        true => ended_at,
        false => now.started_at.after(ended_at.since(attempt.started_at)),
    })
}

/// Returns the time at which the allocation is in the queue again after an attempt that ended at `ended_at`: as long
/// after the end as in the record. `None` if the record does not queue the allocation again.
fn returns_at(
    then: Option<&RecordedProgress>,
    number: usize,
    ended_at: UnixMillis,
) -> Option<UnixMillis> {
    let attempt: &RecordedAttempt = then?.attempts.get(number)?;
    let (again_at, _) = attempt.queued_again.as_ref()?;
    Some(ended_at.after(again_at.since(attempt.ended_at?)))
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
