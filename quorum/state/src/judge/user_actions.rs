//! Commands of users, operators and services on allocations: cancel, hold, release, suspend, resume, requeue, change
//! the walltime, checkpoint, expire.

use super::{
    Case,
    access::{check_owner, check_owner_or_service, forbidden},
    admission::check_admission,
    attempt::end_state,
    element,
    ending::{cancel_array_element, cancel_rest, end_for_good},
    invalid, job_checkpoint,
    transition::in_state,
    wrong_state,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Refusal, UnixMillis,
    allocation::StopCause,
    command::{Privilege, RequestedCheckpoint},
    event::AllocationChange,
    progress::{AfterCheckpoint, MoveReason},
    refusal::LimitRequest,
    terms::Terms,
};

/// Ends an allocation without nodes at once; stops one that holds nodes.
pub(super) fn cancel(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    if let Some(array) = element::array_of_unplaced(case, id) {
        check_owner(case, array)?;
        return Ok(cancel_array_element(case, array, id));
    }
    let present = case.live(id, "cancel")?;
    check_owner(case, present)?;
    let by = case.principal.name.clone();
    let cause = StopCause::Cancelled { by };
    Ok(Verdict::done(end_for_good(case, present, &cause)))
}

/// Holds a pending or blocked allocation.
pub(super) fn hold(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "hold")?;
    check_owner(case, present)?;
    match present.state {
        AllocationState::Held => Ok(Verdict::unchanged()),
        AllocationState::Pending | AllocationState::Blocked => {
            let record = Box::new(in_state(case, present, AllocationState::Held));
            let change = AllocationChange::Held;
            Ok(Verdict::done(vec![Change::Allocation { change, record }]))
        }
        _ => Err(wrong_state(present, "hold")),
    }
}

