//! Job checkpoints: request, extension, giving up, and the reports of ranks. A checkpoint is complete when every rank
//! has written its part; an incomplete one is never resumed from.

use super::{
    Case, invalid, terms::check_directory, transition::in_state, truncated_text, wrong_state,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, NodeId, Outcome, Refusal,
    allocation::StopCause,
    checkpoint::{CheckpointOutcome, MAX_TIMEOUT_MS},
    command::RequestedCheckpoint,
    event::AllocationChange,
    progress::{
        AfterCheckpoint, CheckpointInProgress, MoveReason, RankCheckpoint, SavedCheckpoint,
    },
    terms::CheckpointTerms,
};
use std::collections::BTreeSet;

/// Starts a job checkpoint after which the allocation continues.
pub(super) fn write(
    case: Case<'_>,
    id: AllocationId,
    asked: &RequestedCheckpoint,
) -> Result<Verdict, Refusal> {
    let present = case.live(id, "checkpoint")?;
    let next = with_new_checkpoint(case, present, asked, AfterCheckpoint::GoOn)?;
    let number = next.progress.checkpoints;
    Ok(Verdict {
        outcome: Outcome::Checkpoint { number },
        changes: vec![allocation_change(AllocationChange::Checkpointing, next)],
    })
}

fn allocation_change(change: AllocationChange, record: Allocation) -> Change {
    let record = Box::new(record);
    Change::Allocation { change, record }
}

/// Returns the checkpoint terms of an allocation; rejects an allocation without a checkpoint mode.
pub(super) fn check_mode(present: &Allocation) -> Result<&CheckpointTerms, Refusal> {
    present.spec.terms.checkpoint.as_ref().ok_or_else(|| {
        let reason = format!(
            "allocation {} writes no checkpoints: it was submitted without a checkpoint mode",
            present.name()
        );
        invalid("checkpoint", reason)
    })
}

/// Returns the allocation record at the start of its next checkpoint.
pub(super) fn with_new_checkpoint(
    case: Case<'_>,
    present: &Allocation,
    asked: &RequestedCheckpoint,
    then: AfterCheckpoint,
) -> Result<Allocation, Refusal> {
    if present.state != AllocationState::Running {
        return Err(wrong_state(present, "checkpoint"));
    }
    let terms = check_mode(present)?;
    if present.has_ended_rank() {
        let reason = format!(
            "a rank of allocation {} has ended: a checkpoint would be incomplete",
            present.name()
        );
        return Err(invalid("checkpoint", reason));
    }
    check_directory("directory", &asked.directory, terms.mode)?;
    if asked.timeout_ms == 0 || asked.timeout_ms > MAX_TIMEOUT_MS {
        let reason = format!("must be from 1 to {MAX_TIMEOUT_MS} ms");
        return Err(invalid("timeout_ms", reason));
    }
    let mut next = in_state(case, present, AllocationState::Checkpointing);
    next.progress.checkpoints += 1;
    next.progress.writing = Some(Box::new(CheckpointInProgress {
        number: next.progress.checkpoints,
        asked_at: case.now,
        until: case.now.after(asked.timeout_ms),
        extended: false,
        directory: asked.directory.clone(),
        then,
        written: BTreeSet::new(),
        bytes: Some(0),
    }));
    Ok(next)
}

/// Returns the allocation record with another action after its present checkpoint. At most `within_ms` milliseconds
/// remain for the checkpoint.
pub(super) fn with_other_action(
    case: Case<'_>,
    present: &Allocation,
    then: AfterCheckpoint,
    within_ms: u64,
) -> Result<Allocation, Refusal> {
    if within_ms == 0 || within_ms > MAX_TIMEOUT_MS {
        let reason = format!("must be from 1 to {MAX_TIMEOUT_MS} ms");
        return Err(invalid("timeout_ms", reason));
    }
    let mut next = present.clone();
    if let Some(writing) = next.progress.writing.as_mut() {
        writing.then = then;
        writing.until = writing.until.min(case.now.after(within_ms));
    }
    Ok(next)
}

