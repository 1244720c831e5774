//! Monthly totals of each project in each vCluster.
//!
//! Each round reads what Waldur has in the month and compares it with the ledger, so that a report that was lost, came
//! late or was changed by hand is found in the next round.

use super::{
    AccountingSync, RoundError, SentReport, held::HeldUsage, offering_name, parameters,
    set_aside::Place,
};
use crate::{
    client::{Amounts, KnownResource, MonthPhase, ResourceScope, Right, WaldurError},
    decimal::decimal,
    step::Step,
};
use futures::{StreamExt as _, stream};
use lattice_ledger::{Month, UsageByKind, hours::hundredths};
use lattice_quorum_types::{ProjectPath, VclusterName};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

/// Reports that are sent at the same time.
const PARALLEL_REPORTS: usize = 8;

/// Report that is to be sent.
#[derive(Debug)]
pub(super) struct Report {
    /// Key in the status.
    pub(super) name: String,
    scope: ResourceScope,
    pub(super) resource: String,
    plan: Option<String>,
    /// Usage of the resource before the report.
    before: Amounts,
    /// Part of `before` in ended plan periods.
    closed: Amounts,
    /// Usage of the scope that no report changes: `closed`, and that of former resources.
    pub(super) fixed: Amounts,
    pub(super) amounts: Amounts,
    booking: Booking,
}

impl Report {
    /// Amounts that the report replaces: those of the present plan period of its resource.
    pub(super) fn present(&self, held: &HeldUsage) -> Amounts {
        held.rows.of(&self.resource).without(self.closed)
    }
}

/// Month into which a report is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Booking {
    /// The present month, which Waldur takes from its own clock.
    Present(Month),
    /// An ended month, which the report names.
    Ended(Month),
}

impl Booking {
    fn month(self) -> Month {
        match self {
            Self::Present(month) | Self::Ended(month) => month,
        }
    }
}

/// Result of a report.
enum Sent {
    /// Waldur has accepted the report.
    Accepted,
    /// The report was not sent: a month ends about now, or an earlier report failed.
    Withheld,
    /// Waldur has rejected the report, which is set aside.
    Rejected,
    /// The token's user lacks the right to report.
    Waiting,
}

/// Name of a total in the status.
pub(super) fn total_name(scope: &ResourceScope, month: Month) -> String {
    format!("usage {scope} {month}")
}

/// Whether a key is that of a total in the month of which `of_month` is the end of the key.
pub(super) fn is_total_of(key: &str, of_month: &str) -> bool {
    key.starts_with("usage ") && key.ends_with(of_month)
}

