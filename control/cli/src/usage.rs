//! `lattice usage`: usage of a tenant or a user.

use crate::{
    allocation::TenantMultiplier,
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
};
use clap::Args;
use lattice_api::{
    amount::{Amount, Hours},
    usage::{TenantUsage, UserTenantUsage, UserUsage},
};

/// Show the usage of a tenant or a user, in node hours and GPU hours, in a window of days that ends now.
///
/// Without --tenant and --user: your own usage, by tenant. Only time within the window counts, without suspended time;
/// running allocations count up to now.
#[derive(Args)]
pub struct UsageArgs {
    /// Show this tenant, with its budgets.
    #[arg(long, value_name = "TENANT", conflicts_with = "user")]
    tenant: Option<String>,
    /// Show this user; the usage of other users is restricted to operators, tenant administrators and accounting
    /// systems.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Length of the window, days.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
}

/// Runs `lattice usage`.
pub async fn run(args: UsageArgs, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    if let Some(tenant) = args.tenant {
        let usage = client.tenant_usage(&tenant, args.days).await?;
        output::print_record(connection.format, &usage, TENANT, of_tenant(&usage))?;
        for line in remarks(&usage) {
            output::message!("{line}");
        }
        return Ok(());
    }
    let usage = match args.user {
        Some(user) => client.user_usage(&user, args.days).await?,
        None => client.own_usage(args.days).await?,
    };
    let mut rows: Vec<_> = usage
        .tenants
        .iter()
        .map(|used| in_tenant(&usage, used))
        .collect();
    if rows.is_empty() {
        rows.push(empty_row(&usage));
    }
    Ok(output::print(connection.format, &usage, USER, rows)?)
}

const TENANT: Columns<'_> = Columns {
    narrow: &[
        "tenant",
        "days",
        "node_hours_used",
        "node_hours_budget",
        "gpu_hours_used",
        "gpu_hours_budget",
        "budget_used",
        "priority_factor",
    ],
    wide: &[
        "idle_claimed_node_hours",
        "share",
        "fair_share_target",
        "budget_factor",
        "share_factor",
        "accounting_factor",
        "source",
        "since",
    ],
};

fn of_tenant(usage: &TenantUsage) -> Vec<String> {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let factor = |value: f64| format!("{value:.2}");
    vec![
        usage.tenant.clone(),
        usage.days.to_string(),
        hours(usage.node_hours_used),
        or_none(usage.node_hours_budget.map(hours)),
        hours(usage.gpu_hours_used),
        or_none(usage.gpu_hours_budget.map(hours)),
        or_none(usage.budget_used.map(percent)),
        factor(usage.priority_factor.unwrap_or(usage.budget_factor)),
        hours(usage.idle_claimed_node_hours),
        percent(usage.share),
        or_none(usage.fair_share_target.map(|target| target.to_string())),
        factor(usage.budget_factor),
        or_none(usage.share_factor.map(factor)),
        or_none(usage.accounting_factor.map(factor)),
        usage.source.clone(),
        usage.since.clone(),
    ]
}

/// Returns remarks on the numbers.
fn remarks(usage: &TenantUsage) -> Vec<String> {
    let mut said = Vec::new();
    let period = usage.budget_period_days;
    if usage.budget_used.is_some() && usage.days != period {
        said.push(format!(
            "budgets cover {period} days; budget_used refers to that period"
        ));
    }
    if usage.budget_used.is_some_and(|used| used >= 1.0) {
        let tenant = &usage.tenant;
        said.push(format!(
            "the budget of {tenant} is used up; its running jobs continue"
        ));
    }
    if usage.exceeds_share {
        let target = usage.fair_share_target.map_or(0.0, Amount::number);
        said.push(format!(
            "above its fair share ({} of the nodes held, target {}): its newest jobs are \
             preempted first",
            percent(usage.share),
            percent(target)
        ));
    }
    let multiplier = TenantMultiplier::of_usage(usage);
    if let Some(acting) = multiplier.acting() {
        let others = multiplier.others(Some(acting));
        let others: Vec<_> = others
            .map(|other| format!("{} factor {:.2}", other.name, other.value))
            .collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("; no effect: {}", others.join(", ")),
        };
        said.push(format!(
            "the {} factor {:.2} multiplies the scores of its pending jobs: {}{others}",
            acting.name, acting.value, acting.cause
        ));
    }
    let paused = usage.paused.iter().map(|paused| {
        format!(
            "the accounting system paused {} in vCluster {}",
            paused.project, paused.vcluster
        )
    });
    said.extend(paused);
    said
}

