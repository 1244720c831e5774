//! Synchronisation of an accounting system with the cluster, in rounds. A round may be interrupted at any moment
//! and repeated.
//!
//! A round reads the usage records since the last round and appends their events to the journal. The round then reads
//! what Waldur has, and reports the usage of each project in each vCluster in this month where it differs, once also the
//! final usage of the month before, and the single events if the settings require them. Then the round acknowledges the
//! records to the quorum, answers the orders of customers, and applies the limits and credits from Waldur. Totals are
//! absolute and come from the ledger, so a repeated report counts nothing twice, and a lost event is not missing in the
//! totals.

mod batch;
mod events;
mod held;
mod limits;
mod months;
mod next_round;
mod orders;
mod plan_periods;
mod reconcile;
mod records;
mod retry;
mod set_aside;
mod totals;

pub use reconcile::ReconcileMode;
use retry::Retry;

use crate::{
    client::{
        Amounts, MonthPhase, ObjectParameters, Objects, PlanSwitches, ResourceScope, UsageRows,
        WaldurClient, WaldurError,
    },
    cluster::{AccountedCluster, ClusterError, UsageTotals},
    config::AccountingSettings,
    event::Event,
    journal::{Journal, JournalError},
    status::SyncStatus,
    step::StepObserver,
};
use lattice_ledger::Month;
use lattice_quorum_types::{ProjectPath, Revision, UnixMillis, VclusterName};
use parking_lot::Mutex;
use set_aside::RightsScope;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Usage records per read.
const USAGE_RECORDS_PER_READ: u32 = 1_000;
/// Time after which a rejected request is tried again, in milliseconds.
const PARKED_MS: u64 = 900_000;

