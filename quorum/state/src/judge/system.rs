//! What holds for the whole cluster: its own limits, and what a limit means.

use super::{Case, audited};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Refusal,
    audit::{AuditAction, ChangedLimit},
    limit::{LimitPolicy, SystemLimitPatch},
    project::Project,
    view::SystemView,
};

/// Changes limits of the whole cluster. They may go below what is used: nothing is taken away, and
/// nothing is added until there is room again.
pub(super) fn set_limits(case: Case<'_>, patch: &SystemLimitPatch) -> Result<Verdict, Refusal> {
    let before = case.state.system();
    let limits = before.limits.patched(patch);
    if limits == before.limits {
        return Ok(Verdict::nothing());
    }
    let action = AuditAction::SystemLimitsChanged {
        limits: vec![ChangedLimit {
            name: "sensitive_pool_size".to_owned(),
            before: before.limits.sensitive_pool_size,
            after: limits.sensitive_pool_size,
        }],
    };
    let changes = vec![Change::System(SystemView { limits, ..before })];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Another policy is followed from now on, if the tree as it is obeys it.
pub(super) fn set_policy(case: Case<'_>, limit_policy: LimitPolicy) -> Result<Verdict, Refusal> {
    let before = case.state.system();
    if limit_policy == before.limit_policy {
        return Ok(Verdict::nothing());
    }
    let faults = case.state.tree.faults(limit_policy);
    if !faults.is_empty() {
        return Err(Refusal::LimitConflict { faults });
    }
    let action = AuditAction::LimitPolicyChanged {
        before: before.limit_policy.to_string(),
        after: limit_policy.to_string(),
    };
    let mut changes = vec![Change::System(SystemView {
        limit_policy,
        ..before
    })];
    // What the tree obeys overbooks nothing by it.
    let records = case.state.tree.iter().map(|entry| &entry.record);
    let marked = records.filter(|record| record.overcommitted);
    changes.extend(marked.map(|record| {
        Change::Project(Box::new(Project {
            overcommitted: false,
            ..record.clone()
        }))
    }));
    Ok(Verdict::done(audited(case, action, changes)))
}
