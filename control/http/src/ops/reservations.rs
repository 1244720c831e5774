//! Reservations: nodes reserved for users or projects for a time.

use super::{change, paging, propose};
use crate::caller::{Caller, Role};
use lattice_api::{
    allocation::ElementView,
    page::Page,
    problem::Problem,
    project::ChangeResult,
    reservation::{ReservationConflictView, ReservationRequest, ReservationView},
    text,
};
use lattice_engine::Core;
use lattice_quorum_types::{
    AllocationId, Command, NodeId, Refusal, UnixMillis,
    event::EventKind,
    hostlist,
    id::ReservationName,
    node::Lifecycle,
    reservation::{Reservation, ReservationSpec},
};
use lattice_view::View;
use std::collections::{BTreeMap, BTreeSet};

fn name(text: &str) -> Result<ReservationName, Problem> {
    ReservationName::new(text).map_err(|error| Problem::field("name", error.to_string()))
}

/// View of a reservation without the projects and users that the caller may not see.
fn reservation_view(
    view: &View,
    caller: &Caller,
    reservation: &Reservation,
    now: UnixMillis,
) -> ReservationView {
    let mut shown = ReservationView::new(reservation, now);
    let spec = &reservation.spec;
    let seen = spec.projects.iter().filter(|path| caller.sees(path));
    shown.projects = seen.map(ToString::to_string).collect();
    shown.usable = spec.users.contains(&*caller.name) || !shown.projects.is_empty();
    // The tenants of a user are unknown, so only operators of the whole cluster see other users.
    if !caller.is_cluster_operator() {
        shown.users.retain(|user| **user == *caller.name);
    }
    shown.conflicts = conflicts(view, caller, spec, now);
    shown
}

/// Allocations that may still hold reserved nodes at the start of the reservation, without those that the reservation
/// permits or the caller does not see, by number.
fn conflicts(
    view: &View,
    caller: &Caller,
    spec: &ReservationSpec,
    now: UnixMillis,
) -> Vec<ReservationConflictView> {
    if spec.until.is_some_and(|until| until <= now) {
        return Vec::new();
    }
    let mut held: BTreeMap<AllocationId, Vec<NodeId>> = BTreeMap::new();
    for node in &spec.nodes {
        let record = view.node(node).and_then(|entry| entry.record.as_ref());
        if let Some(holder) = record.and_then(|record| record.holder) {
            let nodes = held.entry(holder.allocation).or_default();
            nodes.push(node.clone());
        }
    }
    let conflict = |(id, nodes): (AllocationId, Vec<NodeId>)| {
        let work = view.allocation(id)?;
        let is_meant = spec.permits(&work.user, &work.spec.project);
        let ends_at = work.ends_at();
        let is_gone = ends_at.is_some_and(|at| at <= spec.from);
        let is_shown = !is_meant && !is_gone && caller.sees(&work.spec.project);
        is_shown.then(|| ReservationConflictView {
            allocation: id,
            element: ElementView::of(view.name_of(id)),
            nodes: hostlist::fold(&nodes),
            until: ends_at.map(text::time),
        })
    };
    held.into_iter().filter_map(conflict).collect()
}

pub(crate) fn list(
    core: &Core,
    caller: &Caller,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<ReservationView>, Problem> {
    let limit = paging::limit(limit)?;
    let after = paging::after::<ReservationName>(cursor)?;
    let (view, now) = (core.view(), core.now());
    let all = view.reservations.values();
    let rest = all.filter(|one| after.as_ref().is_none_or(|after| one.name > *after));
    let page = paging::page(rest, limit, |one| one.name.to_string());
    Ok(page.map(|one| reservation_view(&view, caller, one, now)))
}

pub(crate) fn get(core: &Core, caller: &Caller, text: &str) -> Result<ReservationView, Problem> {
    let name = name(text)?;
    let view = core.view();
    match view.reservations.get(&name) {
        Some(found) => Ok(reservation_view(&view, caller, found, core.now())),
        None => Err(Problem::from(&Refusal::UnknownReservation { name })),
    }
}

/// Creates or replaces a reservation.
pub(crate) async fn set(
    core: &Core,
    caller: &Caller,
    text: &str,
    request: ReservationRequest,
    key: Option<String>,
) -> Result<ReservationView, Problem> {
    caller.check_cluster_role(Role::Operator, "reserving nodes")?;
    let name = name(text)?;
    let now = core.now();
    let grouped = in_groups(&core.view(), &request.groups)?;
    let spec = Box::new(request.spec(now, grouped)?);
    let command = Command::SetReservation {
        name: name.clone(),
        spec,
        expected: request.expected_revision,
    };
    let applied = propose(core, caller, key, command).await;
    let applied = applied.map_err(with_request_field)?;
    let made = applied.events.iter().find_map(|event| match &event.kind {
        EventKind::Reservation { record } if record.name == name => Some(record),
        _ => None,
    });
    // A repeated request, or one that changes nothing, has no events.
    match made {
        Some(made) => Ok(reservation_view(&core.view(), caller, made, now)),
        None => get(core, caller, text),
    }
}

/// Nodes that are in these topology groups now, without retired ones.
fn in_groups(view: &View, groups: &[String]) -> Result<BTreeSet<NodeId>, Problem> {
    let mut nodes = BTreeSet::new();
    for group in groups {
        let is_in_use = |lifecycle| lifecycle != Lifecycle::Retired;
        let members = view.nodes.values().filter(|entry| {
            let record = entry.record.as_ref();
            record.is_some_and(|record| is_in_use(record.lifecycle)) && entry.group() == Some(group)
        });
        let before = nodes.len();
        nodes.extend(members.map(|entry| entry.id.clone()));
        if nodes.len() == before {
            let all: BTreeSet<&str> = view.nodes.values().filter_map(|e| e.group()).collect();
            let known: Vec<&str> = all.into_iter().take(10).collect();
            let reason = format!(
                "no node is in the topology group {group:?}; existing groups: {}",
                known.join(", ")
            );
            return Err(Problem::field("groups", reason));
        }
    }
    Ok(nodes)
}

/// Names the request field that an error refers to.
fn with_request_field(mut problem: Problem) -> Problem {
    let field = match problem.code.as_str() {
        "unknown_node" => "nodes",
        "unknown_project" => "projects",
        "reservation_changed" => "expected_revision",
        _ => return problem,
    };
    problem.field = Some(field.to_owned());
    problem
}

/// Deletes a reservation.
pub(crate) async fn delete(
    core: &Core,
    caller: &Caller,
    text: &str,
    key: Option<String>,
) -> Result<ChangeResult, Problem> {
    caller.check_cluster_role(Role::Operator, "deleting a reservation")?;
    let name = name(text)?;
    change(core, caller, key, Command::DeleteReservation { name }).await
}
