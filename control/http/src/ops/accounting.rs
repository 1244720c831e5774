//! Accounting status and reconciliation.

use super::{past_window, read, time, unexpected};
use crate::caller::{Caller, Role};
use crate::state::Api;
use lattice_api::{
    accounting::{
        AccountingStatus, MissingRightView, ReconcileRequest, ReconcileView, RejectedRequestView,
        TotalDifference,
    },
    amount::Hours,
    problem::{Kind, Problem},
};
use lattice_engine::accounting_connection::{AccountingConnection, ReconcileError};
use lattice_quorum_types::{
    UnixMillis,
    budget::HOUR_MS,
    usage_record::UsageRecordsHead,
    view::{Answer, Query},
};
use lattice_waldur::{
    journal::Bounds,
    missing_rights::MissingRightSummary,
    status::{Difference, Outcome, SyncStatus},
    sync::ReconcileMode,
};
use std::sync::Arc;

pub(crate) async fn status(api: &Api, caller: &Caller) -> Result<AccountingStatus, Problem> {
    let core = api.core();
    caller.check_cluster_role(Role::Operator, "reading the accounting status")?;
    let Some(connection) = api.stores().accounting.as_ref() else {
        return Ok(AccountingStatus::default());
    };
    let query = Query::UsageRecords {
        after: u64::MAX,
        limit: 0,
        since: UnixMillis(0),
    };
    let Answer::UsageRecords(_, head) = read(core, query).await? else {
        return Err(unexpected());
    };
    Ok(status_view(
        connection.status(),
        &head,
        connection.settings().bounds,
        core.view().dispatches,
    ))
}

fn status_view(
    status: SyncStatus,
    head: &UsageRecordsHead,
    bounds: Bounds,
    is_active: bool,
) -> AccountingStatus {
    // Before the first read the numbers of events are unknown.
    let events = status
        .collected_at
        .map(|_| (status.in_memory, status.on_disk));
    let missing_rights = status.missing_rights.summaries();
    let parked = status
        .parked
        .into_iter()
        .map(|(what, parked)| RejectedRequestView {
            subject: what,
            since: time(parked.since),
            reason: parked.reason,
        });
    AccountingStatus {
        enabled: true,
        is_active,
        provider: Some("waldur".to_owned()),
        version: status.version,
        complete_at: status.pushed_at.map(time),
        failure: status.failure,
        retry_at: status.retry_at.map(time),
        last: head.last,
        acknowledged: head.acknowledged,
        behind: head.last.saturating_sub(head.acknowledged),
        in_memory: events.map(|(in_memory, _)| in_memory),
        buffer_size: bounds.memory as u64,
        on_disk: events.map(|(_, on_disk)| on_disk),
        disk_buffer_max_events: bounds.disk as u64,
        full: status.is_full,
        // The quorum counts the acknowledged drops of all controls.
        dropped: head.dropped.saturating_add(status.dropped_unacknowledged),
        sent: status.sent,
        reported: status.reported,
        rejected: parked.collect(),
        round_began_at: status.round_since.map(time),
        clock_skew_ms: status.clock_skew_ms,
        missing_rights: missing_rights.into_iter().map(missing_right_view).collect(),
    }
}

fn missing_right_view(missing: MissingRightSummary) -> MissingRightView {
    MissingRightView {
        right: missing.right.name().to_owned(),
        places: missing.places,
        effect: missing.right.effect().to_owned(),
        next_step: missing.right.next_step().to_owned(),
        waiting: missing.waiting,
        since: time(missing.since),
        reason: missing.reason,
    }
}

pub(crate) async fn reconcile(
    api: &Api,
    caller: &Caller,
    request: ReconcileRequest,
) -> Result<ReconcileView, Problem> {
    let core = api.core();
    let by = caller.administrator("reconciling accounting totals")?;
    let connection = connection_if_acting(api)?;
    let window = past_window(Some(&request.since), Some(&request.until), core.now())?;
    let (Some(since), Some(until)) = (window.since, window.until) else {
        return Err(unexpected());
    };
    if since >= until {
        return Err(Problem::field("until", "must be later than `since`"));
    }
    let mode = match (request.dry_run, request.accept) {
        (true, true) => {
            return Err(Problem::field(
                "accept",
                "not together with `dry_run`, which changes nothing",
            ));
        }
        (true, false) => ReconcileMode::Compare,
        (false, false) => ReconcileMode::Correct,
        (false, true) => ReconcileMode::Accept(by),
    };
    let done = connection.reconcile(since, until, mode).await;
    let differences = done.map_err(|error| match error {
        ReconcileError::Busy => Problem::new(Kind::TooMany, "busy", error.to_string()),
        ReconcileError::Failed { .. } => {
            Problem::new(Kind::Unavailable, "accounting", error.to_string())
        }
    })?;
    Ok(ReconcileView {
        differences: differences.into_iter().map(difference_view).collect(),
    })
}

/// Handles a webhook call as a wake-up only. The content of the call is not trusted: the accounting task queries the
/// accounting system itself.
pub(crate) async fn webhook(api: &Api, secret: &str) -> Result<(), Problem> {
    let unknown = || {
        Problem::new(
            Kind::NotFound,
            "unknown_hook",
            "no hook of this name exists",
        )
    };
    let connection = api.stores().accounting.as_ref().ok_or_else(unknown)?;
    match connection.knows_hook(secret).await {
        true => {
            connection.wake();
            Ok(())
        }
        false => Err(unknown()),
    }
}

fn connection_if_acting(api: &Api) -> Result<&Arc<AccountingConnection>, Problem> {
    let core = api.core();
    let off =
        "accounting is disabled on this cluster; see `accounting` in control's configuration file";
    let connection = api.stores().accounting.as_ref();
    let connection =
        connection.ok_or_else(|| Problem::new(Kind::Conflict, "accounting_off", off))?;
    match core.view().dispatches {
        true => Ok(connection),
        false => {
            let detail = "accounting runs on another control (the one that holds the dispatch lease); \
                          send the request there";
            Err(Problem::new(Kind::Unavailable, "not_acting", detail))
        }
    }
}

fn difference_view(difference: Difference) -> TotalDifference {
    let hours = |hundredths: u64| Hours(hundredths.saturating_mul(HOUR_MS / 100));
    let (outcome, reason) = match difference.outcome {
        Outcome::Found => ("found", None),
        Outcome::Corrected => ("corrected", None),
        Outcome::Accepted => ("accepted", None),
        Outcome::NotBookable { reason } => ("not_bookable", Some(reason)),
    };
    TotalDifference {
        project: difference.project.to_string(),
        vcluster: difference.vcluster.to_string(),
        month: difference.month,
        component: difference.component,
        external_total: hours(difference.has),
        recorded_total: hours(difference.used),
        outcome: outcome.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_events_are_absent_before_the_first_read() {
        let bounds = Bounds {
            memory: 10,
            disk: 20,
        };
        let of = |status| {
            let shown = status_view(status, &UsageRecordsHead::default(), bounds, false);
            (shown.in_memory, shown.on_disk)
        };
        assert_eq!(of(SyncStatus::default()), (None, None));
        let read = SyncStatus {
            collected_at: Some(UnixMillis(7)),
            in_memory: 3,
            ..SyncStatus::default()
        };
        assert_eq!(of(read), (Some(3), Some(0)));
    }
}
