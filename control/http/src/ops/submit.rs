//! Submission: rejects requests that no set of nodes could ever satisfy, and offers a dry run with a forecast.

use super::{
    check_command, job_refs, propose_submission, read, unexpected,
    wait_causes::{WaitLookup, wait_text},
};
use crate::{caller::Caller, state::Api};
use lattice_api::{
    AllocationRequest, SubmitResult, allocation::WorkloadAccess, outlook::OutlookView,
    problem::Kind, problem::Problem,
};
use lattice_engine::{
    Core, explanation, requested_plans::DryRunsBusy, tasks::borrow::lending_vclusters,
};
use lattice_placement::{Placement, Plan, RequestedReservation, check_possible_within};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Command, Outcome, Refusal, Revision, VclusterName,
    hostlist,
    node::{Lifecycle, Node},
    spec::AllocationSpec,
    view::{Answer, Query},
};
use lattice_view::{HomeRule, LastPlan, NodeEntry, Planned, View};
use std::{collections::BTreeSet, sync::Arc};

/// Number of the allocation in a dry run, ordered after every submitted one.
const DRY_RUN_ID: AllocationId = AllocationId(u64::MAX);

pub(crate) async fn submit(
    api: &Api,
    caller: &Caller,
    request: AllocationRequest,
    key: Option<String>,
    dry_run: bool,
) -> Result<SubmitResult, Problem> {
    let core = api.core();
    let known = job_refs::request_context(api, caller, &request).await?;
    let on_limit = request.on_limit()?;
    let spec = Box::new(request.into_spec_with(&known)?);
    let named = |problem| job_refs::with_element_names(problem, &known);
    caller.check_sees(&spec.project)?;
    let possible = check_possible(api, &spec);
    let command = match on_limit {
        Some(on_limit) => Command::SubmitOnLimit { spec, on_limit },
        None => Command::Submit { spec },
    };
    if dry_run {
        let outlook = self::dry_run(api, caller, command, possible).await;
        return outlook.map_err(named);
    }
    if let Err(problem) = possible
        && !is_key_used(core, caller, key.as_deref()).await?
    {
        // A refusal by the quorum has priority, because it is more specific.
        check_command(core, caller, command).await.map_err(named)?;
        return Err(problem);
    }
    let applied = propose_submission(api, caller, key, command).await;
    let applied = applied.map_err(named)?;
    let Outcome::Submitted { id } = applied.outcome else {
        return Err(unexpected());
    };
    Ok(SubmitResult {
        id: Some(id),
        revision: applied.revision,
        dry_run,
        outlook: None,
    })
}

async fn dry_run(
    api: &Api,
    caller: &Caller,
    command: Command,
    possible: Result<(), Problem>,
) -> Result<SubmitResult, Problem> {
    let core = api.core();
    let revision = check_command(core, caller, command.clone()).await?;
    possible?;
    let outlook = match command {
        Command::Submit { spec } | Command::SubmitOnLimit { spec, .. } => {
            outlook(api, caller, *spec).await?
        }
        _ => None,
    };
    Ok(SubmitResult {
        id: None,
        revision,
        dry_run: true,
        outlook,
    })
}

