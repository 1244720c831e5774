//! Elements of job arrays. An element that was never placed exists only as an index in the record of its array; its
//! number follows that of the array.

use super::{read, unexpected};
use lattice_api::problem::Problem;
use lattice_engine::Core;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState,
    array::MAX_ELEMENTS,
    progress::{AllocationProgress, ArrayElement},
    terms::Terms,
    view::{Answer, Query},
};
use std::sync::Arc;

/// Record of this number, from the view, or from the quorum once the allocation has ended.
pub(super) async fn find_record(
    core: &Core,
    id: AllocationId,
) -> Result<Option<Arc<Allocation>>, Problem> {
    if let Some(live) = core.view().allocation(id) {
        return Ok(Some(live.clone()));
    }
    match read(core, Query::Allocation { id }).await? {
        Answer::Allocation(found) => Ok(found.map(Arc::from)),
        _ => Err(unexpected()),
    }
}

/// Element of this number without an own allocation, shown as waiting, blocked or cancelled.
pub(super) async fn unplaced_element(
    core: &Core,
    id: AllocationId,
) -> Result<Option<Arc<Allocation>>, Problem> {
    if let Some(array) = core.view().array_of(id) {
        return Ok(as_waiting(array, id).map(Arc::new));
    }
    let Some(before) = last_record_before(core, id).await? else {
        return Ok(None);
    };
    let array = match &before.progress.element {
        Some(element) => find_record(core, element.array).await?,
        None => Some(Arc::new(before)),
    };
    Ok(array.and_then(|array| as_waiting(&array, id)).map(Arc::new))
}

/// Index of the element with this number.
pub(super) fn index_of(array: &Allocation, id: AllocationId) -> Option<u32> {
    array.element_numbers()?.index_of(id)
}

/// Record with the highest number below `id`, within the range of one array. The quorum cannot be queried downwards, so
/// a binary search from below finds it.
async fn last_record_before(core: &Core, id: AllocationId) -> Result<Option<Allocation>, Problem> {
    let lowest = id.0.saturating_sub(MAX_ELEMENTS as u64 + 1);
    let mut end = id.0;
    let mut found = next(core, lowest, end).await?;
    while let Some(low) = found.as_ref().map(|last| last.id.0)
        && end - low > 1
    {
        let middle = low + (end - low) / 2;
        match next(core, middle - 1, end).await? {
            Some(higher) => found = Some(higher),
            None => end = middle,
        }
    }
    Ok(found)
}

/// First record with a number above `after` and below `end`.
async fn next(core: &Core, after: u64, end: u64) -> Result<Option<Allocation>, Problem> {
    let query = Query::Allocations {
        after: AllocationId(after),
        limit: 1,
        states: Vec::new(),
        within: None,
    };
    let Answer::Allocations(found) = read(core, query).await? else {
        return Err(unexpected());
    };
    Ok(found.into_iter().next().filter(|next| next.id.0 < end))
}

/// Element as derived from its array record; `None` if the element has or had its own allocation.
fn as_waiting(array: &Allocation, id: AllocationId) -> Option<Allocation> {
    let index = index_of(array, id)?;
    let tally = array.progress.tally.as_ref()?;
    let state = if tally.cancelled.contains(index) {
        AllocationState::Cancelled
    } else if tally.blocked.contains(index) {
        AllocationState::Blocked
    } else if tally.pending.contains(index) {
        array.state
    } else {
        return None;
    };
    let mut spec = array.spec.clone();
    spec.terms = Terms {
        array: None,
        ..spec.terms
    };
    let is_over = state.is_terminal();
    Some(Allocation {
        id,
        spec,
        state,
        ended_at: array.ended_at.filter(|_| is_over),
        stop: array.stop.clone().filter(|_| is_over),
        progress: AllocationProgress {
            element: Some(ArrayElement {
                array: array.id,
                index,
            }),
            ..AllocationProgress::default()
        },
        ..array.clone()
    })
}