impl AccountingSync {
    /// Reports the totals of the present month that differ from those in `held`. Returns whether all were sent.
    pub(super) async fn report_totals(
        &mut self,
        month: Month,
        wanted: BTreeMap<ResourceScope, Amounts>,
        known: &[KnownResource],
        held: &HeldUsage,
    ) -> Result<bool, RoundError> {
        let names: BTreeSet<String> = wanted.keys().map(|one| total_name(one, month)).collect();
        let of_month = format!(" {month}");
        self.note(|status| {
            // A total that is not to be reported any more waits for no right.
            let is_needed = |key: &str| !is_total_of(key, &of_month) || names.contains(key);
            status.missing_rights.retain(is_needed);
        });
        let mut reports = Vec::new();
        let moved = self.moved.len();
        // Usage in the resources of another offering, which has a line or waits for a right, was not read.
        let offerings = self.objects.offerings();
        let read: BTreeSet<_> = offerings.map(|(vcluster, _)| vcluster.clone()).collect();
        for (scope, amounts) in wanted {
            let name = total_name(&scope, month);
            if !read.contains(scope.vcluster()) {
                self.joins_wait(&name, &Place::of_scope(&scope), Right::is_for_new_resources);
                continue;
            }
            let has = held.of(&scope);
            if has == amounts {
                self.note(|status| status.forget(&name));
                self.forget_fallen(&name);
                continue;
            }
            match self.may_report(&scope, month, amounts, known, held).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    self.accept_or_park::<()>(&name, &Place::of_scope(&scope), Err(error))?;
                    continue;
                }
            }
            let booking = Booking::Present(month);
            let prepared = self.prepare_or_park(&scope, booking, amounts, known, held);
            let Some(report) = prepared.await? else {
                continue;
            };
            let report = self.with_fixed_usage(report, amounts);
            match report.amounts == report.present(held) {
                // The total differs by what no report changes, which has a line.
                true => self.note(|status| status.forget(&name)),
                false => reports.push(report),
            }
        }
        // The next round reports the totals with usage in former offerings.
        let are_prepared = self.moved.len() == moved;
        Ok(self.send_all(reports).await? && are_prepared)
    }

    /// Whether a total that differs is reported now. One that is higher than the usage becomes a line in the status.
    async fn may_report(
        &mut self,
        scope: &ResourceScope,
        month: Month,
        amounts: Amounts,
        known: &[KnownResource],
        held: &HeldUsage,
    ) -> Result<bool, WaldurError> {
        let name = total_name(scope, month);
        if self.finds_moved(scope, month, known).await? {
            return Ok(false);
        }
        let has = held.of(scope);
        if has.exceeds(amounts) && !self.is_misbooked(scope, month, known, held).await? {
            self.park(&name, higher(has, amounts));
            return Ok(false);
        }
        Ok(!self.is_parked(&name))
    }

    /// The report after which Waldur has `amounts` for a scope; `None` where it cannot be sent, which becomes a line in
    /// the status.
    pub(super) async fn prepare_or_park(
        &mut self,
        scope: &ResourceScope,
        booking: Booking,
        amounts: Amounts,
        known: &[KnownResource],
        held: &HeldUsage,
    ) -> Result<Option<Report>, WaldurError> {
        let name = total_name(scope, booking.month());
        let place = Place::of_scope(scope);
        let is_new = accepting(known, scope).is_none();
        // The line of the offering is enough for all of its totals.
        let offering = offering_name(scope.vcluster());
        let has_offering = self.note(|status| !status.parked.contains_key(&offering));
        if is_new && (!has_offering || self.joins_wait(&name, &place, Right::is_for_new_resources))
        {
            return Ok(None);
        }
        let prepared = self.prepare(scope, booking, amounts, known, held).await;
        match prepared.map_err(WaldurError::of_one_request) {
            // The line stays until the report is accepted.
            Ok(report) => Ok(Some(report)),
            Err(error) => {
                if matches!(error, WaldurError::Refused { .. }) {
                    self.objects.forget();
                }
                self.accept_or_park(&name, &place, Err(error))
            }
        }
    }

    /// The report after which Waldur has `amounts` for a scope. Orders a resource where none accepts usage.
    pub(super) async fn prepare(
        &mut self,
        scope: &ResourceScope,
        booking: Booking,
        amounts: Amounts,
        known: &[KnownResource],
        held: &HeldUsage,
    ) -> Result<Report, WaldurError> {
        let month = booking.month();
        let (resource, plan) = match accepting(known, scope) {
            Some(present) if present.state == ERRED => return Err(erred(present)),
            Some(present) => (present.uuid.clone(), present.plan.clone()),
            None => (self.ordered(scope).await?, None),
        };
        let before = held.rows.of(&resource);
        let closed = match booking {
            Booking::Present(_) => {
                self.closed_usage(&resource, month, plan.clone(), before)
                    .await?
            }
            // Waldur chooses the period by the date of the report.
            Booking::Ended(_) => Amounts::default(),
        };
        let fixed = held.of(scope).without(before).with(closed);
        Ok(Report {
            name: total_name(scope, month),
            scope: scope.clone(),
            resource,
            plan,
            before,
            closed,
            fixed,
            amounts: amounts.without(fixed),
            booking,
        })
    }

    /// UUID of the resource of a scope for which Waldur shows none; one is ordered where it is missing. A project or
    /// customer in the cache may have been deleted in the meantime, and is then looked up again.
    async fn ordered(&mut self, scope: &ResourceScope) -> Result<String, WaldurError> {
        self.objects.forget_resource(scope);
        let made = self.resource(scope).await;
        match made {
            Err(WaldurError::Refused { .. }) if self.objects.forget_project(scope.project()) => {
                self.resource(scope).await
            }
            made => made,
        }
    }

    async fn resource(&mut self, scope: &ResourceScope) -> Result<String, WaldurError> {
        let parameters = parameters(&self.settings, &*self.cluster);
        self.waldur
            .resource(&mut self.objects, &parameters, scope)
            .await
    }

    /// Sends reports, some at the same time. Returns whether all were sent; a rejected one counts as sent and is set
    /// aside. After a failure the others are not sent.
    pub(super) async fn send_all(&mut self, reports: Vec<Report>) -> Result<bool, RoundError> {
        let stops = AtomicBool::new(false);
        let send = |report: Report| {
            let (sync, stops) = (&*self, &stops);
            async move {
                let done = match stops.load(Ordering::Relaxed) {
                    true => Ok(Sent::Withheld),
                    false => sync.send_unless_waiting(&report).await,
                };
                if done.as_ref().is_err_and(WaldurError::is_transient) {
                    stops.store(true, Ordering::Relaxed);
                }
                (report, done)
            }
        };
        let done: Vec<_> = stream::iter(reports)
            .map(send)
            .buffer_unordered(PARALLEL_REPORTS)
            .collect()
            .await;
        let mut failure = None;
        let mut are_all_sent = true;
        for (report, done) in done {
            match done {
                Ok(Sent::Accepted) => self.note_sent(report),
                Ok(Sent::Withheld) => are_all_sent = false,
                Ok(Sent::Rejected) => {
                    // The resource may have ended, or its plan period.
                    self.closed_usage.remove(&report.resource);
                    self.objects.forget();
                }
                Ok(Sent::Waiting) => {}
                Err(error) => {
                    self.closed_usage.remove(&report.resource);
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(failure) => Err(failure.into()),
            None => Ok(are_all_sent),
        }
    }

    fn note_sent(&mut self, report: Report) {
        self.note_fixed_usage(&report);
        let sent = SentReport {
            month: report.booking.month(),
            plan: report.plan,
            before: report.before,
            closed: report.closed,
            amounts: report.amounts,
        };
        self.sent.insert(report.resource, sent);
    }

    /// Sends a report, unless another one of the same vCluster was rejected meanwhile for the lack of the right.
    async fn send_unless_waiting(&self, report: &Report) -> Result<Sent, WaldurError> {
        let place = Place::of_scope(&report.scope);
        let needed = match report.booking {
            Booking::Present(_) => Right::SetUsage,
            Booking::Ended(_) => Right::BookEndedMonths,
        };
        if self.joins_wait(&report.name, &place, |right| right == needed) {
            return Ok(Sent::Waiting);
        }
        match self.send(report).await {
            // A withheld report answers nothing: its line stays.
            Ok(Sent::Withheld) => Ok(Sent::Withheld),
            done => {
                let is_right = matches!(done, Err(WaldurError::MissingRight { .. }));
                let sent = self.accept_or_park(&report.name, &place, done)?;
                Ok(match (sent, is_right) {
                    (Some(sent), _) => sent,
                    (None, true) => Sent::Waiting,
                    (None, false) => Sent::Rejected,
                })
            }
        }
    }

    async fn send(&self, report: &Report) -> Result<Sent, WaldurError> {
        let date = match report.booking {
            Booking::Present(month) => {
                // The clock is read before each report: a round may take minutes.
                let now = self.cluster.now();
                let phase = self.waldur.month_phase(now, &self.settings.zone);
                if phase != MonthPhase::Open(month) {
                    return Ok(Sent::Withheld);
                }
                None
            }
            Booking::Ended(month) => Some(month),
        };
        let description = format!("lattice {}", report.booking.month());
        self.steps.at(Step::BeforeSend);
        self.waldur
            .set_usage(&report.resource, report.amounts, &description, date)
            .await?;
        self.steps.at(Step::AfterSend);
        self.note(|status| status.reported += 1);
        Ok(Sent::Accepted)
    }

    /// Totals by resource that are to be in Waldur.
    pub(super) fn resource_totals(
        &self,
        used: BTreeMap<(ProjectPath, VclusterName), UsageByKind>,
    ) -> BTreeMap<ResourceScope, Amounts> {
        let by_allocation = self.settings.order_per_allocation;
        let total = |((project, vcluster), used): (_, UsageByKind)| {
            // With one resource per allocation, only idle usage of claimed nodes is left for the project's resource.
            let used = match by_allocation {
                true => used.idle,
                false => used.billed(),
            };
            let amounts = Amounts {
                node: hundredths(used.node_ms),
                gpu: hundredths(used.gpu_ms),
            };
            (ResourceScope::Project(project, vcluster), amounts)
        };
        let totals = used.into_iter().map(total);
        totals
            .filter(|(_, amounts)| *amounts != Amounts::default())
            .collect()
    }
}

/// State of a resource that accepts no usage until a person has cured it.
const ERRED: &str = "Erred";

/// The resource of a scope to which usage is reported: the oldest one that Waldur has made.
pub(super) fn accepting<'a>(
    known: &'a [KnownResource],
    scope: &ResourceScope,
) -> Option<&'a KnownResource> {
    known
        .iter()
        .find(|one| one.scope == *scope && one.state != "Creating")
}

fn erred(resource: &KnownResource) -> WaldurError {
    WaldurError::Unusable {
        what: format!("usage of {}", resource.scope),
        reason: format!(
            "resource {} is in state Erred and accepts no usage; as the provider's owner, order its end in Waldur and \
             reject that order",
            resource.uuid
        ),
    }
}

/// Amounts as text.
pub(super) fn written(amounts: Amounts) -> String {
    let (node, gpu) = (decimal(amounts.node), decimal(amounts.gpu));
    format!("{node} node-hours and {gpu} GPU-hours")
}

/// Reason for a total that Waldur has and that is higher than the usage, for example because GPUs are counted
/// differently now or the amount was changed by hand. An operator must decide.
pub(super) fn higher(has: Amounts, used: Amounts) -> String {
    format!(
        "Waldur has {}, and {} were used; a total is lowered by `lattice admin accounting reconcile` alone",
        written(has),
        written(used)
    )
}
