//! Accounting: delivery status, and reconciliation with the accounting system.

use crate::notation::amount::Hours;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Status of the delivery of usage to the accounting system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountingStatus {
    /// Whether accounting is configured.
    pub enabled: bool,
    /// Whether the control that answers is the control that sends to the accounting system. Another control has only
    /// part of these values.
    pub is_active: bool,
    /// `waldur`; `null` if accounting is not configured.
    pub provider: Option<String>,
    /// Version of the accounting system; `null` until the first request to it has succeeded, or if the token's user may
    /// not read it.
    pub version: Option<String>,
    /// Time at which the accounting system last had all usage; `null` if that has not happened since this control
    /// started.
    pub complete_at: Option<String>,
    /// Why the last delivery failed; `null` if it succeeded or there was none yet.
    pub failure: Option<String>,
    /// Time of the next retry.
    pub retry_at: Option<String>,
    /// Number of the newest usage record.
    pub last: u64,
    /// Number of the newest usage record that the accounting system has acknowledged.
    pub acknowledged: u64,
    /// Usage records that the accounting system has not acknowledged yet: `last` less `acknowledged`.
    #[serde(default)]
    pub behind: u64,
    /// Events in memory; `null` until this control has read the usage records and its journal.
    pub in_memory: Option<u64>,
    /// Maximum number of events in memory.
    pub buffer_size: u64,
    /// Events that are on disk only; `null` while `in_memory` is.
    pub on_disk: Option<u64>,
    /// Maximum number of events on disk.
    pub disk_buffer_max_events: u64,
    /// Whether the disk buffer is full, so that the next event is dropped.
    pub full: bool,
    /// Events dropped since the cluster was founded. Totals stay correct, and `reconcile` sends dropped events again.
    pub dropped: u64,
    /// Events sent since this control started.
    pub sent: u64,
    /// Usage reports sent since this control started.
    pub reported: u64,
    /// Requests that the accounting system rejects, and totals that differ from the recorded usage. Each rejected request
    /// is retried every 15 minutes and delays no other request.
    pub rejected: Vec<RejectedRequestView>,
    /// Start of the round that is running; `null` between two rounds. `failure` is that of the round before.
    pub round_began_at: Option<String>,
    /// Difference of the accounting system's clock from that of the control, in milliseconds; positive where that clock
    /// is ahead. `null` while it is unknown.
    pub clock_skew_ms: Option<i64>,
    /// Rights that the user of the accounting system's token lacks, each once, with the number of requests that wait for
    /// it. One request of each place is retried every 15 minutes, and a right that was granted disappears then.
    #[serde(default)]
    pub missing_rights: Vec<MissingRightView>,
}

/// Right in the accounting system that the token's user lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MissingRightView {
    /// Name of the permission or role in the accounting system, and where it is granted.
    pub right: String,
    /// Where it is missing: `vCluster batch` for its offering, `tenant physics` for its customer.
    pub places: Vec<String>,
    /// What does not work without it.
    pub effect: String,
    /// Step by which an administrator of the accounting system grants it.
    pub next_step: String,
    /// Number of requests that wait for it.
    pub waiting: u64,
    /// Time of the first rejection.
    pub since: String,
    /// Last rejected request, with the reason that the accounting system gave.
    pub reason: String,
}

/// Request that the accounting system rejects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectedRequestView {
    /// Subject of the request.
    pub subject: String,
    /// Time of the first rejection.
    pub since: String,
    /// Reason that the accounting system gave.
    pub reason: String,
}

/// Months to compare with the recorded usage and to correct.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileRequest {
    /// Start of the range: `2026-03-01`, or with a time. Every month that overlaps the range is included.
    pub since: String,
    /// End of the range, exclusive.
    pub until: String,
    /// Compare only, and correct nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Correct what can be corrected, and take the differences that remain in ended months off the status, for good.
    /// Not together with `dry_run`.
    #[serde(default)]
    pub accept: bool,
}

/// Result of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileView {
    /// Totals that differ, or differed, from the recorded usage; empty if all totals are right.
    pub differences: Vec<TotalDifference>,
}

/// Total that differs, or differed, from the recorded usage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TotalDifference {
    /// Project path.
    pub project: String,
    /// vCluster name.
    pub vcluster: String,
    /// Month: `2026-11`.
    pub month: String,
    /// `gpu_hours` or `node_hours`.
    pub component: String,
    /// Total in the accounting system before the reconciliation, hours.
    #[schema(value_type = f64)]
    pub external_total: Hours,
    /// Recorded usage, hours.
    #[schema(value_type = f64)]
    pub recorded_total: Hours,
    /// `found`, `corrected`, `accepted` or `not_bookable`.
    pub outcome: String,
    /// Why the total could not be corrected.
    pub reason: Option<String>,
}
