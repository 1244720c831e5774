//! Explanation of an allocation's state.

use lattice_api::{
    allocation::{WorkloadAccess, stop_reason},
    explanation::{ExplanationView, FactorView, ScoreView, StepView},
    text::time,
};
use lattice_placement::{Explanation, Score, Weights};
use lattice_quorum_types::{Allocation, AllocationState, NameLookup, hostlist, text::counted};
use lattice_view::{LastPlan, View};

/// Reason why a pending, held or blocked allocation waits; `None` in any other state.
pub fn reason(view: &View, plan: &LastPlan, a: &Allocation) -> Option<String> {
    match a.state {
        AllocationState::Pending => Some(match last_explanation(view, plan, a) {
            // The vCluster was deleted, or all its nodes were moved.
            Some(explanation) if explanation.total == 0 => format!(
                "{}; vCluster \"{}\" has no nodes",
                explanation.text(&|id| view.name_of(id)),
                a.spec.vcluster
            ),
            Some(explanation) => explanation.text(&|id| view.name_of(id)),
            None => match array_of(view, a).and_then(reached_element_limit) {
                Some(most) => {
                    let most = counted(u64::from(most), "element");
                    format!("array limit reached: at most {most} at once")
                }
                None => "waits for the next scheduling cycle".to_owned(),
            },
        }),
        AllocationState::Held => Some("on hold".to_owned()),
        AllocationState::Blocked => Some("waits for another allocation".to_owned()),
        _ => None,
    }
}

/// Explanation of the last cycle. For an array and its elements without nodes, only the first elements are in the
/// queue. The explanation of the first one applies to all.
fn last_explanation(view: &View, plan: &LastPlan, a: &Allocation) -> Option<Explanation> {
    let of_first = || {
        let array = array_of(view, a)?;
        let waits = array.progress.tally.as_ref()?.pending.iter().next()?;
        let first = array.element_numbers()?.id_of(waits)?;
        plan.of(&a.spec.vcluster)?.explanation(first)
    };
    plan.explanation(a).or_else(of_first)
}

/// The allocation itself if it is an array, or the array of which it is an element.
fn array_of<'a>(view: &'a View, a: &'a Allocation) -> Option<&'a Allocation> {
    match (&a.progress.tally, &a.progress.element) {
        (Some(_), _) => Some(a),
        (None, Some(element)) => view.allocation(element.array).map(|array| &**array),
        (None, None) => None,
    }
}

/// Maximum number of concurrently running elements, if the array has reached it.
fn reached_element_limit(array: &Allocation) -> Option<u32> {
    let most = array.spec.terms.array.as_ref()?.max_running()?;
    let tally = array.progress.tally.as_ref()?;
    (tally.alive >= most).then_some(most)
}

/// Explanation of an allocation: why it waits, or its state in words. `name`: names of the allocations that caused an
/// end, which the view may no longer have.
pub fn explain(
    view: &View,
    plan: &LastPlan,
    a: &Allocation,
    sight: WorkloadAccess,
    name: NameLookup<'_>,
) -> ExplanationView {
    let cycle = plan.of(&a.spec.vcluster);
    let waits = a.state == AllocationState::Pending;
    let planned = waits.then(|| last_explanation(view, plan, a)).flatten();
    let planned = planned.as_ref();
    let steps = planned.iter().flat_map(|e| &e.steps).map(|step| StepView {
        constraint: step.constraint.as_str().to_owned(),
        removed: step.removed,
        left: step.left,
    });
    ExplanationView {
        allocation: a.id,
        element: a.progress.element.as_ref().map(Into::into),
        state: a.state.to_string(),
        summary: reason(view, plan, a).unwrap_or_else(|| summary(a, sight, name)),
        blocker: planned.map(|e| e.blocker.text(&|id| view.name_of(id))),
        steps: steps.collect(),
        estimated_start: planned.and_then(|e| e.estimated_start).map(time),
        reserved: cycle
            .and_then(|cycle| cycle.reservation(a.id))
            .map(|r| hostlist::fold(&r.nodes)),
        score: planned.and_then(|e| Some(score(e.score?, e.ahead, plan.weights(&a.spec.vcluster)))),
        as_of: planned
            .and(cycle)
            .map(|cycle| time(cycle.explained_at(a.id))),
        // Set for running allocations by the caller, which knows their nodes.
        ends_at: None,
        kill_at: None,
        node_problems: Vec::new(),
    }
}

/// Converts a score for the API. Sum and total are computed from its factors and the given weights.
pub fn score(score: Score, ahead: u32, weights: Weights) -> ScoreView {
    let factors = score.factors;
    let named = Weights::NAMES.into_iter().zip(factors.to_array());
    let rows = named.zip(weights.to_array());
    let factors_shown = rows.map(|((name, value), weight)| FactorView {
        name: name.to_owned(),
        value,
        weight,
    });
    let sum = factors.weighted(&weights);
    let tenant = score.tenant;
    ScoreView {
        factors: factors_shown.collect(),
        sum,
        budget: tenant.budget,
        share: Some(tenant.share),
        accounting: Some(tenant.accounting),
        total: sum * tenant.lowest(),
        ahead,
    }
}

fn summary(a: &Allocation, sight: WorkloadAccess, name: NameLookup<'_>) -> String {
    let nodes = hostlist::fold(a.kept_nodes());
    let since = time(a.state_since);
    let cause = stop_reason(a, sight, name).map_or_else(String::new, |cause| format!(": {cause}"));
    // Writing a checkpoint does not start another attempt.
    let began = a.attempt_began_at().unwrap_or(a.state_since);
    match a.state {
        AllocationState::Starting => format!("starting on {nodes} since {since}"),
        AllocationState::Running => format!("runs on {nodes} since {}", time(began)),
        AllocationState::Checkpointing => {
            format!("runs on {nodes} and writes a checkpoint since {since}")
        }
        AllocationState::Stopping => format!(
            "is being stopped since {since}{cause}; it holds {nodes} until its processes are gone"
        ),
        state => format!("{state} at {since}{cause}"),
    }
}
