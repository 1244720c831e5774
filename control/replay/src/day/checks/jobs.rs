//! Job invariants: queue order is kept, checkpoints are complete, and each end has a reason.

use super::{AllocationSnapshot, Checks, was_moved};
use crate::day::true_progress::TrueProgress;
use lattice_agent_rpc::AttemptKey;
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Allocation, AllocationState, Command, UnixMillis,
    allocation::{RankExit, StopCause},
    command::RankReport,
    progress::MoveReason,
    spec::Requeue,
};
use std::sync::Arc;

impl Checks {
    /// Records the accepted report of a rank's written part. The checkpoint is usable once all ranks have reported.
    pub(super) fn record_part(
        &mut self,
        state: &State,
        truth: &mut TrueProgress,
        command: &Command,
    ) {
        let Command::Report {
            id,
            node,
            report: RankReport::Checkpoint { of },
            ..
        } = command
        else {
            return;
        };
        if !of.outcome.is_written() {
            return;
        }
        let Some(rank) = state
            .allocation(*id)
            .and_then(|held| held.nodes().position(|own| own == node))
        else {
            return;
        };
        let Some(work) = truth.jobs.get_mut(id) else {
            return;
        };
        if let Some(content) = work.contents.get_mut(&of.number) {
            content.reported.insert(rank as u32);
            if content.reported.len() == content.ranks {
                work.usable = work.usable.max(of.number);
            }
        }
    }

    /// Checks a change of an allocation's record.
    pub(super) fn check_allocation(
        &mut self,
        truth: &TrueProgress,
        record: &Arc<Allocation>,
        now: UnixMillis,
    ) {
        let id = record.id;
        let Some(seen) = self.allocations.get_mut(&id) else {
            let seen = AllocationSnapshot {
                record: record.clone(),
                submitted_at: record.submitted_at,
                moves: 0,
                moved_at: None,
                has_ended: record.state.is_terminal(),
            };
            self.allocations.insert(id, seen);
            return;
        };
        let before = std::mem::replace(&mut seen.record, record.clone());
        let mut wrong = Vec::new();
        if record.submitted_at != seen.submitted_at {
            wrong.push(format!("the submit time of {id} changed"));
        }
        let waits = |record: &Allocation| record.state == AllocationState::Pending;
        let is_queued_again =
            !waits(&before) && waits(record) && (before.state.holds() || was_moved(&before));
        if is_queued_again && record.eligible_at != before.eligible_at {
            wrong.push(format!("{id} lost its place in the queue"));
        }
        let leaves = before.state == AllocationState::Stopping && !record.state.holds();
        if leaves && was_moved(record) {
            seen.moves += 1;
            seen.moved_at = Some(now);
        }
        if seen.has_ended {
            wrong.push(format!("{id} had ended and is now {}", record.state));
        }
        if record.state.is_terminal() {
            seen.has_ended = true;
            if let Some(why) = end_contradiction(truth, record) {
                wrong.push(format!(
                    "{id} is {}, {why}: {:?}",
                    record.state, record.stop
                ));
            }
        }
        for what in wrong {
            self.add(now, what);
        }
    }
}

/// Compares the end of an allocation with its true progress; returns the contradiction, if any.
fn end_contradiction(truth: &TrueProgress, record: &Allocation) -> Option<&'static str> {
    // An array ends with its elements, and each element has an end of its own, which is checked.
    if record.progress.tally.is_some() {
        return None;
    }
    let work = truth.jobs.get(&record.id);
    let odd = |is_so: bool, why: &'static str| (!is_so).then_some(why);
    match (record.state, &record.stop) {
        (AllocationState::Completed, None) => odd(
            work.is_some_and(|work| work.is_done && work.nature.code == 0),
            "although its work is not done",
        ),
        (AllocationState::Cancelled, Some(StopCause::Cancelled { .. })) => odd(
            truth.cancelled.contains(&record.id) || is_of_cancelled(truth, record),
            "without a cancel request",
        ),
        (AllocationState::Cancelled, Some(StopCause::Unsatisfiable { .. })) => None,
        (_, Some(StopCause::Deadline)) => odd(
            record.spec.terms.deadline_at.is_some(),
            "although it has no deadline",
        ),
        (AllocationState::Failed, Some(StopCause::Walltime)) => odd(
            work.is_some_and(|work| work.is_overdue),
            "although its time limit was not reached",
        ),
        (AllocationState::Failed, Some(StopCause::RankFailed { exit, .. })) => odd(
            work.is_some_and(|work| match exit {
                RankExit::Exited { code } => *code != 0 && *code == work.nature.code,
                _ => false,
            }),
            "although no rank failed",
        ),
        (AllocationState::Failed, Some(StopCause::NodeLost { node })) => {
            let key = AttemptKey {
                allocation: record.id,
                attempt: record.attempt,
            };
            let was_lost = truth.lost.contains(&(node.clone(), key));
            let again = match record.spec.requeue {
                Requeue::Always => true,
                Requeue::Once => record.attempt == 1,
                Requeue::Never => false,
            };
            odd(
                was_lost && !again,
                "although it should be requeued, or its node was not lost",
            )
        }
        (
            AllocationState::Failed,
            Some(StopCause::Moved {
                reason: MoveReason::Preempted { .. } | MoveReason::Reclaimed { .. },
                checkpoint: None,
                has_run: true,
            }),
        ) => odd(
            record.spec.requeue != Requeue::Always,
            "although it should be requeued",
        ),
        _ => Some("for an invalid reason"),
    }
}

/// Whether a user cancelled the array of this element.
fn is_of_cancelled(truth: &TrueProgress, record: &Allocation) -> bool {
    let array = record.progress.element.map(|element| element.array);
    array.is_some_and(|array| truth.cancelled.contains(&array))
}
