//! `lattice admin accounting`: delivery of usage to the accounting system, and reconciliation.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
};
use clap::{Args, Subcommand};
use lattice_api::accounting::{AccountingStatus, ReconcileRequest, TotalDifference};

/// Accounting subcommands.
#[derive(Subcommand)]
pub enum AccountingCommand {
    /// Show what the accounting system has received, what is pending, and what it rejects.
    Status,
    Reconcile(ReconcileArgs),
}

/// Compare the monthly totals of the accounting system with the recorded usage, and correct them.
///
/// Every month that overlaps the time from --since to --until is included. This is the only operation that can lower a
/// total. Where single events are sent, the events of that time are sent again; the accounting system does not count an
/// event twice.
#[derive(Args)]
pub struct ReconcileArgs {
    /// Start of the range: 2026-03-01, or with a time.
    #[arg(long, value_name = "TIME")]
    since: String,
    /// End of the range.
    #[arg(long, value_name = "TIME")]
    until: String,
    /// Compare only, and correct nothing.
    #[arg(long, conflicts_with = "accept")]
    dry_run: bool,
    /// Take the differences that remain in ended months off the status, for good: they are settled in the accounting
    /// system.
    #[arg(long)]
    accept: bool,
}

/// Runs an accounting command.
pub async fn run(command: AccountingCommand, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    match command {
        AccountingCommand::Status => {
            let status = client.accounting_status().await?;
            output::print_record(connection.format, &status, STATUS, row(&status))?;
            for line in remarks(&status) {
                output::message!("{line}");
            }
            Ok(())
        }
        AccountingCommand::Reconcile(args) => {
            let request = ReconcileRequest {
                since: args.since,
                until: args.until,
                dry_run: args.dry_run,
                accept: args.accept,
            };
            let found = client.reconcile_accounting(&request).await?;
            let rows = found.differences.iter().map(difference);
            output::print(connection.format, &found, DIFFERENCES, rows)?;
            if found.differences.is_empty() {
                output::message!("all totals match the recorded usage");
            }
            let left = found
                .differences
                .iter()
                .filter(|d| d.outcome == "not_bookable")
                .count();
            match left {
                0 => Ok(()),
                left => Err(Failure::refused(format!(
                    "{left} of them could not be corrected"
                ))),
            }
        }
    }
}

/// Difference of the clocks from which it is shown, in seconds.
const NOTABLE_SKEW_S: i64 = 5;

const STATUS: Columns<'_> = Columns {
    narrow: &[
        "provider",
        "version",
        "complete_at",
        "behind",
        "in_memory",
        "on_disk",
        "dropped",
        "rejected",
    ],
    wide: &[
        "acknowledged",
        "reported",
        "sent",
        "retry_at",
        "round_began_at",
        "clock_skew_ms",
    ],
};

fn row(status: &AccountingStatus) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let of_most = |count: Option<u64>, most: u64| {
        format!("{}/{most}", or_none(&count.map(|count| count.to_string())))
    };
    vec![
        or_none(&status.provider),
        or_none(&status.version),
        or_none(&status.complete_at),
        status.behind.to_string(),
        of_most(status.in_memory, status.buffer_size),
        of_most(status.on_disk, status.disk_buffer_max_events),
        status.dropped.to_string(),
        status.rejected.len().to_string(),
        status.acknowledged.to_string(),
        status.reported.to_string(),
        status.sent.to_string(),
        or_none(&status.retry_at),
        or_none(&status.round_began_at),
        or_none(&status.clock_skew_ms.map(|ms| ms.to_string())),
    ]
}

/// Returns the remarks that an operator should see in addition to the table.
fn remarks(status: &AccountingStatus) -> Vec<String> {
    if !status.enabled {
        return vec!["accounting is off on this cluster".to_owned()];
    }
    let mut said = Vec::new();
    if !status.is_active {
        said.push(
            "another control does the accounting: this one has only part of the data".to_owned(),
        );
    }
    let failure = status.failure.iter();
    said.extend(failure.map(|why| match &status.round_began_at {
        Some(began) => format!("a round runs since {began}; the one before failed: {why}"),
        None => format!("waiting: {why}"),
    }));
    let skew_s = status.clock_skew_ms.unwrap_or(0) / 1_000;
    if skew_s.abs() >= NOTABLE_SKEW_S {
        let side = if skew_s > 0 { "ahead of" } else { "behind" };
        said.push(format!(
            "the clock of the accounting system is {} s {side} that of the control; months end by its clock",
            skew_s.abs()
        ));
    }
    if status.full {
        said.push("the event queue on disk is full: the next event is dropped".to_owned());
    }
    if status.dropped > 0 {
        said.push(
            "events were dropped; totals are unaffected. `lattice admin accounting reconcile` \
             sends the events again"
                .to_owned(),
        );
    }
    let parked = status.rejected.iter();
    said.extend(parked.map(|parked| {
        format!(
            "refused since {}: {}: {}",
            parked.since, parked.subject, parked.reason
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
        "external_total",
        "recorded_total",
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
        difference.external_total.to_string(),
        difference.recorded_total.to_string(),
        difference.outcome.clone(),
        difference.reason.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}
