//! DAG commands: submission and cancellation of all members together.

use super::{
    Case,
    access::forbidden,
    admission::check_feasible,
    ending::end_for_good,
    invalid,
    submit::{check_fields, check_references, submit_change},
    terms,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, Outcome, Refusal, Revision,
    allocation::StopCause,
    command::Privilege,
    dag::{Dag, DagMember, DagSpec, DagState, MAX_EDGES, MAX_MEMBERS, MAX_NAME_BYTES, MemberSpec},
    id::DagId,
    progress::DagMembership,
    spec::AllocationSpec,
    terms::{Condition, Dependency, MAX_DEPENDENCIES},
};
use std::collections::BTreeMap;

/// Accepts all members or none; each must fit by itself if nothing else ran. Members get the ids after that of the DAG,
/// in the order in which the spec names them.
pub(super) fn submit(case: Case<'_>, asked: &DagSpec) -> Result<Verdict, Refusal> {
    check_name("name", &asked.name, true)?;
    let places = member_positions(asked)?;
    let edges = edges(asked, &places)?;
    check_acyclic(asked, &edges)?;
    for (place, member) in asked.members.iter().enumerate() {
        check_member(case, asked, member, &edges[place])?;
    }
    let id = DagId(case.state.last_id + 1);
    let numbers = member_ids(id, asked);
    let mut changes = Vec::with_capacity(asked.members.len() + 1);
    for (place, member) in asked.members.iter().enumerate() {
        let spec = with_edges(&member.spec, &edges[place], &numbers);
        let mut change = submit_change(case, numbers[place], spec);
        if let Change::Allocation { record, .. } = &mut change {
            record.progress.dag = Some(DagMembership {
                dag: id,
                member: member.name.clone(),
            });
        }
        changes.push(change);
    }
    let members = (asked.members.iter().zip(&numbers).zip(edges))
        .map(|((member, allocation), after)| DagMember {
            name: member.name.clone(),
            allocation: *allocation,
            after,
        })
        .collect();
    changes.push(Change::Dag(Box::new(Dag {
        id,
        name: asked.name.clone(),
        user: case.principal.name.clone(),
        project: asked.members[0].spec.project.clone(),
        unfinished: u32::try_from(asked.members.len()).unwrap_or(u32::MAX),
        members,
        state: DagState::Running,
        submitted_at: case.now,
        ended_at: None,
        cancelled_by: None,
        failed: None,
        revision: Revision(0),
    })));
    Ok(Verdict {
        outcome: Outcome::DagSubmitted { id },
        changes,
    })
}

/// Ids of the members. The ids of an array's elements follow the id of the array.
fn member_ids(id: DagId, asked: &DagSpec) -> Vec<AllocationId> {
    let mut last = AllocationId(id.0);
    let number = |member: &MemberSpec| {
        let own = AllocationId(last.0 + 1);
        let array = member.spec.terms.array.as_ref();
        last = array.map_or(own, |array| array.numbers(own).last());
        own
    };
    asked.members.iter().map(number).collect()
}

fn with_edges(
    spec: &AllocationSpec,
    edges: &[(u32, Condition)],
    numbers: &[AllocationId],
) -> AllocationSpec {
    let mut spec = spec.clone();
    let inner = edges.iter().map(|(place, condition)| Dependency {
        on: numbers[*place as usize],
        condition: *condition,
    });
    spec.terms.after.extend(inner);
    spec
}

