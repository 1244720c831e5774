//! Job arrays: numbers of the elements, and the state that follows from the tally.

use super::{Case, transition::in_state};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, UnixMillis, event::AllocationChange, progress::Tally,
};

/// Derives state and change kind from an array's tally. With `may_place`, elements may be placed unless the array is
/// held.
pub(super) fn with_derived_state(
    case: Case<'_>,
    record: Allocation,
    may_place: bool,
) -> (AllocationChange, Allocation) {
    use AllocationState::{Blocked, Held, Pending};
    let Some(tally) = &record.progress.tally else {
        return (AllocationChange::Counted, record);
    };
    if let Some(end) = end_of(tally) {
        let next = Allocation {
            ended_at: Some(case.now),
            ..in_state(case, &record, end)
        };
        return (AllocationChange::Ended, next);
    }
    let has_pending = !tally.pending.is_empty();
    let state = match record.state {
        Held => Held,
        _ if may_place && has_pending => Pending,
        _ => Blocked,
    };
    let begin_at = record.spec.terms.begin_at.unwrap_or(UnixMillis(0));
    let (what, eligible_at) = match (record.state, state) {
        (Pending, Blocked) if has_pending => (AllocationChange::Held, record.eligible_at),
        (Blocked, Pending) => (AllocationChange::Released, case.now.max(begin_at)),
        _ => (AllocationChange::Counted, record.eligible_at),
    };
    let next = Allocation {
        eligible_at,
        ..in_state(case, &record, state)
    };
    (what, next)
}

/// Cancels all elements that have not been placed.
pub(super) fn cancel_unplaced(tally: &mut Tally) {
    let left = tally.pending.union(&tally.blocked);
    tally.cancelled = tally.cancelled.union(&left);
    (tally.pending, tally.blocked) = Default::default();
}

/// Index of the element with this id.
pub(super) fn index_of(array: &Allocation, id: AllocationId) -> Option<u32> {
    array.element_numbers()?.index_of(id)
}

/// Allocation id of the element with this index.
pub(super) fn id_of(array: &Allocation, index: u32) -> Option<AllocationId> {
    array.element_numbers()?.id_of(index)
}

/// Final state of an array; `None` while elements run or are still to be placed.
fn end_of(tally: &Tally) -> Option<AllocationState> {
    let left = tally.alive > 0 || !tally.pending.is_empty() || !tally.blocked.is_empty();
    if left {
        return None;
    }
    Some(if tally.failed > 0 {
        AllocationState::Failed
    } else if tally.stopped > 0 || !tally.cancelled.is_empty() {
        AllocationState::Cancelled
    } else {
        AllocationState::Completed
    })
}
