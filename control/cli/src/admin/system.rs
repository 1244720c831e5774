//! `lattice admin system`: what holds for the whole cluster.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
    project::{Limit, limit, patch},
};
use clap::{Args, Subcommand};
use lattice_api::tenant::{SystemLimitsUpdate, SystemLimitsView};
use lattice_quorum_types::limit::LimitPolicy;

/// What is done with it.
#[derive(Subcommand)]
pub enum SystemCommand {
    /// Show what is limited for all tenants together, and what limits mean.
    Show,
    /// Change it; what is not named stays as it is.
    Set(SetArgs),
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct SetArgs {
    /// Nodes that can be claimed for sensitive work, in all tenants together: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    sensitive_pool_size: Option<Limit>,
    /// What limits of projects mean: strict (children add up to at most their parent's limit, and
    /// every level counts) or flat (a project's own limit counts, and its tenant's). Refused while the
    /// tree does not obey it.
    #[arg(long, value_name = "POLICY")]
    limit_policy: Option<LimitPolicy>,
}

const COLUMNS: Columns<'_> = Columns::only(&["sensitive_pool_size", "limit_policy"]);

/// Runs one of them.
pub async fn run(command: SystemCommand, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    if let SystemCommand::Set(args) = command {
        if let Some(policy) = args.limit_policy {
            client.set_limit_policy(policy.as_str()).await?;
        }
        if args.sensitive_pool_size.is_some() {
            let update = SystemLimitsUpdate {
                sensitive_pool_size: patch(args.sensitive_pool_size),
            };
            client.set_system_limits(&update).await?;
        }
    }
    let view = client.system_limits().await?;
    let rows = [row(&view)];
    Ok(output::print(connection.format, &view, COLUMNS, rows)?)
}

fn row(view: &SystemLimitsView) -> Vec<String> {
    vec![limit(view.sensitive_pool_size), view.limit_policy.clone()]
}
