//! Checks of submitted terms: dependencies, mutex, times, arrays, checkpoints, scaling, reservation.

use super::{
    Case,
    array::index_of,
    element::{self, array_of_unplaced},
    invalid,
};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Refusal,
    checkpoint::{self, CheckpointMode, InvalidCheckpoint},
    spec::AllocationSpec,
    terms::{CheckpointTerms, Condition, Dependency, MAX_DEPENDENCIES, MAX_TERM_BYTES, Terms},
};
use std::collections::BTreeSet;

/// Rejects terms that are invalid in every state, or that this state can never satisfy.
pub(super) fn check(case: Case<'_>, spec: &AllocationSpec) -> Result<(), Refusal> {
    check_fields(case, spec)?;
    check_after(case, spec)?;
    let Some(name) = &spec.terms.reservation else {
        return Ok(());
    };
    let found = case.state.reservations.get(name);
    let unknown = || Refusal::UnknownReservation { name: name.clone() };
    let reservation = &found.ok_or_else(unknown)?.spec;
    if !reservation.permits(&case.principal.name, &spec.project) {
        let (user, project) = (&case.principal.name, &spec.project);
        let reason = format!("reservation {name} is not open to {user} in project \"{project}\"");
        return Err(invalid("reservation", reason));
    }
    if reservation.nodes.len() < spec.nodes as usize {
        let (has, asked) = (reservation.nodes.len(), spec.nodes);
        let reason = format!("reservation {name} has {has} nodes; {asked} were requested");
        return Err(invalid("reservation", reason));
    }
    Ok(())
}

fn check_fields(case: Case<'_>, spec: &AllocationSpec) -> Result<(), Refusal> {
    let Terms {
        after: _,
        mutex,
        begin_at,
        deadline_at,
        array,
        checkpoint,
        scale,
        reservation: _,
    } = &spec.terms;
    if let Some(mutex) = mutex {
        check_text("mutex", mutex)?;
    }
    if let Some(deadline_at) = *deadline_at {
        let starts = begin_at.unwrap_or(case.now).max(case.now);
        let ends = starts.after(spec.walltime_ms.unwrap_or(0));
        if deadline_at < ends || deadline_at <= case.now {
            let reason = "the allocation cannot end before the deadline; give a later deadline, a \
                          shorter walltime, or an earlier begin";
            return Err(invalid("deadline", reason));
        }
    }
    if array.is_some() && spec.sensitive {
        let reason = "sensitive allocations cannot be arrays: submit each one separately";
        return Err(invalid("array", reason));
    }
    if let Some(terms) = checkpoint {
        check_checkpoint(terms)?;
    }
    if let Some(scale) = scale {
        scale
            .check()
            .map_err(|error| invalid(&format!("scale.{}", error.field), error.reason))?;
        if array.is_some() || spec.sensitive {
            let reason = "neither arrays nor sensitive allocations scale by a metric";
            return Err(invalid("scale", reason));
        }
        if spec.nodes != scale.min_nodes {
            let (nodes, least) = (spec.nodes, scale.min_nodes);
            let reason = format!("it starts with scale.min_nodes, {least}, not with {nodes}");
            return Err(invalid("nodes", reason));
        }
    }
    Ok(())
}

