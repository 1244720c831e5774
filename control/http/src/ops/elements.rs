//! Elements of job arrays. An element that was never placed exists only as an index in the record of its array; its
//! number follows that of the array.

use super::{allocations::record, read, unexpected};
use crate::caller::Caller;
use lattice_api::{
    AllocationRequest,
    allocation::RequestContext,
    dependency::JobRef,
    problem::{Kind, Problem},
};
use lattice_engine::Core;
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Refusal,
    array::MAX_ELEMENTS,
    course::{Course, Element},
    terms::Terms,
    view::{Answer, Query},
};
use std::sync::Arc;

fn unknown(id: AllocationId) -> Problem {
    Problem::from(&Refusal::UnknownAllocation { id })
}

fn no_element(field: &str, detail: String) -> Problem {
    let mut problem = Problem::new(Kind::NotFound, "unknown_allocation", detail);
    problem.field = Some(field.to_owned());
    problem
}

/// Allocation number for a text: `12`, or `12_7` for an element of array 12.
pub(crate) async fn number(
    core: &Core,
    caller: &Caller,
    text: &str,
) -> Result<AllocationId, Problem> {
    let named = text.parse::<JobRef>();
    let named = named.map_err(|error| Problem::field("id", error.to_string()))?;
    number_of(core, caller, named, "id").await
}

async fn number_of(
    core: &Core,
    caller: &Caller,
    named: JobRef,
    field: &str,
) -> Result<AllocationId, Problem> {
    let array = AllocationId(named.id);
    let Some(index) = named.index else {
        return Ok(array);
    };
    let record = recorded(core, array).await?;
    let record = record.filter(|record| caller.sees(&record.spec.project));
    let record = record.ok_or_else(|| unknown(array))?;
    let Some(spec) = &record.spec.terms.array else {
        let detail = format!("allocation {array} is not an array; name it without _{index}");
        return Err(no_element(field, detail));
    };
    spec.numbers(array).of(index).ok_or_else(|| {
        let detail = format!(
            "array {array} has the indices {}, not {index}",
            spec.indices()
        );
        no_element(field, detail)
    })
}

/// Context for parsing a request: the time, and the elements it names.
pub(crate) async fn known(
    core: &Core,
    caller: &Caller,
    request: &AllocationRequest,
) -> Result<RequestContext, Problem> {
    let mut known = RequestContext {
        now: core.now(),
        ..RequestContext::default()
    };
    for named in request.named()? {
        let field = match request.dependencies.is_empty() {
            true => "dependency",
            false => "dependencies",
        };
        let id = number_of(core, caller, named, field).await?;
        // A dependency on an invisible allocation is rejected, because it would reveal how that allocation ended.
        if caller.tenants.is_some() {
            record(core, caller, id).await?;
        }
        if named.index.is_some() {
            known.elements.insert(named, id);
        }
    }
    Ok(known)
}

/// Record of this number, from the view, or from the quorum once the allocation has ended.
pub(super) async fn recorded(
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
pub(super) async fn unplaced(
    core: &Core,
    id: AllocationId,
) -> Result<Option<Arc<Allocation>>, Problem> {
    if let Some(array) = core.view().array_of(id) {
        return Ok(as_waiting(array, id).map(Arc::new));
    }
    let Some(before) = ended_before(core, id).await? else {
        return Ok(None);
    };
    let array = match &before.course.element {
        Some(element) => recorded(core, element.array).await?,
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
async fn ended_before(core: &Core, id: AllocationId) -> Result<Option<Allocation>, Problem> {
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
    let tally = array.course.tally.as_ref()?;
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
        course: Course {
            element: Some(Element {
                array: array.id,
                index,
            }),
            ..Course::default()
        },
        ..array.clone()
    })
}
