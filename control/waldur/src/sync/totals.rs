//! Monthly totals of each project in each vCluster.

use super::{AccountingSync, RoundError, parameters};
use crate::{
    client::{Amounts, ResourceScope, WaldurError},
    decimal::decimal,
    step::Step,
};
use lattice_ledger::{Month, UsageByKind, hours::hundredths};
use lattice_quorum_types::{ProjectPath, UnixMillis, VclusterName};
use std::collections::BTreeMap;

/// Time after the end of a month before it is closed, in milliseconds: usage of its last moments is known by then.
const SETTLED_MS: u64 = 60_000;

impl AccountingSync {
    /// Reports the totals of this month, and once those of the month before. Returns the number of the usage record up
    /// to which the totals reach; `None` while usage is not read yet.
    pub(super) async fn report_totals(
        &mut self,
        now: UnixMillis,
    ) -> Result<Option<u64>, RoundError> {
        let month = Month::of(now, &self.settings.zone);
        let begins = month.begins(&self.settings.zone);
        if now.since(begins) >= SETTLED_MS && !self.close(month.previous()).await? {
            return Ok(None);
        }
        let Some(totals) = self.cluster.totals(begins, now) else {
            return Ok(None);
        };
        for (scope, amounts) in self.resource_totals(totals.used) {
            self.report(&scope, month, amounts, BookingMonth::Present)
                .await?;
        }
        Ok(Some(totals.through))
    }

    /// Reports the final totals of an ended month, once. Returns `false` while the totals are not known yet.
    async fn close(&mut self, month: Month) -> Result<bool, RoundError> {
        if self.closed.contains(&month) {
            return Ok(true);
        }
        let zone = &self.settings.zone;
        let Some(totals) = self.cluster.totals(month.begins(zone), month.ends(zone)) else {
            return Ok(false);
        };
        for (scope, amounts) in self.resource_totals(totals.used) {
            self.report(&scope, month, amounts, BookingMonth::Ended)
                .await?;
        }
        self.closed.insert(month);
        // Earlier months change only by reconciliation.
        self.reported.retain(|(_, reported), _| *reported >= month);
        Ok(true)
    }

    pub(super) fn resource_totals(
        &self,
        used: BTreeMap<(ProjectPath, VclusterName), UsageByKind>,
    ) -> Vec<(ResourceScope, Amounts)> {
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

    /// Sets the totals of one resource and month, unless Waldur has the same amounts. A report that would lower an
    /// amount is set aside.
    async fn report(
        &mut self,
        scope: &ResourceScope,
        month: Month,
        amounts: Amounts,
        booked: BookingMonth,
    ) -> Result<(), RoundError> {
        let key = (scope.clone(), month);
        let name = format!("usage {} {month}", scope.backend_id());
        if self.reported.get(&key) == Some(&amounts) || self.is_parked(&name) {
            return Ok(());
        }
        let result = self.report_now(scope, month, amounts, booked).await;
        if let Err(WaldurError::Refused { .. }) = &result {
            // The resource may have been terminated externally, so it is looked up again.
            self.objects.forget();
            self.reported.remove(&key);
            self.elsewhere.remove(&key);
        }
        self.accept_or_park(&name, result)?;
        Ok(())
    }

    async fn report_now(
        &mut self,
        scope: &ResourceScope,
        month: Month,
        amounts: Amounts,
        booked: BookingMonth,
    ) -> Result<(), WaldurError> {
        let parameters = parameters(&self.settings, &*self.cluster);
        let resource = self
            .waldur
            .resource(&mut self.objects, &parameters, scope)
            .await?;
        let key = (scope.clone(), month);
        if !self.reported.contains_key(&key) {
            let (here, elsewhere) = self.has(scope, &resource, month).await?;
            self.reported.insert(key.clone(), here.with(elsewhere));
            self.elsewhere.insert(key.clone(), elsewhere);
        }
        let has = self.reported.get(&key).copied().unwrap_or_default();
        if has == amounts {
            return Ok(());
        }
        if has.node > amounts.node || has.gpu > amounts.gpu {
            return Err(lower(has, amounts));
        }
        let elsewhere = self.elsewhere.get(&key).copied().unwrap_or_default();
        self.send(&resource, month, amounts.without(elsewhere), booked)
            .await?;
        self.reported.insert(key, amounts);
        Ok(())
    }

    /// Amounts in Waldur for a scope and month: first those of `resource`, then those of all other present and former
    /// resources of the scope.
    pub(super) async fn has(
        &self,
        scope: &ResourceScope,
        resource: &str,
        month: Month,
    ) -> Result<(Amounts, Amounts), WaldurError> {
        let here = Amounts::of(&self.waldur.usages(resource, month).await?);
        let mut elsewhere = Amounts::default();
        for other in self.waldur.others(scope, resource).await? {
            let there = Amounts::of(&self.waldur.usages(&other, month).await?);
            elsewhere = elsewhere.with(there);
        }
        Ok((here, elsewhere))
    }

    /// Reports the totals of a resource, whatever Waldur has.
    pub(super) async fn send(
        &mut self,
        resource: &str,
        month: Month,
        amounts: Amounts,
        booked: BookingMonth,
    ) -> Result<(), WaldurError> {
        let description = format!("lattice {month}");
        let date = match booked {
            BookingMonth::Present => None,
            BookingMonth::Ended => {
                self.check_past_booking(month)?;
                Some(month)
            }
        };
        self.steps.at(Step::BeforeSend);
        self.waldur
            .set_usage(resource, amounts, &description, date)
            .await?;
        self.steps.at(Step::AfterSend);
        self.note(|status| status.reported += 1);
        Ok(())
    }

    /// Refuses a report for an ended month before Waldur 8: older versions book a dated report into the present month,
    /// which would be wrong in both months.
    fn check_past_booking(&self, month: Month) -> Result<(), WaldurError> {
        let version = self
            .note(|status| status.version.clone())
            .unwrap_or_default();
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major >= 8) {
            return Ok(());
        }
        Err(WaldurError::Refused {
            what: format!("usage of {month}"),
            status: 400,
            reason: format!("not bookable: Waldur {version} books into the present month alone"),
        })
    }
}

/// Month into which a report is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BookingMonth {
    /// The present month.
    Present,
    /// An ended month.
    Ended,
}

/// Error: Waldur has more than was used, for example because GPUs are counted differently now or the amount was
/// corrected manually.
/// An operator must decide.
fn lower(has: Amounts, used: Amounts) -> WaldurError {
    let written = |amounts: Amounts| {
        let (node, gpu) = (decimal(amounts.node), decimal(amounts.gpu));
        format!("{node} node-hours and {gpu} GPU-hours")
    };
    WaldurError::Refused {
        what: "usage".to_owned(),
        status: 409,
        reason: format!(
            "it has {}, and {} were used; a total is lowered by `lattice admin accounting reconcile` alone",
            written(has),
            written(used)
        ),
    }
}
