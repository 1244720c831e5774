//! `lattice admin accounting`: whether the accounting system has what was used.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
};
use clap::{Args, Subcommand};
use lattice_api::accounting::{AccountingStatus, ReconcileRequest, TotalDifference};

/// What is done with it.
#[derive(Subcommand)]
pub enum AccountingCommand {
    /// Show what the accounting system has, what waits, and what it refuses.
    Status,
    Reconcile(ReconcileArgs),
}

/// Compare what the accounting system has of each month with what was used, and set it.
///
/// Every month of which a part lies between --since and --until. Lower totals are set too, which nothing else does. Where
/// single events are told, those of that time are told again; what the accounting system has is not there twice.
#[derive(Args)]
pub struct ReconcileArgs {
    /// From this moment on: 2026-03-01, or with a time.
    #[arg(long, value_name = "TIME")]
    since: String,
    /// Up to this moment.
    #[arg(long, value_name = "TIME")]
    until: String,
    /// Only compare.
    #[arg(long)]
    dry_run: bool,
}

/// Runs one of them.
pub async fn run(command: AccountingCommand, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    match command {
        AccountingCommand::Status => {
            let status = client.accounting_status().await?;
            output::print(connection.format, &status, STATUS, [row(&status)])?;
            for line in remarks(&status) {
                eprintln!("{line}");
            }
            Ok(())
        }
        AccountingCommand::Reconcile(args) => {
            let request = ReconcileRequest {
                since: args.since,
                until: args.until,
                dry_run: args.dry_run,
            };
            let found = client.reconcile_accounting(&request).await?;
            let rows = found.differences.iter().map(difference);
            output::print(connection.format, &found, DIFFERENCES, rows)?;
            if found.differences.is_empty() {
                eprintln!("every total is what was used");
            }
            let left = found
                .differences
                .iter()
                .filter(|d| d.outcome == "not_bookable")
                .count();
            match left {
                0 => Ok(()),
                left => Err(Failure::refused(format!(
                    "{left} of them could not be put right"
                ))),
            }
        }
    }
}

const STATUS: Columns<'_> = Columns {
    narrow: &[
        "provider",
        "version",
        "pushed",
        "behind",
        "in_memory",
        "on_disk",
        "dropped",
        "parked",
    ],
    wide: &["acknowledged", "reported", "sent", "retry"],
};

fn row(status: &AccountingStatus) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let behind = status.last.saturating_sub(status.acknowledged);
    vec![
        or_none(&status.provider),
        or_none(&status.version),
        or_none(&status.pushed_at),
        behind.to_string(),
        format!("{}/{}", status.in_memory, status.buffer_size),
        format!("{}/{}", status.on_disk, status.disk_buffer_max_events),
        status.dropped.to_string(),
        status.parked.len().to_string(),
        status.acknowledged.to_string(),
        status.reported.to_string(),
        status.sent.to_string(),
        or_none(&status.retry_at),
    ]
}

/// What somebody should know besides.
fn remarks(status: &AccountingStatus) -> Vec<String> {
    if !status.enabled {
        return vec!["accounting is off on this cluster".to_owned()];
    }
    let mut said = Vec::new();
    if !status.acts {
        said.push("another control does the accounting: this one knows less of it".to_owned());
    }
    said.extend(status.failure.iter().map(|why| format!("it waits: {why}")));
    if status.full {
        said.push("the disk has as many events as may be: the next one is dropped".to_owned());
    }
    if status.dropped > 0 {
        said.push(
            "events were dropped; no total is another for it. `lattice admin accounting reconcile` tells them again"
                .to_owned(),
        );
    }
    let parked = status.parked.iter();
    said.extend(parked.map(|parked| {
        format!(
            "refused since {}: {}: {}",
            parked.since, parked.what, parked.reason
        )
    }));
    said
}

const DIFFERENCES: Columns<'_> = Columns {
    narrow: &[
        "project",
        "vcluster",
        "month",
        "component",
        "had",
        "used",
        "outcome",
    ],
    wide: &["reason"],
};

fn difference(difference: &TotalDifference) -> Vec<String> {
    vec![
        difference.project.clone(),
        difference.vcluster.clone(),
        difference.month.clone(),
        difference.component.clone(),
        difference.had.to_string(),
        difference.used.to_string(),
        difference.outcome.clone(),
        difference.reason.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}
