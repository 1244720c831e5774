//! `lattice admin tenant`: organisations, which are the roots of the project tree.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
    project::{Limit, limit, overcommitted, patch},
};
use clap::{Args, Subcommand};
use lattice_api::{
    amount::{Amount, Fraction, Hours},
    tenant::{TenantRequest, TenantUpdate, TenantView},
};
use lattice_quorum_types::limit::{OnLimit, Patch};
use serde_json::json;
use std::str::FromStr;

/// Tenant subcommands.
#[derive(Subcommand)]
pub enum TenantCommand {
    /// List tenants with their limits and usage.
    List,
    /// Show one tenant.
    Show {
        /// Tenant name.
        id: String,
    },
    /// Create a tenant. Without limits it may hold no nodes.
    Create(CreateArgs),
    /// Change the hard and soft limits of a tenant, all or nothing; a limit not given keeps its value.
    ///
    /// Budgets of hours and shares are soft limits: pending allocations of a tenant that has used up a budget rank
    /// behind those of others, and running ones continue. `lattice usage --tenant NAME` shows a tenant's usage and
    /// budgets.
    ///
    /// A limit may be set below the present usage: running allocations continue, and new ones start only when they fit.
    /// A limit below the sum of the limits of the tenant's projects requires --force. The tenant is then shown as
    /// overcommitted until the limits fit, and requests must still fit at every level.
    Update(UpdateArgs),
    /// Delete a tenant that has no projects and no allocations.
    Delete {
        /// Tenant name.
        id: String,
    },
}

#[derive(Args)]
pub struct NewLimits {
    /// Nodes that the tenant and everything in it may hold at the same time.
    #[arg(long, value_name = "LIMIT")]
    max_nodes: Option<Limit>,
    /// Allocations that may hold nodes at the same time: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    max_concurrent_allocations: Option<Limit>,
    /// GPU hours that the tenant may use in the budget period (90 days unless the site sets another): a number, or
    /// none.
    #[arg(long, value_name = "HOURS")]
    gpu_hours_budget: Option<AmountChange<Hours>>,
    /// Node hours that the tenant may use in the budget period. Of two budgets the one that is used more counts.
    #[arg(long, value_name = "HOURS")]
    node_hours_budget: Option<AmountChange<Hours>>,
    /// Share of the cluster that the tenant should have: 0 to 1, or none.
    #[arg(long, value_name = "SHARE")]
    fair_share_target: Option<AmountChange<Fraction>>,
    /// Multiple of the fair share target from which the tenant's pending allocations rank behind those of others: 1 or
    /// more, or none.
    #[arg(long, value_name = "FACTOR")]
    burst_allowance: Option<AmountChange<Fraction>>,
    /// Handling of submits that fit the limits, but not with the present usage: reject, or wait to let them wait for
    /// quota headroom. `lattice submit --wait-for-limit` overrides it.
    #[arg(long, value_name = "reject|wait")]
    on_limit: Option<OnLimit>,
}

#[derive(Args)]
pub struct CreateArgs {
    /// Tenant name.
    id: String,
    #[command(flatten)]
    limits: NewLimits,
    /// User with permission to set the limits of the tenant's projects; repeat for several.
    #[arg(long = "admin", value_name = "USER")]
    admins: Vec<String>,
    /// Free-text description.
    #[arg(long, default_value = "")]
    description: String,
}

