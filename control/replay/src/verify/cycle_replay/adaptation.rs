//! Adaptation of recorded views and deltas after a difference: external inputs come from the record, and consequences
//! of placements from the replay.

use super::{CycleReplay, ReplayedAttempt};
use lattice_placement::{ClusterView, Delta, LevelView, NodeView, PendingView, record::Cycle};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName, limit::Usage,
};
use std::collections::BTreeMap;

impl CycleReplay {
    /// Returns the view with the replay's own placements instead of the recorded ones.
    pub(super) fn adapted_view(
        &self,
        vcluster: &VclusterName,
        at: UnixMillis,
        view: &ClusterView,
    ) -> ClusterView {
        let mut ours = view.clone();
        ours.pending.retain(|id, _| self.waits_as_recorded(*id, at));
        // Allocations that the record has started already, and that still wait here.
        if let Some(planner) = self.planners.get(vcluster) {
            let waits = planner.view().pending.iter();
            let behind = waits.filter(|(id, _)| self.is_behind(**id));
            ours.pending
                .extend(behind.map(|(id, known)| (*id, known.clone())));
        }
        for (id, pending) in self.returned(vcluster, at) {
            ours.pending.insert(id, pending);
        }
        ours.running.retain(|id, _| self.is_foreign(*id));
        for (id, attempt) in self.active() {
            ours.running.insert(id, attempt.running.clone());
        }
        let held = self.held();
        for (name, node) in &mut ours.nodes {
            node.holder = self.holder(&held, name, node);
        }
        let difference = self.usage_difference();
        for (path, level) in &mut ours.levels {
            *level = adapted_level(&difference, path, *level);
        }
        ours
    }

    /// Adapts a delta after a difference: external inputs come from the record, and consequences of placements
    /// (holders, running allocations, usage, the time at which an allocation is queued again) from the replay.
    pub(super) fn adapted_delta(&self, cycle: &Cycle, delta: &Delta, known: &ClusterView) -> Delta {
        let mut ours = Delta {
            pending: BTreeMap::new(),
            running: BTreeMap::new(),
            nodes: BTreeMap::new(),
            levels: BTreeMap::new(),
            ..delta.clone()
        };
        for (id, pending) in &delta.pending {
            // Where the replay waits for another attempt than the record, the change concerns that other attempt. An
            // allocation that left the queue without a start was cancelled or held, or has passed its deadline.
            if self.waits_as_recorded(*id, cycle.at) {
                ours.pending.insert(*id, pending.clone());
            }
        }
        for (id, pending) in self.returned(&cycle.vcluster, cycle.at) {
            ours.pending.entry(id).or_insert(Some(pending));
        }
        for id in known.pending.keys().filter(|id| self.is_active(**id)) {
            ours.pending.insert(*id, None);
        }
        for id in self.last_started.get(&cycle.vcluster).into_iter().flatten() {
            ours.pending.entry(*id).or_insert(None);
        }
        for (id, change) in &delta.running {
            if self.is_foreign(*id) {
                ours.running.insert(*id, change.clone());
            }
        }
        for id in known.running.keys() {
            if !self.is_foreign(*id) && !self.is_active(*id) {
                ours.running.insert(*id, None);
            }
        }
        for (id, attempt) in self.active() {
            ours.running.insert(id, Some(attempt.running.clone()));
        }
        self.adapt_nodes(delta, known, &mut ours);
        let difference = self.usage_difference();
        let removed = delta.levels.iter().filter(|(_, level)| level.is_none());
        ours.levels
            .extend(removed.map(|(path, _)| (path.clone(), None)));
        let levels = self.recorded_levels.get(&cycle.vcluster);
        for (path, level) in levels.into_iter().flatten() {
            let level = adapted_level(&difference, path, *level);
            ours.levels.insert(path.clone(), Some(level));
        }
        ours
    }

    fn adapt_nodes(&self, delta: &Delta, known: &ClusterView, ours: &mut Delta) {
        let held = self.held();
        for (name, before) in &known.nodes {
            let news = delta.nodes.get(name);
            let node = match news {
                Some(None) => {
                    ours.nodes.insert(name.clone(), None);
                    continue;
                }
                Some(Some(node)) => node,
                None => before,
            };
            let holder = self.holder(&held, name, node);
            if news.is_some() || before.holder != holder {
                let node = NodeView {
                    holder,
                    ..node.clone()
                };
                ours.nodes.insert(name.clone(), Some(node));
            }
        }
        let new = delta.nodes.iter();
        for (name, node) in new.filter(|(name, _)| !known.nodes.contains_key(*name)) {
            let node = node.as_ref().map(|node| NodeView {
                holder: self.holder(&held, name, node),
                ..node.clone()
            });
            ours.nodes.insert(name.clone(), node);
        }
    }

    fn is_active(&self, id: AllocationId) -> bool {
        self.replayed
            .get(&id)
            .is_some_and(|now| now.active().is_some())
    }

