//! `lattice admin accounting`: delivery of usage to the accounting system, and reconciliation.

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns},
};
use clap::{Args, Subcommand};
use lattice_api::accounting::{
    AccountingStatus, MissingRightView, ReconcileRequest, TotalDifference,
};

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
        "missing_rights",
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
        status.missing_rights.len().to_string(),
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
    said.extend(status.missing_rights.iter().map(missing_right));
    let parked = status.rejected.iter();
    said.extend(parked.map(|parked| {
        format!(
            "refused since {}: {}: {}",
            parked.since, parked.subject, parked.reason
        )
    }));
    said
}

fn missing_right(missing: &MissingRightView) -> String {
    let places: Vec<&str> = missing.places.iter().map(String::as_str).collect();
    format!(
        "missing right since {}: {} ({}): {}; {} requests wait. To grant it: {}. Last answer: {}",
        missing.since,
        missing.right,
        places.join(", "),
        missing.effect,
        missing.waiting,
        missing.next_step,
        missing.reason,
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_one_remark() {
        let missing = MissingRightView {
            right: "RESOURCE.SET_USAGE on the provider's customer or the offering".to_owned(),
            places: vec!["vCluster batch".to_owned(), "vCluster debug".to_owned()],
            effect: "no usage is reported".to_owned(),
            next_step: "as staff, `POST /api/customers/PROVIDER/add_user/`".to_owned(),
            waiting: 1_000,
            since: "2026-11-28T10:00:00Z".to_owned(),
            reason: "set_usage/ answered with status 403: no".to_owned(),
        };
        let status = AccountingStatus {
            enabled: true,
            is_active: true,
            missing_rights: vec![missing],
            ..AccountingStatus::default()
        };
        assert_eq!(
            remarks(&status),
            [
                "missing right since 2026-11-28T10:00:00Z: RESOURCE.SET_USAGE on the provider's \
                 customer or the offering (vCluster batch, vCluster debug): no usage is reported; \
                 1000 requests wait. To grant it: as staff, `POST \
                 /api/customers/PROVIDER/add_user/`. Last answer: set_usage/ answered with status \
                 403: no"
            ]
        );
        assert_eq!(row(&status)[8], "1");
    }
}