/// Checks that the request could ever be satisfied.
pub(super) fn check_possible(api: &Api, spec: &AllocationSpec) -> Result<(), Problem> {
    let core = api.core();
    let view = core.view();
    check_storage(&view, spec)?;
    check_checkpoint(api, spec)?;
    if core.view_age_ms().is_none() {
        return Ok(());
    }
    let name = &spec.vcluster;
    // Lent nodes return, borrowed nodes may stay, and lendable nodes of others may become available. Only home nodes
    // count for a request that must stay on them.
    let is_home_only =
        HomeRule::of(&view.vclusters).is_home_only(spec, spec.nodes, spec.walltime_ms);
    let lenders = match is_home_only {
        true => BTreeSet::new(),
        false => lenders_to(&view, name),
    };
    let is_its = |node: &Node| {
        let is_here = node.home == *name || (node.current == *name && !is_home_only);
        (is_here || lenders.contains(&node.home)) && node.lifecycle != Lifecycle::Retired
    };
    let nodes = view.nodes.values();
    let nodes = nodes.filter(|entry| entry.record.as_ref().is_some_and(is_its));
    let nodes = nodes.map(|entry| (&entry.id, &**entry));
    // An unknown reservation, or one for other users, is rejected by the quorum.
    let named = spec.terms.reservation.as_ref();
    let within = named.and_then(|name| {
        let nodes = &view.reservations.get(name)?.spec.nodes;
        Some(RequestedReservation { name, nodes })
    });
    let (facts, wanted) = (NodeEntry::facts, &spec.constraints);
    check_possible_within(within, name, nodes, facts, wanted, spec.nodes)
        .map_err(|no| impossible(no.field, no.reason))
}

/// Checks that an allocation with checkpoints has a checkpoint directory.
fn check_checkpoint(api: &Api, spec: &AllocationSpec) -> Result<(), Problem> {
    let terms = spec.terms.checkpoint.as_ref();
    match terms.is_some_and(|terms| terms.directory.is_none())
        && !api.stores().checkpoints.has_directory()
    {
        true => Err(impossible(
            "checkpoint.directory",
            "the site has no default checkpoint directory; set one".to_owned(),
        )),
        false => Ok(()),
    }
}

/// vClusters that lend nodes; none if the vCluster `name` does not borrow.
fn lenders_to<'a>(view: &'a View, name: &VclusterName) -> BTreeSet<&'a VclusterName> {
    let own = view.movement_of(name).lend;
    let is_there = lending_vclusters(view).any(|other| other == name);
    if !is_there || !own.allow_borrowing || own.borrowing_limit == Some(0) {
        return BTreeSet::new();
    }
    let lends = |of: &&VclusterName| {
        let lend = view.movement_of(of).lend;
        lend.allow_lending && lend.lending_limit != Some(0)
    };
    lending_vclusters(view).filter(lends).collect()
}

/// Checks storage bandwidth. If the site limits bandwidth, a requested storage system must be listed and have the
/// requested bandwidth.
fn check_storage(view: &View, spec: &AllocationSpec) -> Result<(), Problem> {
    let (field, systems) = ("storage_gb_s", &view.inputs.storage);
    if systems.is_empty() {
        return Ok(());
    }
    for (name, mb_s) in &spec.demand.storage_mb_s {
        let Some(system) = systems.get(name) else {
            let known: Vec<&str> = systems.keys().map(String::as_str).collect();
            let known = known.join(", ");
            let reason = format!("unknown storage system \"{name}\"; configured: {known}");
            return Err(impossible(field, reason));
        };
        if *mb_s > system.budget_mb_s {
            let gb_s = |mb_s: u64| mb_s as f64 / 1e3;
            let reason = format!(
                "requested {} GB/s of \"{name}\"; its total bandwidth is {} GB/s",
                gb_s(*mb_s),
                gb_s(system.budget_mb_s)
            );
            return Err(impossible(field, reason));
        }
    }
    Ok(())
}

fn impossible(field: &str, reason: String) -> Problem {
    let detail = format!("{field}: {reason}");
    let mut problem = Problem::new(Kind::Impossible, "impossible", detail);
    problem.field = Some(field.to_owned());
    problem
}

/// Whether the caller has used this key before. A repeat returns the first result, whatever has happened to the nodes
/// since.
pub(super) async fn is_key_used(
    core: &Core,
    caller: &Caller,
    key: Option<&str>,
) -> Result<bool, Problem> {
    let Some(key) = key else { return Ok(false) };
    // No such command was ever applied, so any earlier use of the key is reported as reuse.
    let other = Command::Cancel {
        id: AllocationId(0),
    };
    let by = caller.proposer(&other)?;
    let envelope = core.envelope(by, Some(key.to_owned()), None, other);
    let envelope = Box::new(envelope);
    match read(core, Query::Check { envelope }).await? {
        Answer::Check(Err(Refusal::KeyReused { .. })) => Ok(true),
        Answer::Check(_) => Ok(false),
        _ => Err(unexpected()),
    }
}

