//! Array elements. Until an element is placed, it exists only as an index in the record of its array.

use super::{
    Case,
    admission::check_begin,
    array::{index_of, with_derived_state},
    invalid, wrong_state,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationName, AllocationState, Refusal,
    progress::{AllocationProgress, ArrayElement},
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

/// Name of an allocation in texts. An ended element of an ended array is named by its number, because its place in the
/// array is no longer in memory.
pub(super) fn name_of(case: Case<'_>, id: AllocationId) -> AllocationName {
    let state = case.state;
    if let Some(allocation) = state.hot.get(&id) {
        return allocation.name();
    }
    let array = state.order.array_of(id).and_then(|id| state.hot.get(&id));
    let element = array.and_then(|array| {
        Some(ArrayElement {
            array: array.id,
            index: index_of(array, id)?,
        })
    });
    AllocationName::new(id, element)
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
    let (Some(index), Some(tally)) = (index_of(array, id), &array.progress.tally) else {
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
    if let Some(tally) = next.progress.tally.as_mut() {
        tally.pending.remove(index);
        tally.alive += 1;
    }
    let (_, next) = with_derived_state(case, next, true);
    Ok(Some((element(array, id, index), next)))
}

/// Builds the element as a pending allocation. The workload stays in the record of the array.
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
    let element = Some(ArrayElement {
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
        // A restored cluster skips attempt and checkpoint numbers (`restored.rs`); an element starts after these.
        attempt: array.attempt,
        ranks: Vec::new(),
        stop: None,
        revision: array.revision,
        progress: AllocationProgress {
            element,
            checkpoints: array.progress.checkpoints,
            ..AllocationProgress::default()
        },
    }
}

/// Elements that have an allocation that has not ended.
pub(super) fn live_elements<'a>(
    case: Case<'a>,
    array: &Allocation,
) -> impl Iterator<Item = &'a Allocation> {
    let (id, last) = (array.id, array.last_number());
    let numbered = case.state.hot.range(id..=last).map(|(_, record)| &**record);
    numbered.filter(move |record| {
        let element = record.progress.element;
        element.is_some_and(|element| element.array == id)
    })
}
