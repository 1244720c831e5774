//! Ends of allocations for good: by a user, a deadline or a DAG.

use super::{
    Case,
    array::{cancel_unplaced, index_of, with_derived_state},
    attempt::end_state,
    element::live_elements,
    transition::in_state,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, allocation::StopCause, event::AllocationChange,
};

/// Ends an allocation for good, or an array with all its elements.
pub(super) fn end_for_good(case: Case<'_>, present: &Allocation, cause: &StopCause) -> Vec<Change> {
    if present.progress.tally.is_some() {
        return all_ended_by(case, present, cause);
    }
    // An allocation that is already stopping for good keeps its cause. This cause replaces a stop for suspension or
    // requeue.
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
        ..in_state(case, present, state)
    };
    vec![Change::Allocation {
        change,
        record: Box::new(record),
    }]
}

/// Ends an array: cancels the elements that were not placed, and ends those that were.
fn all_ended_by(case: Case<'_>, array: &Allocation, cause: &StopCause) -> Vec<Change> {
    let mut changes = Vec::from_iter(cancel_rest(case, array, cause));
    for element in live_elements(case, array) {
        changes.extend(end_for_good(case, element, cause));
    }
    changes
}

/// Cancels the elements of an array that were not placed; `None` if no element is left to place.
pub(super) fn cancel_rest(case: Case<'_>, array: &Allocation, cause: &StopCause) -> Option<Change> {
    // The array waits for its last running element, and no release from hold can apply.
    let mut next = in_state(case, array, AllocationState::Blocked);
    let tally = next.progress.tally.as_mut()?;
    if tally.pending.is_empty() && tally.blocked.is_empty() {
        return None;
    }
    cancel_unplaced(tally);
    next.stop = Some(cause.clone());
    Some(array_change(case, next, false))
}

/// Cancels an element that was never placed. No change if the element was cancelled before.
pub(super) fn cancel_array_element(
    case: Case<'_>,
    array: &Allocation,
    id: AllocationId,
) -> Verdict {
    let Some(index) = index_of(array, id) else {
        return Verdict::unchanged();
    };
    let mut next = array.clone();
    let Some(tally) = next.progress.tally.as_mut() else {
        return Verdict::unchanged();
    };
    if !(tally.pending.remove(index) || tally.blocked.remove(index)) {
        return Verdict::unchanged();
    }
    tally.cancelled.insert(index);
    let by = case.principal.name.clone();
    next.stop.get_or_insert(StopCause::Cancelled { by });
    let goes_on = next.state == AllocationState::Pending;
    Verdict::done(vec![array_change(case, next, goes_on)])
}

fn array_change(case: Case<'_>, next: Allocation, goes_on: bool) -> Change {
    let (change, record) = with_derived_state(case, next, goes_on);
    let record = Box::new(record);
    Change::Allocation { change, record }
}
