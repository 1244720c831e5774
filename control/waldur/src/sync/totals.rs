//! Monthly totals of each project in each vCluster.
//!
//! Each round reads what Waldur has in the month and compares it with the ledger, so that a report that was lost, came
//! late or was changed by hand is found in the next round.

use super::{
    AccountingSync, RoundError, SentReport, batch::Batch, held::HeldUsage, offering_name,
    parameters, set_aside::RightsScope,
};
use crate::{
    client::{
        Amounts, KnownResource, MAX_REQUESTS_AT_ONCE, MonthPhase, ObjectParameters, Objects,
        ResourceScope, Right, WaldurClient, WaldurError,
    },
    decimal::decimal,
    step::Step,
};
use futures::{StreamExt as _, stream};
use lattice_ledger::{Month, UsageByKind, hours::hundredths};
use lattice_quorum_types::{ProjectPath, VclusterName};
use std::collections::{BTreeMap, BTreeSet};

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

/// Result of the order of a missing resource.
enum Ordered {
    /// UUID of the resource.
    Made(String),
    /// There is no time in this round.
    Later,
    /// Waldur has rejected a request, which is set aside.
    Refused,
    /// The order waits for a right, or for a decision of an operator.
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
    /// Reports the totals of the present month that differ from those in `held`; first those of resources that exist, so
    /// that no report waits for orders. Returns whether all were sent.
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
        let accepting = accepting(known);
        let mut reports = Vec::new();
        let mut missing = Vec::new();
        // Usage in the resources of another offering, which has a line or waits for a right, was not read.
        let offerings = self.objects.offerings();
        let read: BTreeSet<_> = offerings.map(|(vcluster, _)| vcluster.clone()).collect();
        for (scope, amounts) in wanted {
            let name = total_name(&scope, month);
            if !read.contains(scope.vcluster()) {
                self.joins_wait(
                    &name,
                    &RightsScope::of_scope(&scope),
                    Right::is_for_new_resources,
                );
                continue;
            }
            if held.of(&scope) == amounts {
                self.note(|status| status.forget(&name));
                self.forget_fallen(&name);
                continue;
            }
            let Some(resource) = accepting.get(&scope) else {
                missing.push((scope, amounts));
                continue;
            };
            let prepared = self.prepare_present(resource, month, amounts, held).await;
            if let Some(report) = self.report_or_line(&name, &scope, prepared)?.flatten() {
                self.add_report(report, amounts, held, &mut reports);
            }
        }
        let are_sent = self.send_all(reports).await?;
        let missing = self.orderable(month, missing, held).await?;
        Ok(self.order_missing(month, missing, held).await? && are_sent)
    }

    /// The value of `prepared`; `None` where it is a refusal, which becomes a line in the status.
    fn report_or_line<T>(
        &mut self,
        name: &str,
        scope: &ResourceScope,
        prepared: Result<T, WaldurError>,
    ) -> Result<Option<T>, WaldurError> {
        match prepared.map_err(WaldurError::of_one_request) {
            // The line stays until the report is accepted.
            Ok(prepared) => Ok(Some(prepared)),
            Err(error) => {
                if matches!(error, WaldurError::Refused { .. }) {
                    self.objects.forget();
                }
                self.accept_or_park(name, &RightsScope::of_scope(scope), Err(error))
            }
        }
    }

    /// Adds a report of the present month to those that are sent, less what no report changes.
    fn add_report(
        &mut self,
        report: Report,
        amounts: Amounts,
        held: &HeldUsage,
        reports: &mut Vec<Report>,
    ) {
        let report = self.with_fixed_usage(report, amounts);
        match report.amounts == report.present(held) {
            // The total differs by what no report changes, which has a line.
            true => self.note(|status| status.forget(&report.name)),
            false => reports.push(report),
        }
    }

    /// The report of the present month for the scope of a resource. `None` while the total is set aside; one that is higher
    /// than the usage becomes a line in the status.
    async fn prepare_present(
        &mut self,
        resource: &KnownResource,
        month: Month,
        amounts: Amounts,
        held: &HeldUsage,
    ) -> Result<Option<Report>, WaldurError> {
        let name = total_name(&resource.scope, month);
        let has = held.of(&resource.scope);
        if has.exceeds(amounts) && !self.is_misbooked(resource, month, &name, held).await? {
            self.park(&name, higher(has, amounts));
            return Ok(None);
        }
        if self.is_parked(&name) {
            return Ok(None);
        }
        check_accepts(resource)?;
        let (plan, before) = (resource.plan.clone(), held.rows.of(&resource.uuid));
        let closed = self
            .closed_usage(&resource.uuid, month, plan, before)
            .await?;
        let booking = Booking::Present(month);
        Ok(Some(report_of(resource, booking, amounts, closed, held)))
    }

    /// The totals of projects without a resource for which one can be ordered now, by tenant. The others are set aside, or
    /// wait for a right; the line of an offering is enough for all of its totals.
    async fn orderable(
        &mut self,
        month: Month,
        missing: Vec<(ResourceScope, Amounts)>,
        held: &HeldUsage,
    ) -> Result<BTreeMap<ProjectPath, Vec<(ResourceScope, Amounts)>>, WaldurError> {
        let mut tenants: BTreeMap<ProjectPath, Vec<(ResourceScope, Amounts)>> = BTreeMap::new();
        for (scope, amounts) in missing {
            let name = total_name(&scope, month);
            let has = held.of(&scope);
            if has.exceeds(amounts) {
                self.park(&name, higher(has, amounts));
                continue;
            }
            if self.is_parked(&name) || !self.has_offering(scope.vcluster()).await? {
                continue;
            }
            let tenant = scope.project().tenant();
            tenants.entry(tenant).or_default().push((scope, amounts));
        }
        Ok(tenants)
    }

    /// Whether resources of a vCluster's offering can be ordered. Where they cannot, the offering has a line.
    async fn has_offering(&mut self, vcluster: &VclusterName) -> Result<bool, WaldurError> {
        let offering = offering_name(vcluster);
        if self.note(|status| status.reason(&offering).is_some()) {
            return Ok(false);
        }
        let parameters = parameters(&self.settings, &*self.cluster);
        let prepared = self
            .waldur
            .prepare_offering(&mut self.objects, &parameters, vcluster)
            .await;
        let place = RightsScope::of_vcluster(vcluster);
        let prepared = self.accept_or_park(&offering, &place, prepared)?;
        Ok(prepared.is_some())
    }

    /// Orders the missing resources of scopes and reports their totals, as long as there is time. Returns whether all
    /// were sent. Tenants are handled at the same time, and the projects of a tenant one after the other, because Waldur
    /// would create a customer twice.
    async fn order_missing(
        &mut self,
        month: Month,
        tenants: BTreeMap<ProjectPath, Vec<(ResourceScope, Amounts)>>,
        held: &HeldUsage,
    ) -> Result<bool, RoundError> {
        let batch = Batch::with_share_of(self.settings.interval);
        let (sync, batch) = (&*self, &batch);
        let order = |scopes: Vec<(ResourceScope, Amounts)>| async move {
            let mut objects = sync.objects.clone();
            let mut made = Vec::new();
            for (scope, amounts) in scopes {
                let one = sync.order_one(&mut objects, &scope, month, batch).await;
                made.push((scope, amounts, one));
            }
            (objects, made)
        };
        let done: Vec<_> = stream::iter(tenants.into_values())
            .map(order)
            .buffer_unordered(sync.waldur.requests_at_once())
            .collect()
            .await;
        let (mut reports, mut failure) = (Vec::new(), None);
        let (mut are_all_ordered, mut is_refused) = (true, false);
        for (objects, made) in done {
            self.objects.merge(objects);
            for (scope, amounts, one) in made {
                match one {
                    Ok(Ordered::Made(resource)) => {
                        let report = report_of_new(&scope, resource, month, amounts, held);
                        self.add_report(report, amounts, held, &mut reports);
                    }
                    Ok(Ordered::Later) => are_all_ordered = false,
                    Ok(Ordered::Refused) => is_refused = true,
                    Ok(Ordered::Waiting) => {}
                    Err(error) => failure = Some(error),
                }
            }
        }
        if is_refused {
            self.objects.forget();
        }
        let are_sent = self.send_all(reports).await?;
        match failure {
            Some(failure) => Err(failure.into()),
            None => Ok(are_sent && are_all_ordered),
        }
    }

    /// Orders the missing resource of a scope, if there is time, and no right is known to be missing.
    async fn order_one(
        &self,
        objects: &mut Objects,
        scope: &ResourceScope,
        month: Month,
        batch: &Batch,
    ) -> Result<Ordered, WaldurError> {
        if batch.is_over() {
            return Ok(Ordered::Later);
        }
        let (name, place) = (total_name(scope, month), RightsScope::of_scope(scope));
        if self.joins_wait(&name, &place, Right::is_for_new_resources) {
            return Ok(Ordered::Waiting);
        }
        let parameters = parameters(&self.settings, &*self.cluster);
        let made = ordered(&self.waldur, &parameters, objects, scope).await;
        let made = made.map_err(WaldurError::of_one_request);
        batch.note(&made);
        match made {
            // The line stays until the report is accepted.
            Ok(resource) => Ok(Ordered::Made(resource)),
            Err(error) => {
                let is_refused = matches!(error, WaldurError::Refused { .. });
                self.accept_or_park::<()>(&name, &place, Err(error))?;
                Ok(match is_refused {
                    true => Ordered::Refused,
                    false => Ordered::Waiting,
                })
            }
        }
    }

    /// The report of an ended month after which Waldur has `amounts` for a scope; `None` where it cannot be sent, which
    /// becomes a line in the status.
    pub(super) async fn prepare_or_park(
        &mut self,
        scope: &ResourceScope,
        booking: Booking,
        amounts: Amounts,
        known: &[KnownResource],
        held: &HeldUsage,
    ) -> Result<Option<Report>, WaldurError> {
        let name = total_name(scope, booking.month());
        let place = RightsScope::of_scope(scope);
        let is_new = !known.iter().any(|one| one.scope == *scope && is_made(one));
        let offering = offering_name(scope.vcluster());
        let has_offering = self.note(|status| !status.parked.contains_key(&offering));
        if is_new && (!has_offering || self.joins_wait(&name, &place, Right::is_for_new_resources))
        {
            return Ok(None);
        }
        let prepared = self.prepare(scope, booking, amounts, known, held).await;
        self.report_or_line(&name, scope, prepared)
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
        let found = known.iter().find(|one| one.scope == *scope && is_made(one));
        let Some(present) = found else {
            let parameters = parameters(&self.settings, &*self.cluster);
            let made = ordered(&self.waldur, &parameters, &mut self.objects, scope).await?;
            let mut report = report_of_new(scope, made, booking.month(), amounts, held);
            report.booking = booking;
            return Ok(report);
        };
        check_accepts(present)?;
        let closed = match booking {
            // Few totals are reconciled, so each may cost a call: a person may have changed the plan without an order.
            Booking::Present(month) => {
                let plan = present.plan.clone();
                self.read_closed_usage(&present.uuid, month, plan).await?
            }
            // Waldur chooses the period by the date of the report.
            Booking::Ended(_) => Amounts::default(),
        };
        Ok(report_of(present, booking, amounts, closed, held))
    }

    /// Sends reports, some at the same time. Returns whether all were sent; a rejected one counts as sent and is set
    /// aside. After a failure the others are not sent.
    pub(super) async fn send_all(&mut self, reports: Vec<Report>) -> Result<bool, RoundError> {
        let batch = Batch::default();
        let send = |report: Report| {
            let (sync, batch) = (&*self, &batch);
            async move {
                let done = match batch.is_over() {
                    true => Ok(Sent::Withheld),
                    false => sync.send_unless_waiting(&report).await,
                };
                batch.note(&done);
                (report, done)
            }
        };
        let done: Vec<_> = stream::iter(reports)
            .map(send)
            .buffer_unordered(MAX_REQUESTS_AT_ONCE)
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
        let place = RightsScope::of_scope(&report.scope);
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
        let (month, date) = match report.booking {
            Booking::Present(month) => (Some(month), None),
            Booking::Ended(month) => (None, Some(month)),
        };
        // The clock is read when the turn of the report has come: a round may take minutes.
        let may_send = || {
            let is_open = month.is_none_or(|month| self.is_open(month));
            if is_open {
                self.steps.at(Step::BeforeSend);
            }
            is_open
        };
        let description = format!("lattice {}", report.booking.month());
        let is_sent = self
            .waldur
            .set_usage(
                &report.resource,
                report.amounts,
                &description,
                date,
                &may_send,
            )
            .await?;
        if !is_sent {
            return Ok(Sent::Withheld);
        }
        self.steps.at(Step::AfterSend);
        self.note(|status| status.reported += 1);
        Ok(Sent::Accepted)
    }

    /// Whether usage of a month can be reported now as that of the present month.
    fn is_open(&self, month: Month) -> bool {
        let phase = self
            .waldur
            .month_phase(self.cluster.now(), &self.settings.zone);
        phase == MonthPhase::Open(month)
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

/// The resources to which usage is reported: the oldest one of each scope that Waldur has made.
fn accepting(known: &[KnownResource]) -> BTreeMap<ResourceScope, &KnownResource> {
    let made = known.iter().filter(|one| is_made(one)).rev();
    made.map(|one| (one.scope.clone(), one)).collect()
}

fn is_made(resource: &KnownResource) -> bool {
    resource.state != "Creating"
}

fn check_accepts(resource: &KnownResource) -> Result<(), WaldurError> {
    match resource.state == ERRED {
        true => Err(erred(resource)),
        false => Ok(()),
    }
}

/// The report after which Waldur has `amounts` for the scope of a resource with `closed` in ended plan periods.
fn report_of(
    resource: &KnownResource,
    booking: Booking,
    amounts: Amounts,
    closed: Amounts,
    held: &HeldUsage,
) -> Report {
    let before = held.rows.of(&resource.uuid);
    let fixed = held.of(&resource.scope).without(before).with(closed);
    Report {
        name: total_name(&resource.scope, booking.month()),
        scope: resource.scope.clone(),
        resource: resource.uuid.clone(),
        plan: resource.plan.clone(),
        before,
        closed,
        fixed,
        amounts: amounts.without(fixed),
        booking,
    }
}

/// The report for a resource that was just ordered, which has no ended plan period.
fn report_of_new(
    scope: &ResourceScope,
    resource: String,
    month: Month,
    amounts: Amounts,
    held: &HeldUsage,
) -> Report {
    let before = held.rows.of(&resource);
    let fixed = held.of(scope).without(before);
    Report {
        name: total_name(scope, month),
        scope: scope.clone(),
        resource,
        plan: None,
        before,
        closed: Amounts::default(),
        fixed,
        amounts: amounts.without(fixed),
        booking: Booking::Present(month),
    }
}

/// UUID of the resource of a scope for which Waldur shows none; one is ordered where it is missing. A resource in the cache
/// was ended in the meantime. A project or customer in the cache may have been deleted, and is then looked up again.
async fn ordered(
    waldur: &WaldurClient,
    parameters: &ObjectParameters<'_>,
    objects: &mut Objects,
    scope: &ResourceScope,
) -> Result<String, WaldurError> {
    objects.forget_resource(scope);
    match waldur.resource(objects, parameters, scope).await {
        Err(WaldurError::Refused { .. }) if objects.forget_project(scope.project()) => {
            waldur.resource(objects, parameters, scope).await
        }
        made => made,
    }
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