fn check_name(field: &str, name: &str, may_be_empty: bool) -> Result<(), Refusal> {
    if name.is_empty() && !may_be_empty {
        return Err(invalid(field, "must not be empty"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(invalid(
            field,
            format!("use {MAX_NAME_BYTES} bytes at most"),
        ));
    }
    match name.chars().any(char::is_control) {
        true => Err(invalid(field, "must not contain control characters")),
        false => Ok(()),
    }
}

/// Position of each member, by member name.
fn member_positions(asked: &DagSpec) -> Result<BTreeMap<&str, usize>, Refusal> {
    if asked.members.is_empty() {
        let reason = "a DAG must have at least one member";
        return Err(invalid("members", reason));
    }
    if asked.members.len() > MAX_MEMBERS {
        return Err(Refusal::DagTooLarge {
            members: asked.members.len() as u64,
            limit: MAX_MEMBERS as u64,
        });
    }
    let mut places = BTreeMap::new();
    for (place, member) in asked.members.iter().enumerate() {
        check_name(&format!("members[{place}].name"), &member.name, false)?;
        if places.insert(member.name.as_str(), place).is_some() {
            let reason = format!("two members have the name {:?}", member.name);
            return Err(invalid(&format!("members[{place}].name"), reason));
        }
    }
    Ok(places)
}

/// Incoming edges of each member.
fn edges(
    asked: &DagSpec,
    places: &BTreeMap<&str, usize>,
) -> Result<Vec<Vec<(u32, Condition)>>, Refusal> {
    let count: usize = asked.members.iter().map(|member| member.after.len()).sum();
    if count > MAX_EDGES {
        let reason = format!("the DAG has {count} edges; at most {MAX_EDGES} are allowed");
        return Err(invalid("members", reason));
    }
    let mut all = Vec::with_capacity(asked.members.len());
    for member in &asked.members {
        let mut before = Vec::with_capacity(member.after.len());
        for edge in &member.after {
            let field = format!("members.{}.after", member.name);
            let Some(place) = places.get(edge.member.as_str()) else {
                let reason = format!("no member has the name {:?}", edge.member);
                return Err(invalid(&field, reason));
            };
            let edge = (u32::try_from(*place).unwrap_or(u32::MAX), edge.condition);
            if before.contains(&edge) {
                let reason = format!("{} is named twice", asked.members[*place].name);
                return Err(invalid(&field, reason));
            }
            let against = |other: &(u32, Condition)| other.0 == edge.0 && other.1.excludes(edge.1);
            if before.iter().any(against) {
                let reason = format!(
                    "the conditions on {} exclude each other (success and failure); remove one, or use \
                     the condition any",
                    asked.members[*place].name
                );
                return Err(invalid(&field, reason));
            }
            before.push(edge);
        }
        all.push(before);
    }
    Ok(all)
}

/// Rejects a cycle: repeatedly removes members without remaining predecessors until none is left.
fn check_acyclic(asked: &DagSpec, edges: &[Vec<(u32, Condition)>]) -> Result<(), Refusal> {
    let mut waits: Vec<usize> = edges.iter().map(Vec::len).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); edges.len()];
    for (place, before) in edges.iter().enumerate() {
        for (other, _) in before {
            after[*other as usize].push(place);
        }
    }
    let mut free: Vec<usize> = (0..edges.len())
        .filter(|place| waits[*place] == 0)
        .collect();
    while let Some(place) = free.pop() {
        for next in std::mem::take(&mut after[place]) {
            waits[next] -= 1;
            if waits[next] == 0 {
                free.push(next);
            }
        }
    }
    // Each remaining member has a remaining predecessor, so a walk backwards visits one member twice.
    let Some(start) = waits.iter().position(|left| *left > 0) else {
        return Ok(());
    };
    let mut way = vec![start];
    let cycle = loop {
        let here = way[way.len() - 1];
        let mut before = edges[here].iter().map(|(other, _)| *other as usize);
        let Some(next) = before.find(|other| waits[*other] > 0) else {
            return Ok(());
        };
        match way.iter().position(|met| *met == next) {
            Some(at) => break way.split_off(at),
            None => way.push(next),
        }
    };
    let mut names: Vec<&str> = cycle
        .iter()
        .rev()
        .map(|place| asked.members[*place].name.as_str())
        .collect();
    names.push(names[0]);
    let reason = format!("the members wait for each other: {}", names.join(" -> "));
    Err(invalid("members", reason))
}

fn check_member(
    case: Case<'_>,
    asked: &DagSpec,
    member: &MemberSpec,
    edges: &[(u32, Condition)],
) -> Result<(), Refusal> {
    let named = |refusal| match refusal {
        Refusal::Invalid { field, reason } => {
            invalid(&format!("members.{}.{field}", member.name), reason)
        }
        other => Refusal::OfMember {
            member: member.name.clone(),
            refusal: Box::new(other),
        },
    };
    let spec = &member.spec;
    check_fields(spec).map_err(named)?;
    terms::check(case, spec).map_err(named)?;
    check_feasible(case, spec).map_err(named)?;
    check_references(case, spec).map_err(named)?;
    if edges.len() + spec.terms.after.len() > MAX_DEPENDENCIES {
        let reason = format!("the member has more than {MAX_DEPENDENCIES} dependencies");
        return Err(named(invalid("after", reason)));
    }
    let tenant = asked.members[0].spec.project.tenant();
    if spec.project.tenant() != tenant {
        let reason = format!(
            "all members must belong to one tenant; the first member belongs to \"{tenant}\""
        );
        return Err(named(invalid("project", reason)));
    }
    let is_array = |spec: &AllocationSpec| spec.terms.array.is_some();
    for (other, condition) in edges {
        let other = &asked.members[*other as usize];
        if *condition == Condition::Corresponding && is_array(spec) != is_array(&other.spec) {
            let reason = format!(
                "the condition corresponding needs two job arrays, or two allocations that are not \
                 job arrays; {} does not match; use the condition success",
                other.name
            );
            return Err(named(invalid("after", reason)));
        }
    }
    Ok(())
}

/// Cancels all members of a running DAG that have not ended.
pub(super) fn cancel(case: Case<'_>, id: DagId) -> Result<Verdict, Refusal> {
    let dag = case.state.dags.live(id).ok_or(Refusal::UnknownDag { id })?;
    let by = case.principal.name.clone();
    if case.principal.privilege == Privilege::User && by != dag.user {
        return Err(forbidden(
            case.principal,
            "the user that submitted the DAG, or the role operator or admin",
        ));
    }
    let cause = StopCause::DagCancelled { by };
    let mut changes = Vec::new();
    for member in &dag.members {
        let Some(present) = case.state.hot.get(&member.allocation) else {
            continue;
        };
        let present: &Allocation = present;
        changes.extend(end_for_good(case, present, &cause));
    }
    Ok(Verdict::done(changes))
}
