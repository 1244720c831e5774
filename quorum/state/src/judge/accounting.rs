//! Accounting commands: soft limits and credits of tenants, acknowledgement of usage records, and months of
//! which totals differ.

use super::{
    Case, audited, invalid,
    projects::{OvercommitMode, set_limits_unchecked},
};
use crate::change::{Change, Verdict};
use lattice_quorum_types::{
    ProjectPath, Refusal,
    accounting_month::{AccountingMonth, MAX_MONTHS, MonthDifferences},
    audit::{AuditAction, ChangedLimit, LevelLimits},
    budget::{Credit, MAX_BURST_PPM, ONE_PPM, SoftLimits, SoftPatch, TenantBudget},
    command::LimitChange,
    limit::{LimitPatch, OnLimit},
    usage_record::UsageRecordKind,
};
use std::collections::BTreeMap;

/// Maximum number of tenants in one `NoteCredits` command.
const MAX_CREDITS: usize = 4096;
/// Longest validity of a credit, milliseconds (7 days).
const MAX_CREDIT_MS: u64 = 7 * 24 * 3600 * 1000;

/// Changes hard and soft limits of a tenant together. Limits that the patches do not name stay unchanged.
pub(super) fn update_tenant(
    case: Case<'_>,
    tenant: &ProjectPath,
    limits: &LimitPatch,
    soft: &SoftPatch,
    force: bool,
) -> Result<Verdict, Refusal> {
    if !tenant.is_tenant() {
        let reason = format!("{tenant} is a project; its tenant is {}", tenant.tenant());
        return Err(invalid("id", reason));
    }
    let record = &case.state.tree.require(tenant)?.record;
    let insist = match force {
        true => OvercommitMode::ByForce,
        false => OvercommitMode::No,
    };
    let change = LimitChange {
        path: tenant.clone(),
        patch: *limits,
    };
    let mut changes = set_limits_unchecked(case, &[change], insist)?.changes;
    let known = case.state.budgets.get(tenant);
    let mut budget = known.map_or_else(|| TenantBudget::new(tenant.clone()), TenantBudget::clone);
    let before = budget.soft;
    budget.soft = before.patched(soft);
    check_soft(&budget.soft)?;
    let after = budget.soft;
    if before != after {
        let levels = vec![LevelLimits {
            project: tenant.clone(),
            limits: changed_soft_limits(&before, &after),
        }];
        changes.push(Change::Budget(Box::new(budget)));
        changes = audited(case, AuditAction::LimitsChanged { levels }, changes);
    }
    if !changes.is_empty() {
        changes.push(Change::UsageRecord(Box::new(
            UsageRecordKind::LimitsChanged {
                tenant: tenant.clone(),
                limits: record.limits.patched(limits),
                soft: after,
                by: case.principal.name.clone(),
            },
        )));
    }
    Ok(Verdict::done(changes))
}

/// Changes the handling of the tenant's submits that do not fit with the present usage, and limits as
/// [`update_tenant`] does.
pub(super) fn set_tenant(
    case: Case<'_>,
    (tenant, limits, soft, force): (&ProjectPath, &LimitPatch, &SoftPatch, bool),
    on_limit: OnLimit,
) -> Result<Verdict, Refusal> {
    let mut changes = update_tenant(case, tenant, limits, soft, force)?.changes;
    let before = case.state.on_limit(tenant);
    if before != on_limit {
        changes.push(Change::OnLimit {
            tenant: tenant.clone(),
            on_limit,
        });
        let levels = vec![LevelLimits {
            project: tenant.clone(),
            limits: vec![ChangedLimit {
                name: OnLimit::NAME.to_owned(),
                before: Some(before.number()),
                after: Some(on_limit.number()),
            }],
        }];
        changes = audited(case, AuditAction::LimitsChanged { levels }, changes);
    }
    Ok(Verdict::done(changes))
}

fn check_soft(soft: &SoftLimits) -> Result<(), Refusal> {
    if soft.fair_share_ppm.is_some_and(|share| share > ONE_PPM) {
        return Err(invalid("fair_share_target", "must be from 0 to 1"));
    }
    let range = ONE_PPM..=MAX_BURST_PPM;
    match soft.burst_ppm.is_some_and(|burst| !range.contains(&burst)) {
        true => Err(invalid(
            "burst_allowance",
            "must be from 1 to 10000 (multiple of the tenant's share)",
        )),
        false => Ok(()),
    }
}