fn check_text(field: &str, text: &str) -> Result<(), Refusal> {
    if text.is_empty() || text.len() > MAX_TERM_BYTES {
        return Err(invalid(field, format!("use 1 to {MAX_TERM_BYTES} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid(field, "must not contain control characters"));
    }
    Ok(())
}

fn check_checkpoint(terms: &CheckpointTerms) -> Result<(), Refusal> {
    let Some(directory) = &terms.directory else {
        return Ok(());
    };
    check_directory("checkpoint.directory", directory, terms.mode)
}

/// Checks the directory of a job checkpoint.
pub(super) fn check_directory(
    field: &str,
    directory: &str,
    mode: CheckpointMode,
) -> Result<(), Refusal> {
    checkpoint::check_directory(directory, mode).map_err(|error| {
        let reason = match error {
            InvalidCheckpoint::Directory { reason, .. } => reason.to_owned(),
            other => other.to_string(),
        };
        invalid(field, reason)
    })
}

fn check_after(case: Case<'_>, spec: &AllocationSpec) -> Result<(), Refusal> {
    let after = &spec.terms.after;
    if after.len() > MAX_DEPENDENCIES {
        let given = after.len();
        let reason = format!("{given} allocations are named; {MAX_DEPENDENCIES} at most");
        return Err(invalid("dependencies", reason));
    }
    let mut seen = BTreeSet::new();
    for dependency in after {
        if !seen.insert(dependency) {
            let on = element::name_of(case, dependency.on);
            let reason = format!("allocation {on} is named twice");
            return Err(invalid("dependencies", reason));
        }
        check_dependency(case, spec, dependency)?;
    }
    Ok(())
}

fn check_dependency(
    case: Case<'_>,
    spec: &AllocationSpec,
    dependency: &Dependency,
) -> Result<(), Refusal> {
    let Dependency { on, condition } = *dependency;
    let of_array = condition == Condition::Corresponding && spec.terms.array.is_some();
    let other = awaited_allocation(case, on)?;
    let on = element::name_of(case, on);
    if of_array && other.is_array.is_none() {
        // The final states of its elements are no longer in memory.
        let reason = format!(
            "allocation {on} ended long ago, and the states of its elements are no longer in \
             memory; name the elements as dependencies"
        );
        return Err(invalid("dependencies", reason));
    }
    let is_array = spec.terms.array.is_some();
    let differs = other.is_array.is_some_and(|other| other != is_array);
    if condition == Condition::Corresponding && differs {
        let reason = format!(
            "the condition corresponding needs two job arrays, or two allocations that are not job \
             arrays; allocation {on} does not match; use the condition success"
        );
        return Err(invalid("dependencies", reason));
    }
    match other.ended {
        // Each index has its own dependency.
        _ if of_array => Ok(()),
        Some(ended) if condition.is_met(ended) == Some(false) => {
            let reason = format!(
                "allocation {on} was {ended}; the condition {condition} can no longer be met"
            );
            Err(invalid("dependencies", reason))
        }
        _ => Ok(()),
    }
}

/// Returns whether a new allocation must wait: for an unmet dependency, or for a mutex that another allocation holds.
/// An array with element-wise dependencies waits.
pub(super) fn is_blocked(case: Case<'_>, spec: &AllocationSpec) -> Result<bool, Refusal> {
    for Dependency { on, condition } in &spec.terms.after {
        let of_array = *condition == Condition::Corresponding && spec.terms.array.is_some();
        let ended = awaited_allocation(case, *on)?.ended.filter(|_| !of_array);
        if ended.is_none_or(|ended| condition.is_met(ended) != Some(true)) {
            return Ok(true);
        }
    }
    let Some(mutex) = &spec.terms.mutex else {
        return Ok(false);
    };
    let mut holders = (case.state.order).mutex_holders(&case.principal.name, mutex);
    Ok(holders.next().is_some())
}

/// Allocation named in a dependency.
struct AwaitedAllocation {
    /// `None`: the allocation ended long ago, and its record is no longer in memory.
    is_array: Option<bool>,
    ended: Option<AllocationState>,
}

fn awaited_allocation(case: Case<'_>, on: AllocationId) -> Result<AwaitedAllocation, Refusal> {
    let state = case.state;
    let is_array = |record: &Allocation| record.spec.terms.array.is_some();
    if let Some(record) = state.hot.get(&on) {
        return Ok(AwaitedAllocation {
            is_array: Some(is_array(record)),
            ended: None,
        });
    }
    if let Some(ended) = state.archive.ended(on) {
        return Ok(AwaitedAllocation {
            is_array: state.archive.get(on).map(is_array),
            ended: Some(ended.state()),
        });
    }
    let unknown = Refusal::UnknownAllocation { id: on };
    let array = array_of_unplaced(case, on).ok_or(unknown)?;
    let tally = array.progress.tally.as_ref();
    let index = index_of(array, on);
    let cancelled = index
        .zip(tally)
        .is_some_and(|(index, tally)| tally.cancelled.contains(index));
    Ok(AwaitedAllocation {
        is_array: Some(false),
        ended: cancelled.then_some(AllocationState::Cancelled),
    })
}