/// Returns the checkpoint being written, if it has this number.
pub(super) fn current<'a>(
    case: Case<'a>,
    id: AllocationId,
    number: u32,
    action: &str,
) -> Result<Option<(&'a Allocation, &'a CheckpointInProgress)>, Refusal> {
    let present = case.live(id, action)?;
    let writing = present.progress.writing.as_deref();
    let writing = writing.filter(|writing| writing.number == number);
    Ok(writing.map(|writing| (present, writing)))
}

/// Extends the timeout of a checkpoint, once. No change if that checkpoint is over.
pub(super) fn extend(
    case: Case<'_>,
    id: AllocationId,
    number: u32,
    by_ms: u64,
) -> Result<Verdict, Refusal> {
    let Some((present, writing)) = current(case, id, number, "extend a checkpoint of")? else {
        return Ok(Verdict::unchanged());
    };
    if writing.extended {
        let name = present.name();
        let reason = format!("checkpoint {number} of allocation {name} was extended already");
        return Err(invalid("number", reason));
    }
    if by_ms == 0 || by_ms > MAX_TIMEOUT_MS {
        let reason = format!("must be from 1 to {MAX_TIMEOUT_MS} ms");
        return Err(invalid("by_ms", reason));
    }
    let mut next = present.clone();
    if let Some(writing) = next.progress.writing.as_mut() {
        writing.extended = true;
        writing.until = writing.until.after(by_ms);
    }
    Ok(Verdict::done(vec![allocation_change(
        AllocationChange::Progressed,
        next,
    )]))
}

/// Gives up a checkpoint that is not complete in time. No change if that checkpoint is over.
pub(super) fn give_up(case: Case<'_>, id: AllocationId, number: u32) -> Result<Verdict, Refusal> {
    let Some((present, _)) = current(case, id, number, "give up a checkpoint of")? else {
        return Ok(Verdict::unchanged());
    };
    let because = "not all ranks wrote their parts within the timeout".to_owned();
    Ok(Verdict::done(vec![checkpoint_failed(
        case, present, because,
    )]))
}

/// Records the report of a rank about its part. A report about a checkpoint that is over changes nothing.
pub(super) fn report(
    case: Case<'_>,
    present: &Allocation,
    position: usize,
    of: &RankCheckpoint,
) -> Verdict {
    let RankCheckpoint { number, outcome } = of;
    let writing = present.progress.writing.as_deref();
    let Some(writing) = writing.filter(|writing| writing.number == *number) else {
        return Verdict::unchanged();
    };
    let rank = u32::try_from(position).unwrap_or(u32::MAX);
    let bytes = match outcome {
        CheckpointOutcome::Written { bytes, .. } => bytes,
        CheckpointOutcome::Failed { reason, .. } => {
            let because = format!("rank {rank}: {}", truncated_text(reason));
            return Verdict::done(vec![checkpoint_failed(case, present, because)]);
        }
    };
    if writing.written.contains(&rank) {
        return Verdict::unchanged();
    }
    let mut next = present.clone();
    let Some(writing) = next.progress.writing.as_mut() else {
        return Verdict::unchanged();
    };
    writing.written.insert(rank);
    let sum = writing.bytes.zip(*bytes);
    writing.bytes = sum.map(|(known, more)| known.saturating_add(more));
    let (change, next) = with_completion(case, next);
    Verdict::done(vec![allocation_change(change, next)])
}

/// Completes the checkpoint once every rank that stays has written its part, and applies the action that follows.
fn with_completion(case: Case<'_>, mut next: Allocation) -> (AllocationChange, Allocation) {
    let Some(writing) = next.progress.writing.take() else {
        return (AllocationChange::Progressed, next);
    };
    let mut staying = (0..).zip(&next.ranks).filter(|(_, of)| of.phase.stays());
    if !staying.all(|(rank, _)| writing.written.contains(&rank)) {
        next.progress.writing = Some(writing);
        return (AllocationChange::Progressed, next);
    }
    let ran = next
        .attempt_began_at()
        .map_or(0, |began| writing.asked_at.since(began));
    next.progress.kept = Some(SavedCheckpoint {
        number: writing.number,
        asked_at: writing.asked_at,
        written_at: case.now,
        took_ms: case.now.since(writing.asked_at),
        attempt: next.attempt,
        directory: writing.directory,
        bytes: writing.bytes,
        progress_ms: next.progress.resumed_ms.saturating_add(ran),
    });
    match action_after(case, &next, writing.then) {
        AfterCheckpoint::GoOn => {
            let next = in_state(case, &next, AllocationState::Running);
            (AllocationChange::Checkpointed, next)
        }
        AfterCheckpoint::MakeRoom { reason } => with_move_stop(case, next, reason, writing.number),
        AfterCheckpoint::Suspend { by } => {
            let reason = MoveReason::Asked { by };
            with_move_stop(case, next, reason, writing.number)
        }
    }
}

