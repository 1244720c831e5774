//! What people do to allocations: cancel, hold, release, requeue, extend.

use super::{
    Case,
    access::{check_owner, check_owner_or_service, forbidden},
    element, invalid,
    report::end_state,
    submit::check_gate,
    writing, wrong_state,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Refusal, UnixMillis,
    allocation::StopCause,
    command::{CheckpointAsked, Power},
    course::{AfterCheckpoint, MoveReason},
    event::AllocationChange,
    refusal::Asked,
    terms::Terms,
};

/// Ends at once what holds nothing; stops what holds nodes.
pub(super) fn cancel(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    if let Some(array) = element::array_of_unplaced(case, id) {
        check_owner(case, array)?;
        return Ok(element::cancel_unplaced(case, array, id));
    }
    let present = case.live(id, "cancel")?;
    check_owner(case, present)?;
    let by = case.principal.name.clone();
    let cause = StopCause::Cancelled { by };
    Ok(Verdict::done(ended_by(case, present, &cause)))
}

/// What becomes of an allocation that is not to go on, and of the elements of an array.
pub(super) fn ended_by(case: Case<'_>, present: &Allocation, cause: &StopCause) -> Vec<Change> {
    if present.course.tally.is_some() {
        return element::all_ended_by(case, present, cause);
    }
    // Already being stopped for good. One that would come back, suspended or requeued, does not.
    let end = end_state(present, case.state.unstarted.attempts(present.id));
    if present.state == AllocationState::Stopping && end.is_terminal() {
        return Vec::new();
    }
    let (state, change) = if present.state.holds() {
        (AllocationState::Stopping, AllocationChange::Stopping)
    } else {
        (AllocationState::Cancelled, AllocationChange::Ended)
    };
    let ended_at = state.is_terminal().then_some(case.now);
    let record = Allocation {
        stop: Some(cause.clone()),
        ended_at,
        ..entering(case, present, state)
    };
    vec![Change::Allocation {
        change,
        record: Box::new(record),
    }]
}

/// Puts a pending allocation on hold.
pub(super) fn hold(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "hold")?;
    check_owner(case, present)?;
    match present.state {
        AllocationState::Held => Ok(Verdict::nothing()),
        AllocationState::Pending | AllocationState::Blocked => {
            let record = Box::new(entering(case, present, AllocationState::Held));
            let change = AllocationChange::Held;
            Ok(Verdict::done(vec![Change::Allocation { change, record }]))
        }
        _ => Err(wrong_state(present, "hold")),
    }
}

/// Takes an allocation off hold; it counts as eligible from now.
pub(super) fn release(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "release")?;
    check_owner(case, present)?;
    match present.state {
        AllocationState::Pending | AllocationState::Blocked => Ok(Verdict::nothing()),
        AllocationState::Held => {
            // Whether it waits for others follows.
            let record = entering(case, present, AllocationState::Pending);
            let begin_at = present.spec.terms.begin_at.unwrap_or(UnixMillis(0));
            let record = Box::new(Allocation {
                eligible_at: case.now.max(begin_at),
                ..record
            });
            let change = AllocationChange::Released;
            Ok(Verdict::done(vec![Change::Allocation { change, record }]))
        }
        _ => Err(wrong_state(present, "release")),
    }
}

/// Ends the processes of what holds nodes; it holds nothing once they are known to be gone, and waits
/// for somebody to resume it.
pub(super) fn suspend(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "suspend")?;
    check_owner_or_service(case, present)?;
    let stop = Some(StopCause::Suspended);
    match present.state {
        AllocationState::Suspended => Ok(Verdict::nothing()),
        AllocationState::Stopping if present.stop == stop => Ok(Verdict::nothing()),
        state if state.holds() && state != AllocationState::Stopping => {
            let record = entering(case, present, AllocationState::Stopping);
            let record = Box::new(Allocation { stop, ..record });
            let change = AllocationChange::Stopping;
            Ok(Verdict::done(vec![Change::Allocation { change, record }]))
        }
        _ => Err(wrong_state(present, "suspend")),
    }
}