const USER: Columns<'_> = Columns {
    narrow: &[
        "user",
        "tenant",
        "days",
        "node_hours_used",
        "gpu_hours_used",
    ],
    wide: &["idle_claimed_node_hours", "since"],
};

fn in_tenant(usage: &UserUsage, used: &UserTenantUsage) -> Vec<String> {
    vec![
        usage.user.clone(),
        used.tenant.clone(),
        usage.days.to_string(),
        hours(used.node_hours_used),
        hours(used.gpu_hours_used),
        hours(used.idle_claimed_node_hours),
        usage.since.clone(),
    ]
}

fn empty_row(usage: &UserUsage) -> Vec<String> {
    let zero = || hours(Hours(0));
    let days = usage.days.to_string();
    let none = "-".to_owned();
    vec![
        usage.user.clone(),
        none,
        days,
        zero(),
        zero(),
        zero(),
        usage.since.clone(),
    ]
}

/// Formats hours, rounded to two decimals; billing does not use this text.
fn hours(hours: Hours) -> String {
    format!("{:.2}", hours.number())
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn usage(fields: serde_json::Value) -> TenantUsage {
        let mut usage = serde_json::json!({
            "tenant": "atlas", "days": 90, "since": "2026-08-25T00:00:00Z",
            "until": "2026-11-23T00:00:00Z", "node_hours_used": 1.0, "gpu_hours_used": 8.0,
            "idle_claimed_node_hours": 0.0, "budget_period_days": 90, "gpu_hours_budget": 1000.0,
            "node_hours_budget": null, "budget_used": 0.008, "budget_factor": 1.0,
            "share_factor": 1.0, "accounting_factor": 1.0, "priority_factor": 1.0,
            "source": "ledger", "fair_share_target": 0.25, "burst_allowance": 1.5, "share": 0.0,
            "exceeds_share": false, "downscaled": false, "paused": [], "revision": 1,
        });
        let all = usage.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        serde_json::from_value(usage).unwrap()
    }

    fn cell(usage: &TenantUsage, name: &str) -> String {
        let mut names = TENANT.narrow.iter().chain(TENANT.wide);
        let place = names.position(|column| *column == name).unwrap();
        of_tenant(usage).swap_remove(place)
    }

    /// A tenant that is above its share and has used nothing of its budget.
    #[test]
    fn factor_of_the_share_is_named() {
        let usage = usage(serde_json::json!({
            "share": 0.5, "exceeds_share": true, "share_factor": 0.05, "priority_factor": 0.05,
        }));
        let cells = ["priority_factor", "budget_factor", "share_factor"];
        assert_eq!(
            cells.map(|name| cell(&usage, name)),
            ["0.05", "1.00", "0.05"]
        );
        assert_eq!(
            remarks(&usage),
            [
                "above its fair share (50.0 % of the nodes held, target 25.0 %): its newest jobs are \
                 preempted first",
                "the share factor 0.05 multiplies the scores of its pending jobs: the tenant is above \
                 its fair share and holds its burst allowance of nodes or more; no effect: budget \
                 factor 1.00, accounting factor 1.00",
            ]
        );
    }

    #[test]
    fn factor_of_the_budget_is_named() {
        let usage = usage(serde_json::json!({
            "budget_used": 1.2, "budget_factor": 0.05, "priority_factor": 0.05,
        }));
        let said = remarks(&usage);
        assert_eq!(
            said[0],
            "the budget of atlas is used up; its running jobs continue"
        );
        assert!(
            said[1].starts_with("the budget factor 0.05 multiplies the scores of its pending jobs"),
            "{said:?}"
        );
        assert_eq!(said.len(), 2);
    }

    /// While every factor is 1, no line names a factor. A control of an earlier version sends one factor only.
    #[test]
    fn factor_of_one_is_not_mentioned() {
        let fine = usage(serde_json::json!({}));
        assert_eq!(remarks(&fine), Vec::<String>::new());
        let earlier = usage(serde_json::json!({
            "share_factor": null, "accounting_factor": null, "priority_factor": null,
            "budget_factor": 0.05,
        }));
        assert_eq!(cell(&earlier, "priority_factor"), "0.05");
        assert_eq!(cell(&earlier, "share_factor"), "-");
    }
}
