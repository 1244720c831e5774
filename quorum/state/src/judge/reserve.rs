//! Reservation commands: nodes reserved for users and projects during a time window.

use super::{Case, audited, invalid, trust::check_reason};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    NodeId, Refusal, Revision,
    audit::AuditAction,
    hostlist,
    id::ReservationName,
    reservation::{MAX_RESERVATIONS, Reservation, ReservationSpec},
};

/// Longest user name, bytes.
const MAX_USER_BYTES: usize = 256;
/// Maximum number of users, and of projects, of one reservation.
const MAX_NAMED: usize = 1000;
/// Maximum number of nodes of one reservation.
const MAX_NODES: usize = 100_000;

/// Creates or replaces a reservation.
pub(super) fn set(
    case: Case<'_>,
    name: &ReservationName,
    spec: &ReservationSpec,
    expected: Option<Revision>,
) -> Result<Verdict, Refusal> {
    let present = case.state.reservations.get(name);
    let current = present.map_or(Revision(0), |present| present.revision);
    if let Some(expected) = expected.filter(|expected| *expected != current) {
        let name = name.clone();
        return Err(Refusal::ReservationChanged {
            name,
            expected,
            current,
        });
    }
    if present.is_some_and(|present| present.spec == *spec) {
        return Ok(Verdict::unchanged());
    }
    if present.is_none() && case.state.reservations.all().len() >= MAX_RESERVATIONS {
        let reason = format!("there are {MAX_RESERVATIONS} reservations already; delete old ones");
        return Err(invalid("name", reason));
    }
    check(case, spec)?;
    let action = AuditAction::ReservationSet {
        name: name.clone(),
        nodes: spec.nodes.iter().cloned().collect(),
        before: present.map_or_else(Vec::new, |present| lines(&present.spec)),
        after: lines(spec),
    };
    let record = Reservation {
        name: name.clone(),
        spec: spec.clone(),
        by: case.principal.name.clone(),
        revision: Revision(0),
    };
    let changes = vec![Change::Reservation(Box::new(record))];
    Ok(Verdict::done(audited(case, action, changes)))
}

fn check(case: Case<'_>, spec: &ReservationSpec) -> Result<(), Refusal> {
    let ReservationSpec {
        nodes,
        from,
        until,
        users,
        projects,
        reason,
    } = spec;
    if nodes.is_empty() || nodes.len() > MAX_NODES {
        return Err(invalid("nodes", format!("name 1 to {MAX_NODES} nodes")));
    }
    for node in nodes {
        if !case.state.nodes.contains_key(node) {
            return Err(Refusal::UnknownNode { node: node.clone() });
        }
    }
    if let Some(until) = until {
        if until <= from {
            return Err(invalid("until", "it must be after `from`"));
        }
        if *until <= case.now {
            return Err(invalid("until", "it has passed"));
        }
    }
    if users.len() > MAX_NAMED || projects.len() > MAX_NAMED {
        let reason = format!("name {MAX_NAMED} at most");
        let field = if users.len() > MAX_NAMED {
            "users"
        } else {
            "projects"
        };
        return Err(invalid(field, reason));
    }
    let is_name = |user: &&String| !(user.is_empty() || user.chars().any(char::is_control));
    if let Some(user) = users
        .iter()
        .find(|user| !is_name(user) || user.len() > MAX_USER_BYTES)
    {
        let reason = format!("{user:?} is not a valid user name");
        return Err(invalid("users", reason));
    }
    for project in projects {
        case.state.tree.require(project)?;
    }
    check_reason(reason)
}

fn lines(spec: &ReservationSpec) -> Vec<String> {
    let nodes: Vec<NodeId> = spec.nodes.iter().cloned().collect();
    let users: Vec<&str> = spec.users.iter().map(String::as_str).collect();
    let projects: Vec<&str> = spec.projects.iter().map(|path| path.as_str()).collect();
    let until = spec.until.map_or("deleted".to_owned(), |at| at.to_string());
    vec![
        format!("nodes: {}", hostlist::fold(&nodes)),
        format!("from: {}", spec.from),
        format!("until: {until}"),
        format!("users: {}", users.join(", ")),
        format!("projects: {}", projects.join(", ")),
        format!("reason: {}", spec.reason),
    ]
}

/// Deletes a reservation.
pub(super) fn delete(case: Case<'_>, name: &ReservationName) -> Result<Verdict, Refusal> {
    let present = case.state.reservations.get(name);
    let unknown = || Refusal::UnknownReservation { name: name.clone() };
    let present = present.ok_or_else(unknown)?;
    let action = AuditAction::ReservationDeleted {
        name: name.clone(),
        nodes: present.spec.nodes.iter().cloned().collect(),
    };
    let changes = vec![Change::DeleteReservation(name.clone())];
    Ok(Verdict::done(audited(case, action, changes)))
}
