//! DAG operations.

use super::{
    allocations::visibility,
    job_refs,
    names::{self, Names},
    paging, propose, propose_submission, read, submit, unexpected,
};
use crate::{caller::Caller, state::Api};
use lattice_api::{
    allocation::{RequestContext, stop_reason},
    dag::{DagDryRunResult, DagRequest, DagSubmitResult, DagView},
    page::Page,
    problem::{Kind, Problem, field_of},
};
use lattice_engine::Core;
use lattice_quorum_types::{
    Allocation, AllocationId, Command, Outcome, ProjectPath, Refusal,
    dag::{Dag, DagSpec, DagState},
    id::DagId,
    view::{Answer, Query},
};
use lattice_view::View;
use std::{collections::BTreeMap, sync::Arc};

/// Records read from the quorum at a time.
const RECORDS_PER_READ: u32 = 1_000;
/// Maximum number of reads for one page, or for the members of one DAG. Members not found by then are left out.
const MAX_READS: usize = 100;

/// Parses a DAG number from a path.
pub(crate) fn number(text: &str) -> Result<DagId, Problem> {
    text.parse()
        .map_err(|e: lattice_quorum_types::id::InvalidId| Problem::field("id", e.to_string()))
}

fn unknown(id: DagId) -> Problem {
    Problem::from(&Refusal::UnknownDag { id })
}

/// Submits all members or none. `most`: maximum number of members at this site.
pub(crate) async fn submit(
    api: &Api,
    caller: &Caller,
    request: DagRequest,
    key: Option<String>,
    most: usize,
) -> Result<DagSubmitResult, Problem> {
    let core = api.core();
    let dag = build_spec(api, caller, request, most).await?;
    let possible = check_possible(api, &dag);
    let command = Command::SubmitDag { dag };
    if let Err(problem) = possible
        && !submit::is_key_used(core, caller, key.as_deref()).await?
    {
        // A refusal by the quorum has priority, because it is more specific.
        super::check_command(core, caller, command).await?;
        return Err(problem);
    }
    let applied = propose_submission(api, caller, key, command).await?;
    let Outcome::DagSubmitted { id } = applied.outcome else {
        return Err(unexpected());
    };
    Ok(DagSubmitResult {
        id: id.0,
        revision: applied.revision,
    })
}

/// Checks the submission of all members without changing anything.
pub(crate) async fn dry_run(
    api: &Api,
    caller: &Caller,
    request: DagRequest,
    most: usize,
) -> Result<DagDryRunResult, Problem> {
    let core = api.core();
    let dag = build_spec(api, caller, request, most).await?;
    let possible = check_possible(api, &dag);
    let members = dag.members.iter().map(Into::into).collect();
    let revision = super::check_command(core, caller, Command::SubmitDag { dag }).await?;
    possible?;
    Ok(DagDryRunResult {
        revision,
        dry_run: true,
        members,
    })
}

/// Builds the DAG specification; `most`: maximum number of members.
async fn build_spec(
    api: &Api,
    caller: &Caller,
    request: DagRequest,
    most: usize,
) -> Result<Box<DagSpec>, Problem> {
    caller.check_writes()?;
    let members = request.members.len();
    if members > most {
        let refusal = Refusal::DagTooLarge {
            members: members as u64,
            limit: most as u64,
        };
        return Err(Problem::from(&refusal));
    }
    let known = request_contexts(api, caller, &request).await?;
    let dag = request.into_spec(&known)?;
    for member in &dag.members {
        caller.check_sees(&member.spec.project)?;
    }
    Ok(Box::new(dag))
}

/// Context for parsing each member.
async fn request_contexts(
    api: &Api,
    caller: &Caller,
    request: &DagRequest,
) -> Result<Vec<RequestContext>, Problem> {
    let mut all = Vec::with_capacity(request.members.len());
    for (place, member) in request.members.iter().enumerate() {
        let name = member.name(place)?;
        let known = job_refs::request_context(api, caller, &member.request).await;
        all.push(known.map_err(|problem| with_member_field(&name, problem))?);
    }
    Ok(all)
}

fn with_member_field(member: &str, mut problem: Problem) -> Problem {
    if let Some(field) = problem.field.take() {
        let named = field_of(member, &field);
        // The text of a field error starts with the field name.
        if let Some(rest) = problem.detail.strip_prefix(&format!("{field}: ")) {
            problem.detail = format!("{named}: {rest}");
        }
        problem.field = Some(named);
    }
    problem
}

/// Checks that each member could ever be satisfied. Equal requests of several members are checked once.
fn check_possible(api: &Api, dag: &DagSpec) -> Result<(), Problem> {
    let mut asked: Vec<&lattice_quorum_types::spec::AllocationSpec> = Vec::new();
    for member in &dag.members {
        let spec = &member.spec;
        let same = |other: &&lattice_quorum_types::spec::AllocationSpec| {
            other.vcluster == spec.vcluster
                && other.nodes == spec.nodes
                && other.constraints == spec.constraints
                && other.demand.storage_mb_s == spec.demand.storage_mb_s
        };
        if asked.iter().any(same) {
            continue;
        }
        submit::check_possible(api, spec)
            .map_err(|problem| with_member_field(&member.name, problem))?;
        asked.push(spec);
    }
    Ok(())
}