    /// Whether the allocation waits in the replay for the same attempt as in the record.
    fn waits_as_recorded(&self, id: AllocationId, at: UnixMillis) -> bool {
        let returns_at = self.replayed.get(&id).and_then(|now| now.returns_at);
        !self.is_active(id)
            && self.replayed_starts(id) == self.recorded_starts(id)
            && returns_at.is_none_or(|returns_at| returns_at <= at)
    }

    /// Whether the allocation waits in the replay for an attempt that the record has started already.
    fn is_behind(&self, id: AllocationId) -> bool {
        !self.is_active(id) && self.replayed_starts(id) < self.recorded_starts(id)
    }

    /// Whether no plan of the record or of the replay has started the allocation: it started before the record, or on
    /// nodes that were promised to it. Such an allocation is as in the record.
    fn is_foreign(&self, id: AllocationId) -> bool {
        !self.replayed.contains_key(&id) && !self.recorded_starts.contains_key(&id)
    }

    /// Attempts that hold nodes now.
    fn active(&self) -> impl Iterator<Item = (AllocationId, &ReplayedAttempt)> {
        let replayed = self.replayed.iter();
        replayed.filter_map(|(id, now)| Some((*id, now.active()?)))
    }

    /// Allocations of a vCluster that are in the queue again, with their recorded requests.
    fn returned(
        &self,
        vcluster: &VclusterName,
        at: UnixMillis,
    ) -> Vec<(AllocationId, PendingView)> {
        let returned = self.replayed.iter().filter(|(_, now)| {
            now.vcluster == *vcluster && now.returns_at.is_some_and(|returns_at| returns_at <= at)
        });
        let pending = returned.filter_map(|(id, now)| {
            let attempt = self
                .recorded
                .attempt(*id, now.attempts.len().checked_sub(1)?)?;
            let (_, pending) = attempt.queued_again.as_ref()?;
            Some((*id, pending.clone()))
        });
        pending.collect()
    }

    /// Holders of nodes in the replay.
    fn held(&self) -> BTreeMap<&NodeId, AllocationId> {
        let holders = self
            .active()
            .flat_map(|(id, attempt)| attempt.held.iter().map(move |node| (node, id)));
        holders.collect()
    }

    /// Holder of a node in the replay. A holder that no plan has started stays as recorded.
    fn holder(
        &self,
        held: &BTreeMap<&NodeId, AllocationId>,
        name: &NodeId,
        recorded: &NodeView,
    ) -> Option<AllocationId> {
        let foreign = recorded.holder.filter(|id| self.is_foreign(*id));
        held.get(name).copied().or(foreign)
    }

    /// Usage of the replay minus usage of the record, by project. Usage of allocations that no plan has started is the
    /// same in both.
    fn usage_difference(&self) -> BTreeMap<&ProjectPath, UsageDifference> {
        let mut difference: BTreeMap<&ProjectPath, UsageDifference> = BTreeMap::new();
        for now in self.replayed.values() {
            if let Some(attempt) = now.active() {
                let entry = difference.entry(&now.project).or_default();
                entry.add(attempt.nodes.len(), 1);
            }
        }
        for id in &self.recorded_running {
            let last = self.recorded_starts(*id).checked_sub(1);
            let attempt = last.and_then(|last| self.recorded.attempt(*id, last));
            let project = self
                .recorded
                .progress(*id)
                .and_then(|then| then.project.as_ref());
            if let (Some(attempt), Some(project)) = (attempt, project) {
                let entry = difference.entry(project).or_default();
                entry.add(attempt.nodes.len(), -1);
            }
        }
        difference
    }
}

/// Difference of two usages; negative where the second is larger.
#[derive(Debug, Clone, Copy, Default)]
struct UsageDifference {
    nodes: i64,
    allocations: i64,
}

impl UsageDifference {
    /// Adds (`sign` 1) or subtracts (`sign` -1) one allocation of `nodes` nodes.
    fn add(&mut self, nodes: usize, sign: i64) {
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        self.nodes = self.nodes.saturating_add(nodes.saturating_mul(sign));
        self.allocations = self.allocations.saturating_add(sign);
    }

    fn applied_to(self, usage: Usage) -> Usage {
        Usage {
            nodes: usage.nodes.saturating_add_signed(self.nodes),
            allocations: usage.allocations.saturating_add_signed(self.allocations),
        }
    }
}

/// Recorded limits and usage with the difference of usage applied.
fn adapted_level(
    difference: &BTreeMap<&ProjectPath, UsageDifference>,
    path: &ProjectPath,
    level: LevelView,
) -> LevelView {
    let (mut own, mut subtree) = (level.own, level.subtree);
    for (project, part) in difference {
        if *project == path {
            own = part.applied_to(own);
        } else if project.levels().any(|up| up == path.as_str()) {
            subtree = part.applied_to(subtree);
        }
    }
    LevelView {
        own,
        subtree,
        ..level
    }
}