#[derive(Args)]
pub struct UpdateArgs {
    /// Tenant name.
    id: String,
    #[command(flatten)]
    changes: Changes,
    /// Apply limits even if they are below the sum of the projects' limits. For administrators of the whole cluster.
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct Changes {
    /// Nodes that the tenant and everything in it may hold at the same time.
    #[arg(long, value_name = "LIMIT")]
    max_nodes: Option<Limit>,
    /// Allocations that may hold nodes at the same time: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    max_concurrent_allocations: Option<Limit>,
    /// GPU hours that the tenant may use in the budget period (90 days unless the site sets another): a number, or
    /// none.
    #[arg(long, value_name = "HOURS")]
    gpu_hours_budget: Option<AmountChange<Hours>>,
    /// Node hours that the tenant may use in the budget period. Of two budgets the one that is used more counts.
    #[arg(long, value_name = "HOURS")]
    node_hours_budget: Option<AmountChange<Hours>>,
    /// Share of the cluster that the tenant should have: 0 to 1, or none.
    #[arg(long, value_name = "SHARE")]
    fair_share_target: Option<AmountChange<Fraction>>,
    /// Multiple of the fair share target from which the tenant's pending allocations rank behind those of others: 1 or
    /// more, or none.
    #[arg(long, value_name = "FACTOR")]
    burst_allowance: Option<AmountChange<Fraction>>,
    /// Handling of submits that fit the limits, but not with the present usage: reject, or wait to let them wait for
    /// quota headroom. `lattice submit --wait-for-limit` overrides it.
    #[arg(long, value_name = "reject|wait")]
    on_limit: Option<OnLimit>,
}

/// Change of an amount: a new amount, or its removal (`none` or `unlimited`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountChange<A> {
    /// New amount.
    Set(A),
    /// Removal of the amount.
    Removed,
}

impl<A: FromStr<Err = String>> FromStr for AmountChange<A> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" | "unlimited" => Ok(Self::Removed),
            number => number.parse().map(Self::Set),
        }
    }
}

fn soft<A: Amount>(given: Option<AmountChange<A>>) -> Patch {
    match given {
        None => Patch::Unchanged,
        Some(AmountChange::Removed) => Patch::Unlimited,
        Some(AmountChange::Set(amount)) => Patch::Set(amount.in_small_units()),
    }
}

/// Runs a tenant command.
pub async fn run(command: TenantCommand, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    match command {
        TenantCommand::List => {
            let tenants = client.tenants().await?;
            let rows = tenants.iter().map(row);
            Ok(output::print(connection.format, &tenants, COLUMNS, rows)?)
        }
        TenantCommand::Show { id } => show(&client.tenant(&id).await?, connection),
        TenantCommand::Create(args) => {
            let request = TenantRequest {
                id: args.id,
                max_nodes: patch(args.limits.max_nodes),
                max_concurrent_allocations: patch(args.limits.max_concurrent_allocations),
                gpu_hours_budget: soft(args.limits.gpu_hours_budget),
                node_hours_budget: soft(args.limits.node_hours_budget),
                fair_share_target: soft(args.limits.fair_share_target),
                burst_allowance: soft(args.limits.burst_allowance),
                on_limit: args.limits.on_limit.map(|handling| handling.to_string()),
                admins: args.admins,
                description: args.description,
            };
            show(&client.create_tenant(&request).await?, connection)
        }
        TenantCommand::Update(args) => {
            let changes = args.changes;
            let update = TenantUpdate {
                max_nodes: patch(changes.max_nodes),
                max_concurrent_allocations: patch(changes.max_concurrent_allocations),
                gpu_hours_budget: soft(changes.gpu_hours_budget),
                node_hours_budget: soft(changes.node_hours_budget),
                fair_share_target: soft(changes.fair_share_target),
                burst_allowance: soft(changes.burst_allowance),
                on_limit: changes.on_limit.map(|handling| handling.to_string()),
                force: args.force,
            };
            show(&client.update_tenant(&args.id, &update).await?, connection)
        }
        TenantCommand::Delete { id } => {
            let done = client.delete_tenant(&id).await?;
            let deleted = json!({"id": id, "revision": done.revision});
            let sentence = format!("{id}: deleted");
            Ok(output::print_done(connection.format, &deleted, &sentence)?)
        }
    }
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &[
        "id",
        "max_nodes",
        "usage_nodes",
        "max_concurrent_allocations",
        "usage_allocations",
        "overcommitted",
        "gpu_hours_budget",
        "node_hours_budget",
    ],
    wide: &[
        "fair_share_target",
        "burst_allowance",
        "on_limit",
        "admins",
        "description",
    ],
};