/// The same after a checkpoint: the one that it writes already, or one that begins now.
pub(super) fn suspend_after(
    case: Case<'_>,
    id: AllocationId,
    asked: &CheckpointAsked,
) -> Result<Verdict, Refusal> {
    let present = case.live(id, "suspend")?;
    check_owner(case, present)?;
    writing::check_mode(present)?;
    let by = case.principal.name.clone();
    let then = AfterCheckpoint::Suspend { by };
    let (change, record) = match (present.state, present.course.writing.as_deref()) {
        (AllocationState::Suspended, _) => return Ok(Verdict::nothing()),
        (AllocationState::Stopping, _) if is_suspended(present) => return Ok(Verdict::nothing()),
        (AllocationState::Checkpointing, Some(writing)) => match writing.then {
            AfterCheckpoint::Suspend { .. } => return Ok(Verdict::nothing()),
            AfterCheckpoint::MakeRoom { .. } => return Err(wrong_state(present, "suspend")),
            AfterCheckpoint::GoOn => (
                AllocationChange::Progressed,
                writing::ending(case, present, then, asked.timeout_ms)?,
            ),
        },
        (AllocationState::Running, _) => (
            AllocationChange::Checkpointing,
            writing::begun(case, present, asked, then)?,
        ),
        _ => return Err(wrong_state(present, "suspend")),
    };
    let record = Box::new(record);
    Ok(Verdict::done(vec![Change::Allocation { change, record }]))
}

/// Whether a person had it stopped so that it waits until it is resumed.
fn is_suspended(stopping: &Allocation) -> bool {
    match &stopping.stop {
        Some(StopCause::Suspended) => true,
        Some(StopCause::Moved {
            reason: MoveReason::Asked { .. },
            checkpoint,
            ..
        }) => checkpoint.is_some(),
        _ => false,
    }
}

/// What was suspended waits for nodes again, as many as its record says, from now on. As for a submit, it
/// must fit now; the second gate judges again.
pub(super) fn resume(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "resume")?;
    check_owner_or_service(case, present)?;
    match present.state {
        AllocationState::Pending => Ok(Verdict::nothing()),
        AllocationState::Suspended => {
            check_gate(case, &present.user, &present.spec, Asked::Resumption)?;
            let mut record = entering(case, present, AllocationState::Pending);
            // Work that made room for others keeps its place in the queue.
            let was_moved = matches!(record.stop, Some(StopCause::Moved { .. }));
            if was_moved {
                record.course.moved_at = Some(case.now);
            } else {
                record.eligible_at = case.now;
            }
            let record = Box::new(Allocation {
                stop: None,
                ..record
            });
            let change = AllocationChange::Resumed;
            Ok(Verdict::done(vec![Change::Allocation { change, record }]))
        }
        _ => Err(wrong_state(present, "resume")),
    }
}

/// Ends the processes of what holds nodes; it waits for nodes again once they are known to be gone. Of an array all
/// elements that hold nodes.
pub(super) fn requeue(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "requeue")?;
    check_owner(case, present)?;
    let holds = |a: &Allocation| a.state.holds() && a.state != AllocationState::Stopping;
    if present.course.tally.is_some() {
        let elements = element::placed(case, present).filter(|element| holds(element));
        return Ok(Verdict::done(
            elements.map(|element| requeued(case, element)).collect(),
        ));
    }
    match present.state {
        AllocationState::Pending => Ok(Verdict::nothing()),
        _ if holds(present) => Ok(Verdict::done(vec![requeued(case, present)])),
        _ => Err(wrong_state(present, "requeue")),
    }
}

fn requeued(case: Case<'_>, present: &Allocation) -> Change {
    let by = case.principal.name.clone();
    let record = entering(case, present, AllocationState::Stopping);
    let record = Box::new(Allocation {
        stop: Some(StopCause::Requeued { by }),
        ..record
    });
    let change = AllocationChange::Stopping;
    Change::Allocation { change, record }
}

