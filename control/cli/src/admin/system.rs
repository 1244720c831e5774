//! `lattice admin system`: cluster-wide settings.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
    project::{Limit, limit, patch},
};
use clap::{Args, Subcommand};
use lattice_api::tenant::{SystemLimitsUpdate, SystemLimitsView};
use lattice_quorum_types::limit_policy::LimitPolicy;

/// Subcommands for cluster-wide settings.
#[derive(Subcommand)]
pub enum SystemCommand {
    /// Show the limits for all tenants together, and the limit policy.
    Show,
    /// Change cluster-wide settings; a setting not given keeps its value.
    Set(SetArgs),
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct SetArgs {
    /// Nodes that can be claimed for sensitive use, in all tenants together: a number, or unlimited.
    #[arg(long, value_name = "LIMIT")]
    sensitive_pool_size: Option<Limit>,
    /// Limit policy of projects. strict: the limits of children add up to at most their parent's, and every level
    /// counts. flat: only the limits of the project itself and of its tenant count. Refused while the tree violates the
    /// policy.
    #[arg(long, value_name = "POLICY")]
    limit_policy: Option<LimitPolicy>,
}

const COLUMNS: Columns<'_> = Columns::only(&["sensitive_pool_size", "limit_policy"]);

/// Runs a command for cluster-wide settings.
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
    Ok(output::print_record(
        connection.format,
        &view,
        COLUMNS,
        row(&view),
    )?)
}

fn row(view: &SystemLimitsView) -> Vec<String> {
    vec![limit(view.sensitive_pool_size), view.limit_policy.clone()]
}