/// Action after the checkpoint, as of now. A victim continues if none of its nodes is promised or reclaimed any more.
/// The preemptor then has other nodes, has ended or has lost its promise, or the home vCluster needs no nodes.
fn action_after(case: Case<'_>, record: &Allocation, then: AfterCheckpoint) -> AfterCheckpoint {
    let is_for_others = matches!(
        then,
        AfterCheckpoint::MakeRoom {
            reason: MoveReason::Preempted { .. } | MoveReason::Reclaimed { .. }
        }
    );
    let is_awaited = |id: &NodeId| {
        let node = case.state.nodes.get(id);
        node.is_some_and(|node| node.promised.is_some() || node.reclaimed_at.is_some())
    };
    match is_for_others && !record.kept_nodes().any(is_awaited) {
        true => AfterCheckpoint::GoOn,
        false => then,
    }
}

/// Returns the allocation record in state stopping: the allocation leaves its nodes and resumes later from this
/// checkpoint.
fn with_move_stop(
    case: Case<'_>,
    mut next: Allocation,
    reason: MoveReason,
    number: u32,
) -> (AllocationChange, Allocation) {
    next.stop = Some(StopCause::Moved {
        reason,
        checkpoint: Some(number),
        has_run: true,
    });
    let next = in_state(case, &next, AllocationState::Stopping);
    (AllocationChange::Stopping, next)
}

/// Ends a failed checkpoint. An allocation that was to be moved or suspended is stopped without a complete checkpoint.
fn checkpoint_failed(case: Case<'_>, present: &Allocation, because: String) -> Change {
    let stop = stop_without_checkpoint(case, present);
    let (state, change) = match stop {
        Some(_) => (AllocationState::Stopping, AllocationChange::Stopping),
        None => (AllocationState::Running, AllocationChange::Checkpointed),
    };
    let mut next = in_state(case, present, state);
    next.stop = stop.or(next.stop);
    next.progress.failed_because = Some(because);
    allocation_change(change, next)
}

/// Cause for which a running allocation leaves its nodes although its checkpoint failed. The allocation loses its
/// progress since its last complete checkpoint. `None` if the allocation continues.
fn stop_without_checkpoint(case: Case<'_>, record: &Allocation) -> Option<StopCause> {
    let then = record.progress.writing.as_deref()?.then.clone();
    match action_after(case, record, then) {
        AfterCheckpoint::GoOn => None,
        AfterCheckpoint::MakeRoom { reason } => Some(StopCause::Moved {
            reason,
            checkpoint: None,
            has_run: true,
        }),
        AfterCheckpoint::Suspend { .. } => Some(StopCause::Suspended),
    }
}

/// Returns the record after a rank ended during a checkpoint. Unless that rank had written its part, the checkpoint is
/// incomplete and fails.
pub(super) fn rank_ended(case: Case<'_>, record: Allocation, position: usize) -> Allocation {
    let rank = u32::try_from(position).unwrap_or(u32::MAX);
    let Some(writing) = &record.progress.writing else {
        return record;
    };
    if record.stop.is_some() || writing.written.contains(&rank) {
        return record;
    }
    let stop = stop_without_checkpoint(case, &record);
    let mut next = in_state(case, &record, AllocationState::Running);
    next.progress.failed_because =
        Some(format!("rank {rank} ended before it had written its part"));
    // If this was the last rank, the allocation has ended.
    if next.ranks.iter().any(|rank| !rank.phase.is_over()) {
        next.stop = stop;
    }
    next
}

/// Returns the record after a rank left during a checkpoint: the checkpoint may have waited for that rank only.
pub(super) fn rank_left(case: Case<'_>, record: Allocation) -> Allocation {
    match record.stop {
        None => with_completion(case, record).1,
        Some(_) => record,
    }
}
