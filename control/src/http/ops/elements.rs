//! Elements of arrays. Until one is placed, all that there is of it is its place in its array's record, and
//! its number, which is behind the array's.

use super::{allocations::record, read, unexpected};
use crate::{Core, http::caller::Caller};
use lattice_api::{
    AllocationRequest,
    allocation::Known,
    dependency::JobRef,
    problem::{Kind, Problem},
};
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

/// The number that a text names: `12`, or `12_7`, an element of the array 12.
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
        let detail = format!("allocation {array} is no array; name it without _{index}");
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

/// What a request is read with: the time, and the elements that it names.
pub(crate) async fn known(
    core: &Core,
    caller: &Caller,
    request: &AllocationRequest,
) -> Result<Known, Problem> {
    let mut known = Known {
        now: core.now(),
        ..Known::default()
    };
    for named in request.named()? {
        let field = match request.dependencies.is_empty() {
            true => "dependency",
            false => "dependencies",
        };
        let id = number_of(core, caller, named, field).await?;
        // What a caller may not see is not waited for either: how it ended would be told.
        if caller.tenants.is_some() {
            record(core, caller, id).await?;
        }
        if named.index.is_some() {
            known.elements.insert(named, id);
        }
    }
    Ok(known)
}

/// The record of this number, out of the view or, once it has ended, out of the quorum.
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

/// The element of this number that has no allocation of its own, as one that waits, or was cancelled.
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

/// The index of the element that has this number.
pub(super) fn index_of(array: &Allocation, id: AllocationId) -> Option<u32> {
    array.element_numbers()?.index_of(id)
}

/// The record with the highest number below this one, of those near enough to be of the same array. Nobody
/// can ask for it from above, so it is closed in from below.
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

/// The first record with a number above `after` and below `end`.
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

/// An element as its array's record has it; `None` where it has, or had, an allocation of its own.
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