/// Lists running DAGs and the last ended ones, of one tenant or of all tenants visible to the caller.
pub(crate) async fn list(
    core: &Core,
    caller: &Caller,
    tenant: Option<&str>,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<DagView>, Problem> {
    let limit = paging::limit(limit)?;
    let mut after = paging::after::<DagId>(cursor)?.unwrap_or(DagId(0));
    let within = tenant.filter(|tenant| !tenant.is_empty());
    let within = within.map(ProjectPath::new).transpose();
    let within = within.map_err(|error| Problem::field("tenant", error.to_string()))?;
    if let Some(tenant) = &within
        && !(core.view().projects.contains_key(tenant) && caller.sees(tenant))
    {
        let path = tenant.clone();
        return Err(Problem::from(&Refusal::UnknownProject { path }));
    }
    let mut items: Vec<Dag> = Vec::new();
    for _ in 0..MAX_READS {
        let query = Query::Dags {
            after,
            limit: RECORDS_PER_READ.min(u32::try_from(limit).unwrap_or(RECORDS_PER_READ) + 1),
            within: within.clone(),
        };
        let Answer::Dags(found) = read(core, query).await? else {
            return Err(unexpected());
        };
        let is_last = found.is_empty();
        after = found.last().map_or(after, |dag| dag.id);
        items.extend(found.into_iter().filter(|dag| caller.sees(&dag.project)));
        if is_last || items.len() > limit {
            let page = paging::page(items.into_iter(), limit, |dag| dag.id.to_string());
            return Ok(page.map(|dag| DagView::from(&dag)));
        }
    }
    Ok(Page {
        items: items.iter().map(DagView::from).collect(),
        next_cursor: Some(after.to_string()),
    })
}

/// Returns the record from the view, or from the quorum once the DAG has ended.
async fn record(core: &Core, caller: &Caller, id: DagId) -> Result<Arc<Dag>, Problem> {
    let live = core.view().dags.get(&id).cloned();
    let record = match live {
        Some(live) => live,
        None => match read(core, Query::Dag { id }).await? {
            Answer::Dag(Some(ended)) => Arc::from(ended),
            Answer::Dag(None) => return Err(unknown(id)),
            _ => return Err(unexpected()),
        },
    };
    match caller.sees(&record.project) {
        true => Ok(record),
        false => Err(unknown(id)),
    }
}

pub(crate) async fn get(core: &Core, caller: &Caller, id: DagId) -> Result<DagView, Problem> {
    let dag = record(core, caller, id).await?;
    dag_view(core, caller, &dag).await
}

/// Cancels every member that has not ended.
pub(crate) async fn cancel(
    core: &Core,
    caller: &Caller,
    id: DagId,
    key: Option<String>,
) -> Result<DagView, Problem> {
    caller.check_writes()?;
    let before = record(core, caller, id).await?;
    // The quorum does not check whether the DAG has ended.
    if before.state != DagState::Running {
        let detail = format!(
            "DAG {id} is {}; only a running DAG can be cancelled",
            before.state
        );
        return Err(Problem::new(Kind::Conflict, "wrong_state", detail));
    }
    propose(core, caller, key, Command::CancelDag { id }).await?;
    get(core, caller, id).await
}

async fn dag_view(core: &Core, caller: &Caller, dag: &Dag) -> Result<DagView, Problem> {
    let view = core.view();
    let ended = read_ended_members(core, &view, dag).await?;
    let mentioned: Vec<AllocationId> = dag
        .members
        .iter()
        .filter_map(|member| record_of_member(&view, &ended, member.allocation))
        .filter_map(names::mentioned_in_stop)
        .collect();
    let names = Names::of(core, &view, mentioned).await;
    Ok(DagView::with_members(dag, |id| {
        let Some(record) = record_of_member(&view, &ended, id) else {
            return (None, None);
        };
        let sight = visibility(&view, caller, record);
        let stop = stop_reason(record, sight, &|id| names.get(id));
        (Some(record.state.to_string()), stop)
    }))
}

fn record_of_member<'a>(
    view: &'a View,
    ended: &'a BTreeMap<AllocationId, Allocation>,
    id: AllocationId,
) -> Option<&'a Allocation> {
    let live = view.allocation(id).map(|live| &**live);
    live.or_else(|| ended.get(&id))
}

/// Members that are no longer in the view. Members that are not arrays have consecutive numbers, so one read returns
/// many of them.
async fn read_ended_members(
    core: &Core,
    view: &View,
    dag: &Dag,
) -> Result<BTreeMap<AllocationId, Allocation>, Problem> {
    let mut missing: Vec<AllocationId> = dag
        .members
        .iter()
        .map(|member| member.allocation)
        .filter(|id| view.allocation(*id).is_none())
        .collect();
    missing.sort_unstable_by(|a, b| b.cmp(a));
    let mut ended = BTreeMap::new();
    for _ in 0..MAX_READS {
        let Some(first) = missing.pop() else { break };
        let query = Query::Allocations {
            after: AllocationId(first.0 - 1),
            limit: RECORDS_PER_READ
                .min(u32::try_from(missing.len() + 1).unwrap_or(RECORDS_PER_READ)),
            states: Vec::new(),
            within: None,
        };
        let Answer::Allocations(found) = read(core, query).await? else {
            return Err(unexpected());
        };
        let last = found.last().map_or(first, |record| record.id);
        ended.extend(found.into_iter().map(|record| (record.id, record)));
        while missing.last().is_some_and(|next| *next <= last) {
            missing.pop();
        }
    }
    Ok(ended)
}
