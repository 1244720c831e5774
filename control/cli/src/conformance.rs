//! `lattice conformance`: which nodes are alike, and which are not.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, contrast, short},
};
use clap::{Args, Subcommand};
use lattice_hwprobe::Scope;

/// What can be asked about conformance.
#[derive(Subcommand)]
pub enum ConformanceCommand {
    /// Group nodes by fingerprint, or by one class.
    Groups(GroupsArgs),
    /// Show where nodes differ from the majority of their cohort.
    Drift,
}

#[derive(Args)]
pub struct GroupsArgs {
    /// A class (gpu, nic, bios, kernel, cpu, memory), or all.
    #[arg(long, default_value = "all")]
    class: Scope,
}

/// Runs one of them.
pub async fn run(command: ConformanceCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        ConformanceCommand::Groups(args) => groups(&args, connection).await,
        ConformanceCommand::Drift => drift(connection).await,
    }
}

async fn groups(args: &GroupsArgs, connection: &Connection) -> Result<(), Failure> {
    let class = args.class.to_string();
    let found = connection.client.conformance_groups(Some(&class)).await?;
    let rows = found.groups.iter().map(|group| {
        vec![
            group.class.clone(),
            short(&group.digest),
            group.count.to_string(),
            group.nodes.clone(),
            group.digest.clone(),
        ]
    });
    let columns = Columns {
        narrow: &["class", "digest", "count", "nodes"],
        wide: &["full digest"],
    };
    output::print(connection.format, &found, columns, rows)?;
    if !found.unknown.is_empty() {
        eprintln!(
            "unknown, in no group: {} (`lattice node show NODE` says which class)",
            found.unknown
        );
    }
    Ok(())
}

async fn drift(connection: &Connection) -> Result<(), Failure> {
    let report = connection.client.drift().await?;
    let rows = report.drifted.iter().map(|d| {
        let (expected, found) = contrast(connection.format, &d.expected, &d.found);
        vec![
            d.node.clone(),
            d.class.clone(),
            d.key.clone(),
            expected,
            found,
        ]
    });
    let columns = Columns::only(&["node", "class", "key", "expected", "found"]);
    output::print(connection.format, &report, columns, rows)?;
    for none in &report.no_majority {
        let values: Vec<_> = none
            .values
            .iter()
            .map(|held| format!("{} on {}", held.value, held.nodes))
            .collect();
        eprintln!(
            "no majority: {} of {}: {}",
            none.key,
            none.cohort,
            values.join("; ")
        );
    }
    for unknown in &report.unknown {
        eprintln!(
            "unknown: {} of {}: {}",
            unknown.class, unknown.node, unknown.why
        );
    }
    if !report.alone.is_empty() {
        eprintln!(
            "compared with nobody (a cohort needs four): {}",
            report.alone
        );
    }
    Ok(())
}
