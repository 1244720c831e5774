//! Cluster-wide limits and the limit policy.

use super::{Case, audited};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    Refusal,
    audit::{AuditAction, ChangedLimit},
    limit::SystemLimitPatch,
    limit_policy::{LimitPolicy, SystemView},
    project::Project,
    refusal::SENSITIVE_POOL_LIMIT,
};

/// Changes cluster-wide limits. A limit may go below usage: no allocation is stopped, and none that counts against the
/// limit starts until usage is below the limit.
pub(super) fn set_limits(case: Case<'_>, patch: &SystemLimitPatch) -> Result<Verdict, Refusal> {
    let before = case.state.system();
    let limits = before.limits.patched(patch);
    if limits == before.limits {
        return Ok(Verdict::unchanged());
    }
    let action = AuditAction::SystemLimitsChanged {
        limits: vec![ChangedLimit {
            name: SENSITIVE_POOL_LIMIT.to_owned(),
            before: before.limits.sensitive_pool_size,
            after: limits.sensitive_pool_size,
        }],
    };
    let changes = vec![Change::System(SystemView { limits, ..before })];
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Sets the limit policy, if the present project tree conforms to it.
pub(super) fn set_policy(case: Case<'_>, limit_policy: LimitPolicy) -> Result<Verdict, Refusal> {
    let before = case.state.system();
    if limit_policy == before.limit_policy {
        return Ok(Verdict::unchanged());
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
    // A tree that conforms to the policy has no overcommitted level.
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
