//! How accounting stands, and putting it right.

use crate::amount::Hours;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How accounting stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountingStatus {
    /// Whether anything of it runs.
    pub enabled: bool,
    /// Whether the control that answers is the one that does it. Another one knows less.
    pub acts: bool,
    /// `waldur`; `null`: nothing of it runs.
    pub provider: Option<String>,
    /// Of which version it is; `null`: it was not asked yet.
    pub version: Option<String>,
    /// When it last had everything there was; `null`: not since this control began.
    pub pushed_at: Option<String>,
    /// Why it did not when it was last tried; `null`: it did, or was not tried yet.
    pub failure: Option<String>,
    /// When it is tried again.
    pub retry_at: Option<String>,
    /// Number of the last fact there is.
    pub last: u64,
    /// Up to which it has them.
    pub acknowledged: u64,
    /// Events in memory.
    pub in_memory: u64,
    /// How many may be.
    pub buffer_size: u64,
    /// Events on the disk alone.
    pub on_disk: u64,
    /// How many may be.
    pub disk_buffer_max_events: u64,
    /// As many events are on the disk as may be: the next one is dropped.
    pub full: bool,
    /// Events that were dropped, ever. No total is another for it; `reconcile` tells them again.
    pub dropped: u64,
    /// Events that were sent since this control began.
    pub sent: u64,
    /// Reports of usage that were sent since this control began.
    pub reported: u64,
    /// What it refuses. It is tried again every quarter of an hour, and nothing waits for it.
    pub parked: Vec<ParkedView>,
}

/// Something that the accounting system refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParkedView {
    /// What it is about.
    pub what: String,
    /// Since when.
    pub since: String,
    /// What the accounting system says.
    pub reason: String,
}

/// Which months are compared with what was used, and set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileRequest {
    /// Every month of which a part lies behind this moment: `2026-03-01`, or with a time.
    pub since: String,
    /// And before this one.
    pub until: String,
    /// Only compare.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileView {
    /// Totals that are, or were, not what was used; none: all are right.
    pub differences: Vec<TotalDifference>,
}

/// One total that is, or was, not what was used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TotalDifference {
    /// Of which project.
    pub project: String,
    /// In which vCluster.
    pub vcluster: String,
    /// Of which month: `2026-11`.
    pub month: String,
    /// `gpu_hours` or `node_hours`.
    pub component: String,
    /// What the accounting system had.
    #[schema(value_type = f64)]
    pub had: Hours,
    /// What was used.
    #[schema(value_type = f64)]
    pub used: Hours,
    /// `found`, `corrected` or `not_bookable`.
    pub outcome: String,
    /// Why it could not be put right.
    pub reason: Option<String>,
}
