//! Usage of tenants and users.

use super::{tenants, time};
use crate::caller::{Caller, Role};
use crate::state::Api;
use lattice_api::{
    amount::{Fraction, Hours},
    problem::{Kind, Problem},
    usage::{PausedProjectView, TenantUsage, UserTenantUsage, UserUsage},
};
use lattice_engine::usage::{DAY_MS, KEPT_DAYS};
use lattice_ledger::{UsageByKind, UsageScope};
use lattice_quorum_types::{UnixMillis, id::MAX_NAME_BYTES};
use lattice_view::TenantStandings;

/// Window of days that ends now.
struct DayWindow {
    days: u64,
    since: UnixMillis,
    until: UnixMillis,
}

impl DayWindow {
    fn new(api: &Api, days: Option<u64>) -> Result<Self, Problem> {
        let core = api.core();
        let days = days.unwrap_or_else(|| api.stores().usage.period_days());
        if !(1..=KEPT_DAYS).contains(&days) {
            let reason = format!("give 1 to {KEPT_DAYS} days");
            return Err(Problem::field("days", reason));
        }
        let until = core.now();
        Ok(Self {
            days,
            since: UnixMillis(until.0.saturating_sub(days * DAY_MS)),
            until,
        })
    }
}

fn not_read() -> Problem {
    let detail = "the usage ledger is still loading after the start of this control; try again in a \
                  few seconds";
    Problem::new(Kind::Unavailable, "not_ready", detail)
}

/// Usage of one tenant that is visible to the caller.
pub(crate) fn of_tenant(
    api: &Api,
    caller: &Caller,
    id: &str,
    days: Option<u64>,
) -> Result<TenantUsage, Problem> {
    let core = api.core();
    let tenant = tenants::tenant(core, caller, id)?;
    let window = DayWindow::new(api, days)?;
    let used = api
        .stores()
        .usage
        .ask(|ledger| ledger.usage(UsageScope::Tenant(&tenant), window.since, window.until));
    let UsageByKind { work, idle } = used.ok_or_else(not_read)?;
    let view = core.view();
    let standing = TenantStandings::new(&view).of(&tenant);
    let (hours, soft, factors) = (standing.hours, standing.soft, standing.factors());
    let budget = view.budgets.get(&tenant);
    let credit = budget.and_then(|budget| budget.credit_at(window.until));
    let paused = credit.into_iter().flat_map(|credit| &credit.paused);
    Ok(TenantUsage {
        tenant: tenant.to_string(),
        days: window.days,
        since: time(window.since),
        until: time(window.until),
        node_hours_used: Hours(work.node_ms),
        gpu_hours_used: Hours(work.gpu_ms),
        idle_claimed_node_hours: Hours(idle.node_ms),
        budget_period_days: api.stores().usage.period_days(),
        gpu_hours_budget: hours.gpu.map(|(budget, _)| Hours(budget.granted_ms)),
        node_hours_budget: hours.node.map(|(budget, _)| Hours(budget.granted_ms)),
        budget_used: hours.used(),
        budget_factor: factors.budget,
        share_factor: Some(factors.share),
        accounting_factor: Some(factors.accounting),
        priority_factor: Some(factors.lowest()),
        source: hours.source().as_str().to_owned(),
        fair_share_target: soft.fair_share_ppm.map(Fraction),
        burst_allowance: soft.burst_ppm.map(Fraction),
        share: standing.share(),
        exceeds_share: standing.is_above_share(),
        downscaled: hours.downscaled,
        paused: paused
            .map(|paused| PausedProjectView {
                project: paused.project.to_string(),
                vcluster: paused.vcluster.to_string(),
            })
            .collect(),
        revision: view.revision,
    })
}

/// Usage of one user. Usage of other users requires an operator, a tenant administrator (for its tenants), or an
/// accounting system.
pub(crate) fn of_user(
    api: &Api,
    caller: &Caller,
    user: Option<&str>,
    days: Option<u64>,
) -> Result<UserUsage, Problem> {
    let core = api.core();
    let user = user.filter(|user| !user.is_empty()).unwrap_or(&caller.name);
    if user.len() > MAX_NAME_BYTES {
        let reason = format!("a name has at most {MAX_NAME_BYTES} bytes");
        return Err(Problem::field("user", reason));
    }
    if *user != *caller.name && !caller.is_accounting() {
        caller.check_role(Role::TenantAdmin, "reading the usage of others")?;
    }
    let window = DayWindow::new(api, days)?;
    let used = api
        .stores()
        .usage
        .ask(|ledger| ledger.usage_by_tenant(user, window.since, window.until));
    let mut used = used.ok_or_else(not_read)?;
    used.retain(|tenant, _| caller.sees(tenant));
    let all = used
        .values()
        .fold(UsageByKind::default(), |sum, used| sum.with(*used));
    let tenants = used.iter().map(|(tenant, used)| UserTenantUsage {
        tenant: tenant.to_string(),
        node_hours_used: Hours(used.work.node_ms),
        gpu_hours_used: Hours(used.work.gpu_ms),
        idle_claimed_node_hours: Hours(used.idle.node_ms),
    });
    Ok(UserUsage {
        user: user.to_owned(),
        days: window.days,
        since: time(window.since),
        until: time(window.until),
        node_hours_used: Hours(all.work.node_ms),
        gpu_hours_used: Hours(all.work.gpu_ms),
        idle_claimed_node_hours: Hours(all.idle.node_ms),
        tenants: tenants.collect(),
        revision: core.view().revision,
    })
}