/// Forecast for the allocation in the next scheduling cycle; `None` if nothing can be planned at present.
async fn outlook(
    api: &Api,
    caller: &Caller,
    spec: AllocationSpec,
) -> Result<Option<OutlookView>, Problem> {
    let core = api.core();
    let now = core.now();
    let begin_at = spec.terms.begin_at;
    let eligible_at = begin_at.map_or(now, |begin_at| begin_at.max(now));
    let record = Allocation {
        id: DRY_RUN_ID,
        user: caller.name.to_string(),
        state: match spec.hold {
            true => AllocationState::Held,
            false => AllocationState::Pending,
        },
        spec,
        state_since: now,
        submitted_at: now,
        eligible_at,
        started_at: None,
        ended_at: None,
        attempt: 0,
        ranks: Vec::new(),
        stop: None,
        revision: Revision(0),
        progress: Default::default(),
    };
    if let Some(outlook) = waits_for_others(&core.view(), &record) {
        return Ok(Some(outlook));
    }
    let planned = api.plans().plan_with(core, &record).await;
    let busy =
        |busy: DryRunsBusy| Problem::new(Kind::TooMany, "too_many_requests", busy.to_string());
    let outlook = planned.map_err(busy)?.map(|planned| {
        let placed = planned.plan.placements.iter().find(|p| p.id == DRY_RUN_ID);
        match placed {
            Some(placed) => immediate_start(placed, &planned.plan),
            None => waiting_outlook(&core.view(), &record, planned),
        }
    });
    Ok(outlook)
}

fn immediate_start(placed: &Placement, plan: &Plan) -> OutlookView {
    let layout = &placed.layout;
    let nodes = hostlist::fold(placed.nodes.iter().map(|expected| &expected.node));
    let span = layout.span();
    let mut summary = format!("would start now on {nodes}, in {span} ");
    summary += if span == 1 { "group" } else { "groups" };
    if !layout.groups.is_empty() {
        summary += &format!(" ({})", layout.groups.join(", "));
    }
    OutlookView {
        summary,
        starts_now: true,
        nodes: Some(nodes),
        groups: layout.groups.clone(),
        span: Some(span),
        score: Some(explanation::score(
            placed.score_of_nodes(),
            plan.waiting.ahead_of(placed.id).unwrap_or(0),
            plan.weights,
        )),
        explanation: None,
    }
}

/// Forecast for an allocation that waits for others and is therefore not in the queue.
fn waits_for_others(view: &View, record: &Allocation) -> Option<OutlookView> {
    let blocked = Allocation {
        state: AllocationState::Blocked,
        ..record.clone()
    };
    let waits = WaitLookup::new(view).of(&blocked)?;
    let is_free = waits.allocations.is_empty() && waits.mutex.is_none();
    (!is_free && !record.spec.hold).then(|| OutlookView {
        summary: format!(
            "would wait: {}",
            wait_text(&blocked, &waits, &|id| view.name_of(id))
        ),
        starts_now: false,
        nodes: None,
        groups: Vec::new(),
        span: None,
        score: None,
        explanation: None,
    })
}

fn waiting_outlook(view: &View, record: &Allocation, planned: Planned) -> OutlookView {
    let mut plan = LastPlan::default();
    plan.set(record.spec.vcluster.clone(), Arc::new(planned));
    let name = |id| view.name_of(id);
    let mut explanation = explanation::explain(view, &plan, record, WorkloadAccess::Full, &name);
    explanation.allocation = AllocationId(0);
    OutlookView {
        summary: format!("would wait: {}", explanation.summary),
        starts_now: false,
        nodes: None,
        groups: Vec::new(),
        span: None,
        score: None,
        explanation: Some(explanation),
    }
}
