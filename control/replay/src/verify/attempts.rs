//! Recorded course of each allocation: its starts, the ends of its attempts, and its returns to the queue.

use lattice_placement::{
    PendingView,
    record::{ChangedAllocation, Line, Outcome, PlacedAllocation},
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, UnixMillis, event::AllocationChange,
};
use std::collections::{BTreeMap, BTreeSet};

/// Recorded course of one allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordedProgress {
    pub(super) submitted_at: Option<UnixMillis>,
    pub(super) project: Option<ProjectPath>,
    /// Attempts that plans of the record started, in order.
    pub(super) attempts: Vec<RecordedAttempt>,
    /// End of the allocation for good.
    pub(super) ended_at: Option<UnixMillis>,
}

/// Recorded attempt of an allocation.
#[derive(Debug, Clone)]
pub(super) struct RecordedAttempt {
    /// Time of the plan that placed the attempt.
    pub(super) started_at: UnixMillis,
    /// Nodes in rank order.
    pub(super) nodes: Vec<NodeId>,
    /// Time at which the allocation ended, or was queued again or suspended.
    pub(super) ended_at: Option<UnixMillis>,
    /// Time of the first plan with the allocation in its queue again, and the request in that queue.
    pub(super) queued_again: Option<(UnixMillis, PendingView)>,
}

/// Recorded placement without an outcome yet.
#[derive(Debug)]
struct OpenPlacement {
    /// Number of the plan.
    plan: u64,
    nodes: Vec<NodeId>,
}

/// Starts of allocations in a record.
#[derive(Debug, Default)]
pub(super) struct RecordedStarts {
    allocations: BTreeMap<AllocationId, RecordedProgress>,
    /// Number of plans read. Plans are identified by this number, since two plans may have the same time.
    plans: u64,
    open: BTreeMap<(UnixMillis, AllocationId), OpenPlacement>,
    /// Placements that did not start, by the number of their plan.
    failed: BTreeSet<(u64, AllocationId)>,
}

impl RecordedStarts {
    /// Reads the next line of the record.
    pub(super) fn read_line(&mut self, line: &Line) {
        match line {
            Line::View { at, view, .. } => {
                for (id, known) in &view.pending {
                    self.queued(*at, *id, known);
                }
            }
            Line::Cycle(cycle) => {
                self.plans += 1;
                for (id, known) in cycle.delta.iter().flat_map(|delta| &delta.pending) {
                    if let Some(known) = known {
                        self.queued(cycle.at, *id, known);
                    }
                }
                for (id, known) in &cycle.promised {
                    self.requested(*id, known);
                }
                for placed in &cycle.placed {
                    let open = OpenPlacement {
                        plan: self.plans,
                        nodes: placed.nodes.clone(),
                    };
                    if let Some(former) = self.open.insert((cycle.at, placed.id), open) {
                        self.failed.insert((former.plan, placed.id));
                    }
                }
            }
            Line::Outcome {
                planned_at,
                id,
                outcome,
                ..
            } => {
                let Some(placed) = self.open.remove(&(*planned_at, *id)) else {
                    return;
                };
                match outcome {
                    Outcome::Assigned { .. } => self.start(*id, *planned_at, placed),
                    Outcome::Refused { .. } | Outcome::HeldBack { .. } => {
                        self.failed.insert((placed.plan, *id));
                    }
                }
            }
            Line::Allocation(changed) => self.changed(changed),
            Line::Begin { .. } | Line::RefusedSubmit { .. } => {}
        }
    }

    /// Completes the reading. A placement without an outcome, as in the last plan of a record or of a control that
    /// crashed, counts as not started.
    pub(super) fn finish(&mut self) {
        let unknown = std::mem::take(&mut self.open);
        let unknown = unknown
            .into_iter()
            .map(|((_, id), placed)| (placed.plan, id));
        self.failed.extend(unknown);
    }

    fn requested(&mut self, id: AllocationId, known: &PendingView) -> &mut RecordedProgress {
        let then = self.allocations.entry(id).or_default();
        then.submitted_at.get_or_insert(known.submitted_at);
        then.project.get_or_insert_with(|| known.project.clone());
        then
    }

    /// Notes that an allocation is in the queue: for the first time, again, or with another request.
    fn queued(&mut self, at: UnixMillis, id: AllocationId, known: &PendingView) {
        let then = self.requested(id, known);
        if let Some(last) = then.attempts.last_mut()
            && last.ended_at.is_some()
            && last.queued_again.is_none()
        {
            last.queued_again = Some((at, known.clone()));
        }
    }

    fn start(&mut self, id: AllocationId, at: UnixMillis, placed: OpenPlacement) {
        let then = self.allocations.entry(id).or_default();
        then.attempts.push(RecordedAttempt {
            started_at: at,
            nodes: placed.nodes,
            ended_at: None,
            queued_again: None,
        });
    }

    fn changed(&mut self, changed: &ChangedAllocation) {
        let id = changed.id;
        match changed.change {
            // The scheduler may not have received an answer, or the event may precede its answer in the record.
            AllocationChange::Assigned => {
                let open = self.open.iter();
                let mut open =
                    open.filter(|((_, of), placed)| *of == id && placed.nodes == changed.nodes);
                let newest = open.next_back().map(|(key, _)| *key);
                if let Some(key) = newest
                    && let Some(placed) = self.open.remove(&key)
                {
                    self.start(id, key.0, placed);
                }
            }
            AllocationChange::Requeued | AllocationChange::Suspended => {
                let then = self.allocations.entry(id).or_default();
                if let Some(last) = then.attempts.last_mut() {
                    last.ended_at.get_or_insert(changed.at);
                }
            }
            AllocationChange::Ended => {
                let ended_at = changed.ended_at.unwrap_or(changed.at);
                let then = self.allocations.entry(id).or_default();
                then.ended_at = Some(ended_at);
                if let Some(last) = then.attempts.last_mut() {
                    last.ended_at.get_or_insert(ended_at);
                }
            }
            _ => {}
        }
    }

    /// Recorded allocations, by id.
    pub(super) fn all(&self) -> impl Iterator<Item = (&AllocationId, &RecordedProgress)> {
        self.allocations.iter()
    }

    /// Recorded course of an allocation.
    pub(super) fn progress(&self, id: AllocationId) -> Option<&RecordedProgress> {
        self.allocations.get(&id)
    }

    /// Recorded attempt of an allocation; `number` counts from 0.
    pub(super) fn attempt(&self, id: AllocationId, number: usize) -> Option<&RecordedAttempt> {
        self.progress(id)?.attempts.get(number)
    }

    /// Whether a placement of the plan with this number did not start.
    pub(super) fn has_failed(&self, plan: u64, id: AllocationId) -> bool {
        self.failed.contains(&(plan, id))
    }

    /// Placements of the plan with this number that started.
    pub(super) fn started<'a>(
        &self,
        plan: u64,
        placed: &'a [PlacedAllocation],
    ) -> Vec<&'a PlacedAllocation> {
        let placed = placed.iter();
        placed
            .filter(|placed| !self.has_failed(plan, placed.id))
            .collect()
    }
}