/// Gives what has not ended another walltime, an array with all its elements that have not. A longer one takes nodes
/// from others' plans: that is for operators to decide.
pub(super) fn set_walltime(
    case: Case<'_>,
    id: AllocationId,
    walltime_ms: u64,
) -> Result<Verdict, Refusal> {
    let present = case.live(id, "change the walltime of")?;
    check_owner(case, present)?;
    if walltime_ms == 0 {
        return Err(invalid("walltime", "give a longer walltime"));
    }
    // Its end is decided, and no walltime changes it any more.
    let is_over = |present: &Allocation| {
        present.state == AllocationState::Stopping
            && end_state(present, case.state.unstarted.attempts(present.id)).is_terminal()
    };
    if is_over(present) {
        return Err(wrong_state(present, "change the walltime of"));
    }
    let mut changes = Vec::from_iter(with_walltime(case, present, walltime_ms)?);
    if present.course.tally.is_some() {
        for element in element::placed(case, present).filter(|element| !is_over(element)) {
            changes.extend(with_walltime(case, element, walltime_ms)?);
        }
    }
    Ok(Verdict::done(changes))
}

/// `None` where it has that walltime already.
fn with_walltime(
    case: Case<'_>,
    present: &Allocation,
    walltime_ms: u64,
) -> Result<Option<Change>, Refusal> {
    let is_longer = present
        .spec
        .walltime_ms
        .is_some_and(|now| walltime_ms > now);
    if is_longer && case.principal.power == Power::User {
        let needs =
            "the role operator or admin, to make a walltime longer; you may make it shorter";
        return Err(forbidden(case.principal, needs));
    }
    if present.spec.walltime_ms == Some(walltime_ms) {
        return Ok(None);
    }
    let used_ms = present.used_ms(case.now);
    if walltime_ms <= used_ms {
        let reason = format!(
            "allocation {} has run for {} s already; give a longer walltime, or cancel it",
            present.id,
            used_ms.div_ceil(1000)
        );
        return Err(invalid("walltime", reason));
    }
    let mut record = present.clone();
    record.spec.walltime_ms = Some(walltime_ms);
    if present.state.holds() {
        record.course.walltime_changes += 1;
    }
    let change = AllocationChange::Extended;
    let record = Box::new(record);
    Ok(Some(Change::Allocation { change, record }))
}

/// Has work write a checkpoint, and go on: its user's to ask for, as a suspension is. It costs others no more
/// than what the work writes anyway.
pub(super) fn write_checkpoint(
    case: Case<'_>,
    id: AllocationId,
    asked: &CheckpointAsked,
) -> Result<Verdict, Refusal> {
    check_owner_or_service(case, case.live(id, "checkpoint")?)?;
    writing::write(case, id, asked)
}

/// Ends what has passed its deadline, and what waits and could not end before it. Of an array the elements
/// that have allocations of their own have the deadline too.
pub(super) fn expire(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "expire")?;
    let Terms {
        begin_at,
        deadline_at,
        ..
    } = &present.spec.terms;
    let starts_at = begin_at.unwrap_or(UnixMillis(0)).max(case.now);
    let ends_at = match present.state.holds() {
        true => case.now,
        false => starts_at.after(present.walltime_left_ms().unwrap_or(0)),
    };
    if deadline_at.is_none_or(|deadline_at| ends_at <= deadline_at) {
        let reason = format!("allocation {id} can still end before its deadline, or has none");
        return Err(invalid("id", reason));
    }
    let cause = StopCause::Deadline;
    if present.course.tally.is_none() {
        return Ok(Verdict::done(ended_by(case, present, &cause)));
    }
    let rest = element::rest_ended_by(case, present, &cause).ok_or_else(|| {
        let reason = format!("all elements of array {id} have been placed, or are over");
        invalid("id", reason)
    })?;
    Ok(Verdict::done(vec![rest]))
}

/// `present` in another state from now on.
pub(super) fn entering(case: Case<'_>, present: &Allocation, state: AllocationState) -> Allocation {
    let state_since = if present.state == state {
        present.state_since
    } else {
        case.now
    };
    let mut next = present.clone();
    // Whatever ends a checkpoint early leaves none.
    if state != AllocationState::Checkpointing && next.course.writing.take().is_some() {
        next.course.failed_checkpoints += 1;
        next.course.failed_because = Some("the work was stopped before it was whole".to_owned());
    }
    Allocation {
        state,
        state_since,
        ..next
    }
}
