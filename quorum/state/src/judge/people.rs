//! What people do to allocations: cancel, hold, release.

use super::{
    Case,
    access::{check_owner, check_owner_or_service},
    report::end_state,
    submit::check_gate,
    wrong_state,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Refusal, allocation::StopCause,
    event::AllocationChange, refusal::Asked,
};

/// Ends at once what holds nothing; stops what holds nodes.
pub(super) fn cancel(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "cancel")?;
    check_owner(case, present)?;
    let stop = StopCause::Cancelled {
        by: case.principal.name.clone(),
    };
    // Already being stopped for good. One that would come back, suspended or requeued, does not.
    let end = end_state(present, case.state.unstarted.attempts(id));
    if present.state == AllocationState::Stopping && end.is_terminal() {
        return Ok(Verdict::nothing());
    }
    let (state, change) = if present.state.holds() {
        (AllocationState::Stopping, AllocationChange::Stopping)
    } else {
        (AllocationState::Cancelled, AllocationChange::Ended)
    };
    let ended_at = state.is_terminal().then_some(case.now);
    let record = Allocation {
        stop: Some(stop),
        ended_at,
        ..entering(case, present, state)
    };
    Ok(Verdict::done(vec![Change::Allocation {
        change,
        record: Box::new(record),
    }]))
}

/// Puts a pending allocation on hold.
pub(super) fn hold(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "hold")?;
    check_owner(case, present)?;
    match present.state {
        AllocationState::Held => Ok(Verdict::nothing()),
        AllocationState::Pending => {
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
        AllocationState::Pending => Ok(Verdict::nothing()),
        AllocationState::Held => {
            let record = entering(case, present, AllocationState::Pending);
            let record = Box::new(Allocation {
                eligible_at: case.now,
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

/// What was suspended waits for nodes again, as many as it had, from now on. As for a submit, it must
/// fit now; the second gate judges again.
pub(super) fn resume(case: Case<'_>, id: AllocationId) -> Result<Verdict, Refusal> {
    let present = case.live(id, "resume")?;
    check_owner_or_service(case, present)?;
    match present.state {
        AllocationState::Pending => Ok(Verdict::nothing()),
        AllocationState::Suspended => {
            check_gate(case, &present.user, &present.spec, Asked::Resumption)?;
            let record = entering(case, present, AllocationState::Pending);
            let record = Box::new(Allocation {
                eligible_at: case.now,
                stop: None,
                ..record
            });
            let change = AllocationChange::Resumed;
            Ok(Verdict::done(vec![Change::Allocation { change, record }]))
        }
        _ => Err(wrong_state(present, "resume")),
    }
}

/// `present` in another state from now on.
pub(super) fn entering(case: Case<'_>, present: &Allocation, state: AllocationState) -> Allocation {
    let state_since = if present.state == state {
        present.state_since
    } else {
        case.now
    };
    Allocation {
        state,
        state_since,
        ..present.clone()
    }
}