/// Releases a held allocation. It is eligible from now, or from its begin time.
pub(super) fn release(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "release")?;
    check_owner(case, present)?;
    match present.state {
        AllocationState::Pending | AllocationState::Blocked => Ok(Verdict::unchanged()),
        AllocationState::Held => {
            // `follow` determines afterwards whether the allocation waits for dependencies.
            let record = in_state(case, present, AllocationState::Pending);
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

/// Stops the processes of an allocation that holds nodes. Its nodes are released once the processes are known to be
/// gone, and the allocation then waits to be resumed.
pub(super) fn suspend(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "suspend")?;
    check_owner_or_service(case, present)?;
    let stop = Some(StopCause::Suspended);
    match present.state {
        AllocationState::Suspended => Ok(Verdict::unchanged()),
        AllocationState::Stopping if present.stop == stop => Ok(Verdict::unchanged()),
        state if state.holds() && state != AllocationState::Stopping => {
            let record = in_state(case, present, AllocationState::Stopping);
            let record = Box::new(Allocation { stop, ..record });
            let change = AllocationChange::Stopping;
            Ok(Verdict::done(vec![Change::Allocation { change, record }]))
        }
        _ => Err(wrong_state(present, "suspend")),
    }
}

/// Suspends an allocation after a job checkpoint: the one it is writing already, or one that begins now.
pub(super) fn suspend_after(
    case: Case<'_>,
    id: AllocationId,
    asked: &RequestedCheckpoint,
) -> Result<Verdict, Refusal> {
    let present = case.live(id, "suspend")?;
    check_owner(case, present)?;
    job_checkpoint::check_mode(present)?;
    let by = case.principal.name.clone();
    let then = AfterCheckpoint::Suspend { by };
    let (change, record) = match (present.state, present.progress.writing.as_deref()) {
        (AllocationState::Suspended, _) => return Ok(Verdict::unchanged()),
        (AllocationState::Stopping, _) if is_suspended(present) => return Ok(Verdict::unchanged()),
        (AllocationState::Checkpointing, Some(writing)) => match writing.then {
            AfterCheckpoint::Suspend { .. } => return Ok(Verdict::unchanged()),
            AfterCheckpoint::MakeRoom { .. } => return Err(wrong_state(present, "suspend")),
            AfterCheckpoint::GoOn => (
                AllocationChange::Progressed,
                job_checkpoint::with_other_action(case, present, then, asked.timeout_ms)?,
            ),
        },
        (AllocationState::Running, _) => (
            AllocationChange::Checkpointing,
            job_checkpoint::with_new_checkpoint(case, present, asked, then)?,
        ),
        _ => return Err(wrong_state(present, "suspend")),
    };
    let record = Box::new(record);
    Ok(Verdict::done(vec![Change::Allocation { change, record }]))
}

/// Returns whether a user or operator stopped the allocation so that it waits to be resumed.
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

/// Makes a suspended allocation pending again, with as many nodes as its record has. As for a submission, limits must
/// allow it now; assignment checks them again.
pub(super) fn resume(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "resume")?;
    check_owner_or_service(case, present)?;
    match present.state {
        AllocationState::Pending => Ok(Verdict::unchanged()),
        AllocationState::Suspended => {
            check_admission(case, &present.user, &present.spec, LimitRequest::Resumption)?;
            let mut record = in_state(case, present, AllocationState::Pending);
            // A moved allocation keeps its place in the queue.
            let was_moved = matches!(record.stop, Some(StopCause::Moved { .. }));
            if was_moved {
                record.progress.moved_at = Some(case.now);
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

/// Stops the processes of an allocation that holds nodes. The allocation is pending again once the processes are known
/// to be gone. For an array: all elements that hold nodes.
pub(super) fn requeue(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "requeue")?;
    check_owner(case, present)?;
    let holds = |a: &Allocation| a.state.holds() && a.state != AllocationState::Stopping;
    if present.progress.tally.is_some() {
        let elements = element::live_elements(case, present).filter(|element| holds(element));
        return Ok(Verdict::done(
            elements
                .map(|element| requeue_change(case, element))
                .collect(),
        ));
    }
    match present.state {
        AllocationState::Pending => Ok(Verdict::unchanged()),
        _ if holds(present) => Ok(Verdict::done(vec![requeue_change(case, present)])),
        _ => Err(wrong_state(present, "requeue")),
    }
}

fn requeue_change(case: Case<'_>, present: &Allocation) -> Change {
    let by = case.principal.name.clone();
    let record = in_state(case, present, AllocationState::Stopping);
    let record = Box::new(Allocation {
        stop: Some(StopCause::Requeued { by }),
        ..record
    });
    let change = AllocationChange::Stopping;
    Change::Allocation { change, record }
}

/// Changes the walltime of an allocation that has not ended, and of all such elements of an array. Only operators and
/// administrators may lengthen the walltime, since a longer walltime takes nodes from other plans.
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
    // The end of the allocation is decided; a new walltime would have no effect.
    let is_over = |present: &Allocation| {
        present.state == AllocationState::Stopping
            && end_state(present, case.state.unstarted.attempts(present.id)).is_terminal()
    };
    if is_over(present) {
        return Err(wrong_state(present, "change the walltime of"));
    }
    let mut changes = Vec::from_iter(with_walltime(case, present, walltime_ms)?);
    if present.progress.tally.is_some() {
        for element in element::live_elements(case, present).filter(|element| !is_over(element)) {
            changes.extend(with_walltime(case, element, walltime_ms)?);
        }
    }
    Ok(Verdict::done(changes))
}

/// Returns the change to the new walltime; `None` if the allocation has that walltime already.
fn with_walltime(
    case: Case<'_>,
    present: &Allocation,
    walltime_ms: u64,
) -> Result<Option<Change>, Refusal> {
    let is_longer = present
        .spec
        .walltime_ms
        .is_some_and(|now| walltime_ms > now);
    if is_longer && case.principal.privilege == Privilege::User {
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
            present.name(),
            used_ms.div_ceil(1000)
        );
        return Err(invalid("walltime", reason));
    }
    let mut record = present.clone();
    record.spec.walltime_ms = Some(walltime_ms);
    if present.state.holds() {
        record.progress.walltime_changes += 1;
    }
    let change = AllocationChange::Extended;
    let record = Box::new(record);
    Ok(Some(Change::Allocation { change, record }))
}

/// Starts a job checkpoint after which the allocation continues. The user of the allocation may request one, as with a
/// suspension. A request costs others no more than the checkpoints that the allocation writes anyway.
pub(super) fn write_checkpoint(
    case: Case<'_>,
    id: AllocationId,
    asked: &RequestedCheckpoint,
) -> Result<Verdict, Refusal> {
    check_owner_or_service(case, case.live(id, "checkpoint")?)?;
    job_checkpoint::write(case, id, asked)
}

/// Ends an allocation that has passed its deadline, or that waits and cannot end before its deadline. Array elements
/// with an allocation of their own also carry the deadline, and expire by themselves.
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
        let name = present.name();
        let reason = format!("allocation {name} has no deadline, or can still end before it");
        return Err(invalid("id", reason));
    }
    let cause = StopCause::Deadline;
    if present.progress.tally.is_none() {
        return Ok(Verdict::done(end_for_good(case, present, &cause)));
    }
    let rest = cancel_rest(case, present, &cause).ok_or_else(|| {
        let reason = format!("all elements of array {id} have been placed or have ended");
        invalid("id", reason)
    })?;
    Ok(Verdict::done(vec![rest]))
}
