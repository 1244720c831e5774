//! Admission: usage of one more allocation, and the limits, credit and times that it must fit.

use super::{Case, invalid};
use lattice_quorum_types::{
    Allocation, NodeId, Refusal,
    limit::{OnLimit, Usage},
    refusal::LimitRequest,
    spec::AllocationSpec,
};

/// Usage of one more allocation of this size.
pub(super) fn full_usage(spec: &AllocationSpec) -> Usage {
    Usage {
        nodes: u64::from(spec.nodes),
        allocations: 1,
    }
}

/// Usage of one more allocation, less `own` nodes that are already counted for its user.
pub(super) fn usage_beyond_claimed(spec: &AllocationSpec, own: usize) -> Usage {
    let whole = full_usage(spec);
    let nodes = whole.nodes.saturating_sub(own as u64);
    Usage { nodes, ..whole }
}

/// Checks that the allocation would fit an idle cluster and unused limits.
pub(super) fn check_feasible(case: Case<'_>, spec: &AllocationSpec) -> Result<(), Refusal> {
    let state = case.state;
    let usage = full_usage(spec);
    let path = &spec.project;
    state.tree.check_feasible(state.policy, path, usage)?;
    let pool = state.sensitive_pool();
    match pool.size {
        Some(limit) if spec.sensitive && usage.nodes > limit => Err(Refusal::SensitivePool {
            current: pool.used,
            requested: usage.nodes,
            limit,
        }),
        _ => check_size(case, spec),
    }
}

/// First limit check: the project is not paused, the allocation fits the committed usage and the pool for sensitive
/// allocations, and the cluster has enough nodes.
pub(super) fn check_admission(
    case: Case<'_>,
    user: &str,
    spec: &AllocationSpec,
    asked: LimitRequest,
) -> Result<(), Refusal> {
    let state = case.state;
    check_not_paused(case, spec)?;
    let usage = usage_beyond_claimed(spec, claimed_nodes(case, user, spec));
    state
        .tree
        .check_fits(state.policy, &spec.project, usage, asked)?;
    if spec.sensitive {
        state.check_sensitive_pool(usage.nodes)?;
    }
    check_size(case, spec)
}

/// First limit check of a submit. With [`OnLimit::Wait`], a request that fits the limits themselves, but not with the
/// present usage, is accepted: it holds nothing, and assignment enforces the limits (`assign.rs`).
pub(super) fn check_submit(
    case: Case<'_>,
    spec: &AllocationSpec,
    on_limit: OnLimit,
) -> Result<(), Refusal> {
    let user = &case.principal.name;
    match check_admission(case, user, spec, LimitRequest::Allocation) {
        Err(Refusal::LimitExceeded { .. } | Refusal::SensitivePool { .. })
            if on_limit == OnLimit::Wait =>
        {
            check_feasible(case, spec)
        }
        other => other,
    }
}

/// Rejects an allocation in a project or vCluster that the accounting system has paused with a credit that is still
/// valid.
pub(super) fn check_not_paused(case: Case<'_>, spec: &AllocationSpec) -> Result<(), Refusal> {
    let budget = case.state.budgets.get(&spec.project.tenant());
    let credit = budget.and_then(|budget| budget.credit_at(case.now));
    match credit.is_some_and(|credit| credit.pauses(&spec.project, &spec.vcluster)) {
        true => Err(Refusal::Paused {
            project: spec.project.clone(),
            vcluster: spec.vcluster.clone(),
        }),
        false => Ok(()),
    }
}

/// Rejects an allocation with an earliest begin time in the future.
pub(super) fn check_begin(case: Case<'_>, present: &Allocation) -> Result<(), Refusal> {
    match present.spec.terms.begin_at {
        Some(begin_at) if begin_at > case.now => {
            let reason = format!(
                "allocation {} starts at {begin_at} at the earliest",
                present.name()
            );
            Err(invalid("id", reason))
        }
        _ => Ok(()),
    }
}

fn check_size(case: Case<'_>, spec: &AllocationSpec) -> Result<(), Refusal> {
    let (requested, registered) = (spec.nodes, case.state.registered);
    match u64::from(requested) > registered {
        true => Err(Refusal::TooLarge {
            requested,
            registered,
        }),
        false => Ok(()),
    }
}

/// Number of idle nodes that the user has claimed for such allocations, up to the requested number. Usage counts these
/// nodes already.
fn claimed_nodes(case: Case<'_>, user: &str, spec: &AllocationSpec) -> usize {
    if !spec.sensitive {
        return 0;
    }
    let state = case.state;
    let own = state.node_claims.open_to(user, &spec.project);
    let counts = |id: &&NodeId| {
        let node = state.nodes.get(*id);
        node.is_some_and(|node| node.claim_project().is_some() && node.current == spec.vcluster)
    };
    own.filter(counts).take(spec.nodes as usize).count()
}