fn row(tenant: &TenantView) -> Vec<String> {
    vec![
        tenant.id.clone(),
        limit(tenant.max_nodes),
        tenant.usage.nodes.to_string(),
        limit(tenant.max_concurrent_allocations),
        tenant.usage.allocations.to_string(),
        overcommitted(tenant.overcommitted),
        shown(tenant.gpu_hours_budget),
        shown(tenant.node_hours_budget),
        shown(tenant.fair_share_target),
        shown(tenant.burst_allowance),
        tenant.on_limit.clone(),
        tenant.admins.join(","),
        tenant.description.clone(),
    ]
}

fn shown<A: std::fmt::Display>(amount: Option<A>) -> String {
    amount.map_or("-".to_owned(), |amount| amount.to_string())
}

fn show(tenant: &TenantView, connection: &Connection) -> Result<(), Failure> {
    Ok(output::print_record(
        connection.format,
        tenant,
        COLUMNS,
        row(tenant),
    )?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: TenantCommand,
    }

    fn changes(line: &str) -> Result<Changes, String> {
        let words = std::iter::once("tenant").chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        match line.command {
            TenantCommand::Update(args) => Ok(args.changes),
            _ => Err("not an update command".to_owned()),
        }
    }

    #[test]
    fn the_seeds_own_form_is_understood() {
        let hard = "update physics --max-nodes 250 --max-concurrent-allocations 50";
        let all = format!("{hard} --gpu-hours-budget 150000 --node-hours-budget 500000");
        let read = changes(&all).unwrap();
        assert_eq!(limit_of(read.max_nodes), "250");
        assert_eq!(limit_of(read.max_concurrent_allocations), "50");
        assert_eq!(soft(read.gpu_hours_budget), Patch::Set(150_000 * 3_600_000));
        assert_eq!(
            soft(read.node_hours_budget),
            Patch::Set(500_000 * 3_600_000)
        );
        assert_eq!(soft(read.fair_share_target), Patch::Unchanged);
        let share =
            changes("update physics --fair-share-target 0.15 --burst-allowance none").unwrap();
        assert_eq!(soft(share.fair_share_target), Patch::Set(150_000));
        assert_eq!(soft(share.burst_allowance), Patch::Unlimited);
        let waits = changes("update physics --on-limit wait").unwrap();
        assert_eq!(waits.on_limit, Some(OnLimit::Wait));
        let refused = changes("update physics --on-limit queue")
            .err()
            .unwrap_or_default();
        assert!(refused.contains("use reject or wait"), "{refused}");
        assert!(changes("update physics").is_err(), "nothing would change");
        assert!(changes("update physics --max-nodes many").is_err());
        assert!(changes("update physics --gpu-hours-budget -5").is_err());
    }

    #[test]
    fn marks_overcommitted_limits() {
        let view = |overcommitted| TenantView {
            id: "physics".to_owned(),
            max_nodes: Some(250),
            max_concurrent_allocations: None,
            gpu_hours_budget: None,
            node_hours_budget: None,
            fair_share_target: None,
            burst_allowance: None,
            on_limit: "wait".to_owned(),
            usage: lattice_api::project::UsageView::default(),
            admins: vec![],
            description: String::new(),
            created_at: String::new(),
            revision: lattice_quorum_types::Revision(1),
            overcommitted,
        };
        let names = [COLUMNS.narrow, COLUMNS.wide].concat();
        for (overcommitted, said) in [(true, "yes"), (false, "no")] {
            let row = row(&view(overcommitted));
            assert_eq!(row.len(), names.len());
            let cell = |name| &row[names.iter().position(|is| *is == name).unwrap()];
            assert_eq!(cell("max_nodes"), "250", "a number and nothing else");
            assert_eq!(cell("overcommitted"), said);
            assert_eq!(cell("on_limit"), "wait");
        }
    }

    fn limit_of(given: Option<Limit>) -> String {
        match patch(given) {
            lattice_quorum_types::limit::Patch::Set(limit) => limit.to_string(),
            other => format!("{other:?}"),
        }
    }
}