fn changed_soft_limits(before: &SoftLimits, after: &SoftLimits) -> Vec<ChangedLimit> {
    let pairs = before.named().into_iter().zip(after.named());
    let changed = pairs.filter(|((_, was), (_, is))| was != is);
    let limits = changed.map(|((name, before), (_, after))| ChangedLimit {
        name: name.to_owned(),
        before,
        after,
    });
    limits.collect()
}

/// Stores credits reported by an accounting system. Credits of unknown tenants are ignored.
pub(super) fn note_credits(
    case: Case<'_>,
    credits: &BTreeMap<ProjectPath, Credit>,
) -> Result<Verdict, Refusal> {
    if credits.is_empty() || credits.len() > MAX_CREDITS {
        let reason = format!("name 1 to {MAX_CREDITS} tenants");
        return Err(invalid("credits", reason));
    }
    let mut changes = Vec::new();
    for (tenant, credit) in credits {
        if credit.valid_until.since(case.now) > MAX_CREDIT_MS {
            let reason = "a credit is valid for a week at most";
            return Err(invalid("credits", reason));
        }
        if !tenant.is_tenant() || case.state.tree.get(tenant).is_none() {
            continue;
        }
        let known = case.state.budgets.get(tenant);
        let budget = known.map_or_else(|| TenantBudget::new(tenant.clone()), TenantBudget::clone);
        if budget.credit.as_ref() != Some(credit) {
            changes.push(Change::Budget(Box::new(TenantBudget {
                credit: Some(credit.clone()),
                ..budget
            })));
        }
    }
    Ok(Verdict::done(changes))
}

/// Notes that an accounting system has the usage records up to `through`, or will never receive them.
pub(super) fn acknowledge(case: Case<'_>, through: u64, dropped: u64) -> Result<Verdict, Refusal> {
    let head = case.state.usage_records_head();
    if through > head.last {
        let reason = format!("the last usage record has number {}", head.last);
        return Err(invalid("through", reason));
    }
    if through <= head.acknowledged {
        return Ok(Verdict::unchanged());
    }
    if dropped > through - head.acknowledged {
        let reason = format!(
            "must be at most {}, the number of newly acknowledged usage records",
            through - head.acknowledged
        );
        return Err(invalid("dropped", reason));
    }
    let changes = vec![Change::AcknowledgeUsage { through, dropped }];
    Ok(Verdict::done(changes))
}

/// Accepts the differences of an ended month. The synchronisation proposes months that have ended by the clock of the
/// accounting system, which is not part of the state.
pub(super) fn accept_month(
    case: Case<'_>,
    month: AccountingMonth,
    differences: u32,
) -> Result<Verdict, Refusal> {
    if differences == 0 {
        let reason = "must be at least 1; a month without differences needs no acceptance";
        return Err(invalid("differences", reason));
    }
    let by = &case.principal.name;
    let is_same = |known: &MonthDifferences| match known {
        MonthDifferences::Open { .. } => false,
        MonthDifferences::Accepted {
            by: former,
            differences: count,
            ..
        } => (former, *count) == (by, differences),
    };
    let later = &case.state.later;
    if later.months.get(&month).is_some_and(is_same) {
        return Ok(Verdict::unchanged());
    }
    if let Some(earliest) = later.displaced_by(month) {
        let reason = format!(
            "{month} is before {earliest}, the earliest of the {MAX_MONTHS} months that are kept"
        );
        return Err(invalid("month", reason));
    }
    let accepted = MonthDifferences::Accepted {
        by: by.clone(),
        at: case.now,
        differences,
    };
    let changes = vec![Change::Month(month, Some(accepted))];
    let action = AuditAction::MonthAccepted { month, differences };
    Ok(Verdict::done(audited(case, action, changes)))
}

/// Notes whether totals of an ended month differ. An accepted month stays accepted.
pub(super) fn note_open_month(case: Case<'_>, month: AccountingMonth, is_open: bool) -> Verdict {
    let later = &case.state.later;
    let changes = match (later.months.get(&month), is_open) {
        (None, true) if later.displaced_by(month).is_none() => {
            let open = MonthDifferences::Open { since: case.now };
            vec![Change::Month(month, Some(open))]
        }
        (Some(MonthDifferences::Open { .. }), false) => vec![Change::Month(month, None)],
        _ => Vec::new(),
    };
    Verdict::done(changes)
}