/// Reason why a round failed. The round is repeated.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// A call to the cluster failed.
    #[error("the quorum: {0}")]
    Cluster(#[from] ClusterError),
    /// A call to Waldur failed.
    #[error(transparent)]
    Waldur(#[from] WaldurError),
    /// The journal cannot be read or written.
    #[error("the journal: {0}")]
    Journal(#[from] JournalError),
}

/// Report that Waldur has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SentReport {
    month: Month,
    /// [`crate::client::KnownResource::plan`] of the resource at that time.
    plan: Option<String>,
    /// Usage of the resource in the month before the report.
    before: Amounts,
    /// Part of `before` in ended plan periods, as far as it was known.
    closed: Amounts,
    amounts: Amounts,
}

impl SentReport {
    /// Usage of the resource in the month after the report.
    fn after(&self) -> Amounts {
        self.closed.with(self.amounts)
    }
}

/// Result of a round.
enum Progress {
    /// Waldur has all reports.
    Done,
    /// A retry is not due yet, or usage is not read yet.
    Waiting,
}

/// Synchronises Waldur with the cluster. See the module documentation.
pub struct AccountingSync {
    cluster: Arc<dyn AccountedCluster>,
    steps: Arc<dyn StepObserver>,
    settings: AccountingSettings,
    waldur: WaldurClient,
    objects: Objects,
    journal: Option<Journal>,
    /// Number of the last usage record that was read.
    collected: u64,
    /// Revision of the quorum at the last read; after a start, that of the last event in the journal.
    seen: Option<Revision>,
    /// Plan switches of the present month.
    switches: PlanSwitches,
    /// Usage rows of the present month and the one before.
    usage_rows: UsageRows,
    /// Usage in ended plan periods by resource, with the month and the present plan for which it was read.
    closed_usage: BTreeMap<String, (Month, Option<String>, Amounts)>,
    /// Usage that no report changes, by the name of its total, with the resource that is reported to.
    fixed_usage: BTreeMap<String, (String, Amounts)>,
    /// Resources of this cluster with usage in former offerings, by month, each with its offering.
    moved: BTreeMap<Month, Vec<(String, String)>>,
    /// Last report of each resource by this process.
    sent: BTreeMap<String, SentReport>,
    /// Scopes of resources that accept no usage any more; `None` for those of others.
    former: BTreeMap<String, Option<ResourceScope>>,
    /// Ended months with final totals that are compared and booked, or accepted.
    closed: BTreeSet<Month>,
    /// Time of the last read of Waldur's version.
    version_at: Option<UnixMillis>,
    /// Time of the last reconciliation on schedule.
    reconciled_at: Option<UnixMillis>,
    /// Node limits of tenants that were last applied from Waldur.
    applied_limits: BTreeMap<ProjectPath, u64>,
    /// Open orders that the last round has seen, each with whether it waited for the provider's approval.
    seen_orders: BTreeSet<(String, bool)>,
    /// Rejected single events, by their key in [`SyncStatus::parked`].
    refused: BTreeMap<String, Event>,
    /// Month of which the last round before its end has begun; see [`AccountingSync::next_round_in`].
    final_round: Option<Month>,
    /// Time that a round needs until all reports are sent; zero before the first such round.
    report_time: Duration,
    /// Whether the last round ended before it sent reports, without a failure.
    is_waiting: bool,
    failures: u32,
    retry: Option<Retry>,
    status: Arc<Mutex<SyncStatus>>,
}

impl AccountingSync {
    /// Creates the synchronisation of a cluster with a Waldur instance.
    pub fn new(
        cluster: Arc<dyn AccountedCluster>,
        waldur: WaldurClient,
        settings: AccountingSettings,
        steps: Arc<dyn StepObserver>,
    ) -> Self {
        Self {
            cluster,
            steps,
            settings,
            waldur,
            objects: Objects::default(),
            journal: None,
            collected: 0,
            seen: None,
            switches: PlanSwitches::default(),
            usage_rows: UsageRows::default(),
            closed_usage: BTreeMap::new(),
            fixed_usage: BTreeMap::new(),
            moved: BTreeMap::new(),
            sent: BTreeMap::new(),
            former: BTreeMap::new(),
            closed: BTreeSet::new(),
            version_at: None,
            reconciled_at: None,
            applied_limits: BTreeMap::new(),
            seen_orders: BTreeSet::new(),
            refused: BTreeMap::new(),
            final_round: None,
            report_time: Duration::ZERO,
            is_waiting: false,
            failures: 0,
            retry: None,
            status: Arc::default(),
        }
    }

    /// Shared status, for display and metrics.
    pub fn status(&self) -> Arc<Mutex<SyncStatus>> {
        self.status.clone()
    }

    /// Interval between two rounds.
    pub fn interval(&self) -> Duration {
        self.settings.interval
    }

    /// Runs one round. Failures are recorded in the status; rejected requests are set aside.
    pub async fn round(&mut self) {
        let ended = self.run_round().await;
        let now = self.cluster.now();
        let skew_ms = self.waldur.clock_skew_ms(now);
        self.note(|status| {
            status.round_since = None;
            status.clock_skew_ms = skew_ms;
        });
        self.is_waiting = matches!(ended, Ok(Progress::Waiting));
        match &ended {
            Ok(Progress::Waiting) => return,
            Ok(Progress::Done) => {
                self.failures = 0;
                self.retry = None;
            }
            Err(error) => {
                let requested = match error {
                    RoundError::Waldur(error) => error.retry_after(),
                    RoundError::Cluster(_) | RoundError::Journal(_) => None,
                };
                let retry = Retry::after(now, self.failures, requested);
                self.failures = self.failures.saturating_add(1);
                self.retry = Some(retry);
                self.final_round = None;
                let wait_ms = retry.remaining_ms(now);
                tracing::warn!(%error, wait_ms, "accounting round failed; retry scheduled");
            }
        }
        let retry_at = self.retry.map(Retry::at);
        self.note(|status| {
            status.failure = ended.as_ref().err().map(ToString::to_string);
            status.retry_at = retry_at;
            if ended.is_ok() {
                status.pushed_at = Some(now);
            }
        });
    }

    async fn run_round(&mut self) -> Result<Progress, RoundError> {
        // Events are written to the journal even while Waldur does not answer.
        self.collect().await?;
        let now = self.cluster.now();
        if self.retry.is_some_and(|retry| retry.remaining_ms(now) > 0) {
            return Ok(Progress::Waiting);
        }
        let began = Instant::now();
        self.note(|status| {
            status.round_since = Some(now);
            status.retry_at = None;
            status.missing_rights.begin_round(now);
        });
        self.read_version().await?;
        let present = Month::of(now, &self.settings.zone);
        let first = self.first_compared(present).await?;
        if !self.prepare_offerings(now, first).await? {
            return Ok(Progress::Waiting);
        }
        let (month, mut known) = self.known(now).await?;
        let is_open = self.waldur.month_phase(now, &self.settings.zone) == MonthPhase::Open(month);
        self.reopen(month);
        if is_open && !self.close_ended(month, &known).await? {
            return Ok(Progress::Waiting);
        }
        self.note_final_round();
        let Some(totals) = self.present_totals(month) else {
            return Ok(Progress::Waiting);
        };
        let through = totals.through;
        let wanted = self.resource_totals(totals.used);
        let held = self.held(month, &known, &wanted).await?;
        let is_reported = is_open && self.report_totals(month, wanted, &known, &held).await?;
        if is_reported {
            self.note_report_time(began.elapsed());
            let through = self.send_events(through.min(self.collected)).await?;
            self.acknowledge(through).await?;
        }
        if self.answer_orders(&mut known).await? {
            (_, known) = self.known(now).await?;
        }
        if is_reported {
            self.terminate_orphaned_resources(&known).await?;
        }
        self.follow_limits(now, &known, &held.rows).await?;
        if is_open {
            self.reconcile_on_schedule(month, now).await?;
        }
        Ok(Progress::Done)
    }

    /// Usage of the present month, up to the last state that the ledger knows, and no further than the end of the month by
    /// our clock: Waldur's may be behind it. Our own clock does not count, because it may be set back.
    fn present_totals(&self, month: Month) -> Option<UsageTotals> {
        let zone = &self.settings.zone;
        self.cluster.totals(month.begins(zone), month.ends(zone))
    }

    /// Reads Waldur's version, until it is known. A version that the token's user may not read is tried again as a
    /// rejected request is.
    async fn read_version(&mut self) -> Result<(), WaldurError> {
        let now = self.cluster.now();
        // A clock that was set back ends the wait.
        let was_refused = |at: UnixMillis| now >= at && now.since(at) < PARKED_MS;
        if self.note(|status| status.version.is_some()) || self.version_at.is_some_and(was_refused)
        {
            return Ok(());
        }
        let version = self.waldur.version().await?;
        self.version_at = Some(now);
        self.note(|status| status.version = version);
        Ok(())
    }

    /// Looks up the offerings of all vClusters with usage since the month `first`, and of those in the settings. Returns
    /// `false` while usage is not read yet.
    async fn prepare_offerings(
        &mut self,
        now: UnixMillis,
        first: Month,
    ) -> Result<bool, RoundError> {
        let from = first.begins(&self.settings.zone);
        let Some(totals) = self.cluster.totals(from, now) else {
            return Ok(false);
        };
        let used = totals.used.into_keys().map(|(_, vcluster)| vcluster);
        let vclusters: BTreeSet<_> = used
            .chain(self.settings.offerings.keys().cloned())
            .collect();
        for vcluster in vclusters {
            let name = offering_name(&vcluster);
            if self.is_parked(&name) {
                continue;
            }
            let parameters = parameters(&self.settings, &*self.cluster);
            let prepared = self
                .waldur
                .prepare_offering(&mut self.objects, &parameters, &vcluster)
                .await;
            self.accept_or_park(&name, &RightsScope::of_vcluster(&vcluster), prepared)?;
        }
        Ok(true)
    }

    fn note<T>(&self, change: impl FnOnce(&mut SyncStatus) -> T) -> T {
        change(&mut self.status.lock())
    }
}

/// Key of the offering of a vCluster in the status.
fn offering_name(vcluster: &VclusterName) -> String {
    format!("offering of {vcluster}")
}

/// Parameters for creating objects in Waldur.
fn parameters<'a>(
    settings: &'a AccountingSettings,
    cluster: &'a dyn AccountedCluster,
) -> ObjectParameters<'a> {
    ObjectParameters::new(cluster.cluster(), settings)
}
