//! Array elements. Until an element is placed, it exists only as an index in the record of its array.

use super::{
    Case,
    assign::check_begin,
    follow::{give_up_rest, settled},
    invalid,
    user_actions::{ended_by, entering},
    wrong_state,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Refusal,
    allocation::StopCause,
    course::{Course, Element},
    spec::{AllocationSpec, Workload},
    terms::Terms,
};

/// Array of an element that has no allocation of its own and never had one.
pub(super) fn array_of_unplaced(case: Case<'_>, id: AllocationId) -> Option<&Allocation> {
    let state = case.state;
    if state.hot.contains_key(&id) || state.archive.ended(id).is_some() {
        return None;
    }
    let array = state.order.array_of(id)?;
    state.hot.get(&array).map(|array| &**array)
}

/// Returns an element about to be placed and the resulting array record. Returns `None` if the id is not an element, or
/// has an allocation already.
///
/// # Errors
/// A refusal with the reason why the element cannot be placed now.
pub(super) fn to_place(
    case: Case<'_>,
    id: AllocationId,
) -> Result<Option<(Allocation, Allocation)>, Refusal> {
    let Some(array) = array_of_unplaced(case, id) else {
        return Ok(None);
    };
    let (Some(index), Some(tally)) = (index_of(array, id), &array.course.tally) else {
        return Ok(None);
    };
    if array.state != AllocationState::Pending {
        return Err(wrong_state(array, "assign elements of"));
    }
    check_begin(case, array)?;
    if !tally.pending.contains(index) {
        let reason = format!(
            "element {index} of array {} does not wait for nodes",
            array.id
        );
        return Err(invalid("id", reason));
    }
    let most = array
        .spec
        .terms
        .array
        .as_ref()
        .and_then(|array| array.max_running());
    if let Some(most) = most.filter(|most| tally.alive >= *most) {
        let reason = format!(
            "array {} already runs {most} elements, its limit of running elements",
            array.id
        );
        return Err(invalid("id", reason));
    }
    let mut next = array.clone();
    if let Some(tally) = next.course.tally.as_mut() {
        tally.pending.remove(index);
        tally.alive += 1;
    }
    let (_, next) = settled(case, next, true);
    Ok(Some((element(array, id, index), next)))
}

/// The element as a pending allocation. Its workload stays in the record of the array.
fn element(array: &Allocation, id: AllocationId, index: u32) -> Allocation {
    let spec = &array.spec;
    let terms = Terms {
        deadline_at: spec.terms.deadline_at,
        checkpoint: spec.terms.checkpoint.clone(),
        reservation: spec.terms.reservation.clone(),
        ..Terms::default()
    };
    let spec = AllocationSpec {
        name: spec.name.clone(),
        project: spec.project.clone(),
        vcluster: spec.vcluster.clone(),
        nodes: spec.nodes,
        workload: Workload::default(),
        walltime_ms: spec.walltime_ms,
        class: spec.class,
        sensitive: spec.sensitive,
        constraints: spec.constraints.clone(),
        requeue: spec.requeue,
        hold: false,
        demand: spec.demand.clone(),
        terms,
    };
    let element = Some(Element {
        array: array.id,
        index,
    });
    Allocation {
        id,
        user: array.user.clone(),
        spec,
        state: AllocationState::Pending,
        state_since: array.state_since,
        submitted_at: array.submitted_at,
        eligible_at: array.eligible_at,
        started_at: None,
        ended_at: None,
        // A restored cluster skips attempt and checkpoint numbers (`restored.rs`); an element starts from those.
        attempt: array.attempt,
        ranks: Vec::new(),
        stop: None,
        revision: array.revision,
        course: Course {
            element,
            checkpoints: array.course.checkpoints,
            ..Course::default()
        },
    }
}

/// Index of the element with this id.
pub(super) fn index_of(array: &Allocation, id: AllocationId) -> Option<u32> {
    array.element_numbers()?.index_of(id)
}

/// Cancels an element that was never placed. No change if the element was cancelled before.
pub(super) fn cancel_unplaced(case: Case<'_>, array: &Allocation, id: AllocationId) -> Verdict {
    let Some(index) = index_of(array, id) else {
        return Verdict::nothing();
    };
    let mut next = array.clone();
    let Some(tally) = next.course.tally.as_mut() else {
        return Verdict::nothing();
    };
    if !(tally.pending.remove(index) || tally.blocked.remove(index)) {
        return Verdict::nothing();
    }
    tally.cancelled.insert(index);
    let by = case.principal.name.clone();
    next.stop.get_or_insert(StopCause::Cancelled { by });
    let goes_on = next.state == AllocationState::Pending;
    Verdict::done(vec![counted(case, next, goes_on)])
}

/// Ends an array: cancels the elements that were not placed, and ends those that were.
pub(super) fn all_ended_by(case: Case<'_>, array: &Allocation, cause: &StopCause) -> Vec<Change> {
    let mut changes = Vec::from_iter(rest_ended_by(case, array, cause));
    for element in placed(case, array) {
        changes.extend(ended_by(case, element, cause));
    }
    changes
}

/// Cancels the elements of an array that were not placed; `None` if no element is left to place.
pub(super) fn rest_ended_by(
    case: Case<'_>,
    array: &Allocation,
    cause: &StopCause,
) -> Option<Change> {
    // The array waits for its last running element, and no release from hold can apply.
    let mut next = entering(case, array, AllocationState::Blocked);
    let tally = next.course.tally.as_mut()?;
    if tally.pending.is_empty() && tally.blocked.is_empty() {
        return None;
    }
    give_up_rest(tally);
    next.stop = Some(cause.clone());
    Some(counted(case, next, false))
}

/// Elements that have an allocation that has not ended.
pub(super) fn placed<'a>(
    case: Case<'a>,
    array: &Allocation,
) -> impl Iterator<Item = &'a Allocation> {
    let (id, last) = (array.id, array.last_number());
    let numbered = case.state.hot.range(id..=last).map(|(_, record)| &**record);
    numbered.filter(move |record| {
        let element = record.course.element;
        element.is_some_and(|element| element.array == id)
    })
}

fn counted(case: Case<'_>, next: Allocation, goes_on: bool) -> Change {
    let (change, record) = settled(case, next, goes_on);
    let record = Box::new(record);
    Change::Allocation { change, record }
}
