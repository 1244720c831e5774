//! `lattice usage`: usage of a tenant or a user.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
};
use clap::Args;
use lattice_api::usage::{TenantUsage, UserTenantUsage, UserUsage};

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
        let rows = [of_tenant(&usage)];
        output::print(connection.format, &usage, TENANT, rows)?;
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
        "node_hours",
        "node_budget",
        "gpu_hours",
        "gpu_budget",
        "budget_used",
        "priority_factor",
    ],
    wide: &[
        "idle_claimed_node_hours",
        "share",
        "target",
        "source",
        "since",
    ],
};

fn of_tenant(usage: &TenantUsage) -> Vec<String> {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    vec![
        usage.tenant.clone(),
        usage.days.to_string(),
        hours(usage.node_hours_used),
        or_none(usage.node_hours_budget.map(hours)),
        hours(usage.gpu_hours_used),
        or_none(usage.gpu_hours_budget.map(hours)),
        or_none(usage.budget_used.map(percent)),
        format!("{:.2}", usage.budget_factor),
        hours(usage.idle_claimed_node_hours),
        percent(usage.share),
        or_none(usage.fair_share_target.map(|target| target.to_string())),
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
            "the budget of {tenant} is used up: its pending jobs rank last, its running jobs \
             continue"
        ));
    }
    if usage.exceeds_share {
        said.push(
            "above its fair share: its newest jobs are preempted first, its pending jobs rank last"
                .to_owned(),
        );
    }
    if usage.downscaled {
        said.push("the accounting system requested that its pending jobs rank last".to_owned());
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
    narrow: &["user", "tenant", "days", "node_hours", "gpu_hours"],
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
    let zero = || hours(lattice_api::amount::Hours(0));
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
fn hours(hours: lattice_api::amount::Hours) -> String {
    use lattice_api::amount::Amount as _;
    format!("{:.2}", hours.number())
}
