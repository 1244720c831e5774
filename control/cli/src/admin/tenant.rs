//! `lattice admin tenant`: organisations, which are the roots of the project tree.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
    project::{Limit, limit, overcommitted, patch},
};
use clap::{Args, Subcommand};
use lattice_api::tenant::{TenantRequest, TenantUpdate, TenantView, not_yet};

/// What is done with tenants.
#[derive(Subcommand)]
pub enum TenantCommand {
    /// List tenants with their limits and what is used of them.
    List,
    /// Show one tenant.
    Show {
        /// Its name.
        id: String,
    },
    /// Create a tenant. Without limits it may hold nothing.
    Create(CreateArgs),
    /// Change a tenant's limits; what is not named stays as it is.
    ///
    /// A limit may go below what is used: nothing that runs is ended, and nothing new begins until
    /// there is room again. It may not go below the sum of the limits of the tenant's projects, unless
    /// --force is given: then the tenant is shown as overcommitted until they fit, and what is asked for
    /// has to fit at every level all the same.
    Update(UpdateArgs),
    /// Delete a tenant that has no projects and no allocations.
    Delete {
        /// Its name.
        id: String,
    },
}

#[derive(Args)]
pub struct HardLimits {
    /// Nodes that it and everything in it may hold at the same time.
    #[arg(long, value_name = "LIMIT")]
    max_nodes: Option<Limit>,
    /// Allocations that may hold nodes at the same time: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    max_concurrent_allocations: Option<Limit>,
}

#[derive(Args)]
pub struct CreateArgs {
    /// Its name.
    id: String,
    #[command(flatten)]
    limits: HardLimits,
    /// Who may set the limits of its projects; repeat for several.
    #[arg(long = "admin", value_name = "USER")]
    admins: Vec<String>,
    /// Text for people.
    #[arg(long, default_value = "")]
    description: String,
}

#[derive(Args)]
pub struct UpdateArgs {
    /// Its name.
    id: String,
    #[command(flatten)]
    changes: Changes,
    /// Also below the sum of the limits of the tenant's projects. For administrators of the whole
    /// cluster.
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct Changes {
    /// Nodes that it and everything in it may hold at the same time.
    #[arg(long, value_name = "LIMIT")]
    max_nodes: Option<Limit>,
    /// Allocations that may hold nodes at the same time: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    max_concurrent_allocations: Option<Limit>,
    #[arg(long, value_name = "HOURS", hide = true)]
    gpu_hours_budget: Option<String>,
    #[arg(long, value_name = "HOURS", hide = true)]
    node_hours_budget: Option<String>,
    #[arg(long, value_name = "SHARE", hide = true)]
    fair_share_target: Option<String>,
    #[arg(long, value_name = "FACTOR", hide = true)]
    burst_allowance: Option<String>,
}

impl Changes {
    /// The first that is not here yet: nothing is changed then, so that nobody believes in half of it.
    fn later(&self) -> Option<&'static str> {
        let later = [
            ("gpu_hours_budget", &self.gpu_hours_budget),
            ("node_hours_budget", &self.node_hours_budget),
            ("fair_share_target", &self.fair_share_target),
            ("burst_allowance", &self.burst_allowance),
        ];
        let given = later.into_iter().find(|(_, value)| value.is_some());
        given.map(|(field, _)| field)
    }
}

/// Runs one of them.
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
                admins: args.admins,
                description: args.description,
            };
            show(&client.create_tenant(&request).await?, connection)
        }
        TenantCommand::Update(args) => {
            if let Some(field) = args.changes.later() {
                let refused = not_yet(field);
                let option = field.replace('_', "-");
                return Err(Failure::usage(format!("--{option}: {}", refused.reason)));
            }
            let changes = args.changes;
            let nodes = patch(changes.max_nodes);
            let allocations = patch(changes.max_concurrent_allocations);
            let update = TenantUpdate::hard(nodes, allocations).by_force(args.force);
            show(&client.update_tenant(&args.id, &update).await?, connection)
        }
        TenantCommand::Delete { id } => {
            client.delete_tenant(&id).await?;
            eprintln!("{id}: deleted");
            Ok(())
        }
    }
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &[
        "tenant",
        "max_nodes",
        "used",
        "max_concurrent_allocations",
        "allocations",
        "overcommitted",
    ],
    wide: &["admins", "description"],
};

fn row(tenant: &TenantView) -> Vec<String> {
    vec![
        tenant.id.clone(),
        limit(tenant.max_nodes),
        tenant.usage.nodes.to_string(),
        limit(tenant.max_concurrent_allocations),
        tenant.usage.allocations.to_string(),
        overcommitted(tenant.overcommitted),
        tenant.admins.join(","),
        tenant.description.clone(),
    ]
}

fn show(tenant: &TenantView, connection: &Connection) -> Result<(), Failure> {
    let rows = [row(tenant)];
    Ok(output::print(connection.format, tenant, COLUMNS, rows)?)
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
            _ => Err("it is no update".to_owned()),
        }
    }

    #[test]
    fn the_seeds_own_form_is_understood_and_what_comes_later_is_known_by_its_name() {
        let hard = "update physics --max-nodes 250 --max-concurrent-allocations 50";
        let read = changes(hard).unwrap();
        assert_eq!(read.later(), None);
        assert_eq!(limit_of(read.max_nodes), "250");
        assert_eq!(limit_of(read.max_concurrent_allocations), "50");
        let all = format!("{hard} --gpu-hours-budget 150000 --node-hours-budget 500000");
        assert_eq!(changes(&all).unwrap().later(), Some("gpu_hours_budget"));
        let share = "update physics --fair-share-target 0.15";
        assert_eq!(changes(share).unwrap().later(), Some("fair_share_target"));
        assert!(changes("update physics").is_err(), "nothing would change");
        assert!(changes("update physics --max-nodes many").is_err());
    }

    #[test]
    fn what_is_overcommitted_is_said_beside_the_limit() {
        let view = |overcommitted| TenantView {
            id: "physics".to_owned(),
            max_nodes: Some(250),
            max_concurrent_allocations: None,
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
        }
    }

    fn limit_of(given: Option<Limit>) -> String {
        match patch(given) {
            lattice_quorum_types::limit::Patch::Set(limit) => limit.to_string(),
            other => format!("{other:?}"),
        }
    }
}
