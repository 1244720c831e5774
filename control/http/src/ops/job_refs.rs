//! Job references in requests: an allocation by its number, or an element of an array by its index.

use super::{
    allocations::{record, unknown},
    elements,
};
use crate::{caller::Caller, state::Api};
use lattice_api::{
    AllocationRequest,
    allocation::RequestContext,
    dependency::JobRef,
    problem::{Kind, Problem},
};
use lattice_engine::Core;
use lattice_quorum_types::AllocationId;

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
    let record = elements::find_record(core, array).await?;
    let record = record.filter(|record| caller.sees(&record.spec.project));
    let record = record.ok_or_else(|| unknown(array))?;
    let Some(spec) = &record.spec.terms.array else {
        let detail = format!("allocation {array} is not an array; name it without _{index}");
        return Err(no_element(field, detail));
    };
    spec.numbers(array).id_of(index).ok_or_else(|| {
        let detail = format!(
            "array {array} has the indices {}, not {index}",
            spec.indices()
        );
        no_element(field, detail)
    })
}

/// Writes elements as the request names them, in a refusal of its dependencies. The quorum names an ended element of an
/// ended array by its number.
pub(super) fn with_element_names(mut problem: Problem, known: &RequestContext) -> Problem {
    for (named, id) in &known.elements {
        let (number, element) = (format!("allocation {id} "), format!("allocation {named} "));
        problem.detail = problem.detail.replace(&number, &element);
    }
    problem
}

/// Context for parsing a request: the time, the elements it names, and the site's default output file.
pub(crate) async fn request_context(
    api: &Api,
    caller: &Caller,
    request: &AllocationRequest,
) -> Result<RequestContext, Problem> {
    let core = api.core();
    let mut known = RequestContext {
        now: core.now(),
        default_output: api.default_output().map(str::to_owned),
        ..RequestContext::default()
    };
    for named in request.dependency_refs()? {
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
