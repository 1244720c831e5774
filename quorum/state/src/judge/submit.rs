//! Submission: the first of the two limit checks (`admission.rs`).

use super::{
    Case,
    admission::{check_feasible, check_submit},
    invalid, terms, vcluster,
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Allocation, AllocationId, AllocationState, Outcome, Refusal, Revision, UnixMillis,
    array::IndexSet,
    event::AllocationChange,
    limit::OnLimit,
    progress::{AllocationProgress, Tally},
    spec::{AllocationSpec, MAX_WORKLOAD_BYTES, OutputFiles},
    text::counted,
};
use std::collections::BTreeSet;

/// Highest priority class.
const MAX_CLASS: u8 = 10;
/// Longest display name, bytes: it is printed in tables and kept for ever.
const MAX_NAME_BYTES: usize = 256;
/// Longest path of an output file, bytes: the limit of Linux.
const MAX_PATH_BYTES: usize = 4096;

/// Accepts an allocation that fits the limits with the committed usage or, if it may wait for headroom, the limits
/// themselves. `on_limit` is the handling that the request states; `None`: that of the tenant. Pending allocations hold
/// nothing, so assignment checks again.
pub(super) fn submit(
    case: Case<'_>,
    spec: &AllocationSpec,
    on_limit: Option<OnLimit>,
) -> Result<Verdict, Refusal> {
    check_fields(spec)?;
    terms::check(case, spec)?;
    match terms::is_blocked(case, spec)? {
        false => {
            let of_tenant = || case.state.on_limit(&spec.project.tenant());
            check_submit(case, spec, on_limit.unwrap_or_else(of_tenant))?;
        }
        // The limits are checked again once the allocation is eligible; it waits until the limits allow it.
        true => check_feasible(case, spec)?,
    }
    check_references(case, spec)?;
    let id = AllocationId(case.state.last_id + 1);
    Ok(Verdict {
        outcome: Outcome::Submitted { id },
        changes: vec![submit_change(case, id, spec.clone())],
    })
}

/// Checks that the vCluster exists and serves the project, and that the listed nodes exist.
pub(super) fn check_references(case: Case<'_>, spec: &AllocationSpec) -> Result<(), Refusal> {
    let state = case.state;
    state.vclusters.check_use(&spec.vcluster, &spec.project)?;
    vcluster::check_exists(case, &spec.vcluster)?;
    for node in &spec.constraints.nodelist {
        if !state.nodes.contains_key(node) {
            return Err(Refusal::UnknownNode { node: node.clone() });
        }
    }
    Ok(())
}

/// Record of a new allocation. `follow.rs` determines afterwards whether the allocation waits for dependencies.
pub(super) fn submit_change(case: Case<'_>, id: AllocationId, spec: AllocationSpec) -> Change {
    let tally = spec.terms.array.as_ref().map(|array| {
        let indices = array.indices().clone();
        let (mut pending, mut blocked) = (IndexSet::new(), IndexSet::new());
        // Elements without a dependency of their own become pending in the same command (`follow/array.rs`).
        match spec.terms.after.is_empty() {
            true => pending = indices,
            false => blocked = indices,
        }
        Box::new(Tally {
            pending,
            blocked,
            ..Tally::default()
        })
    });
    let begin_at = spec.terms.begin_at.unwrap_or(UnixMillis(0));
    let state = match spec.hold {
        true => AllocationState::Held,
        false => AllocationState::Pending,
    };
    let record = Box::new(Allocation {
        id,
        user: case.principal.name.clone(),
        spec,
        state,
        state_since: case.now,
        submitted_at: case.now,
        eligible_at: case.now.max(begin_at),
        started_at: None,
        ended_at: None,
        attempt: 0,
        ranks: Vec::new(),
        stop: None,
        revision: Revision(0),
        progress: AllocationProgress {
            tally,
            ..AllocationProgress::default()
        },
    });
    let change = AllocationChange::Submitted;
    Change::Allocation { change, record }
}

/// Rejects fields that are invalid in every state.
pub(super) fn check_fields(spec: &AllocationSpec) -> Result<(), Refusal> {
    if spec.nodes == 0 {
        return Err(invalid("nodes", "request at least 1 node"));
    }
    if spec.workload.argv.is_empty() && spec.workload.script.is_none() {
        return Err(invalid(
            "workload",
            "nothing to run; give a command or a script",
        ));
    }
    let bytes = spec.workload.bytes();
    if bytes > MAX_WORKLOAD_BYTES {
        return Err(invalid(
            "workload",
            format!(
                "script, arguments and environment are {bytes} bytes, more than \
                 {MAX_WORKLOAD_BYTES}; put the rest into a file that the nodes can read"
            ),
        ));
    }
    if spec.class > MAX_CLASS {
        let reason = format!(
            "{} is not a valid priority class; use 0 to {MAX_CLASS}",
            spec.class
        );
        return Err(invalid("class", reason));
    }
    if spec.walltime_ms == Some(0) {
        return Err(invalid("walltime_ms", "give a longer walltime, or none"));
    }
    if spec
        .name
        .as_ref()
        .is_some_and(|name| name.len() > MAX_NAME_BYTES)
    {
        return Err(invalid(
            "name",
            format!("use at most {MAX_NAME_BYTES} bytes"),
        ));
    }
    if spec
        .name
        .as_ref()
        .is_some_and(|name| name.chars().any(char::is_control))
    {
        return Err(invalid("name", "must not contain control characters"));
    }
    check_output(spec)?;
    (spec.demand.check())
        .map_err(|error| invalid(&format!("demand.{}", error.field()), error.to_string()))?;
    let wanted: BTreeSet<_> = spec.constraints.nodelist.iter().collect();
    let excluded: BTreeSet<_> = spec.constraints.exclude.iter().collect();
    let usable = wanted.difference(&excluded).count();
    if !wanted.is_empty() && usable < spec.nodes as usize {
        let usable = counted(usable as u64, "eligible node");
        let reason = format!("{usable}, but {} needed", spec.nodes);
        return Err(invalid("constraints.nodelist", reason));
    }
    Ok(())
}

/// Rejects output files that no node could open.
fn check_output(spec: &AllocationSpec) -> Result<(), Refusal> {
    let output = &spec.workload.output;
    let files = [
        ("workload.output.stdout", &output.stdout),
        ("workload.output.stderr", &output.stderr),
    ];
    for (field, file) in files {
        let Some(file) = file else { continue };
        if file.len() > MAX_PATH_BYTES {
            return Err(invalid(
                field,
                format!("use {MAX_PATH_BYTES} bytes at most"),
            ));
        }
        if file.chars().any(char::is_control) {
            return Err(invalid(field, "must not contain control characters"));
        }
        OutputFiles::check(file, spec.terms.array.is_some())
            .map_err(|error| invalid(field, error.to_string()))?;
    }
    Ok(())
}
