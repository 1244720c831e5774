//! Usage that no report changes: that of ended plan periods and of former resources.
//!
//! Waldur keeps usage by plan period and by resource, and bills each. A report replaces the amounts of the present plan
//! period of one resource; everything else of the month is fixed. A report is therefore the total less the fixed usage.
//! Where a person lowers the fixed usage, its invoice item may stand, so the difference is not moved to the present plan:
//! it becomes a line in the status.

use super::{
    AccountingSync,
    held::HeldUsage,
    totals::{Report, written},
};
use crate::client::{Amounts, KnownResource, MonthUsage, ResourceScope, WaldurError};
use lattice_ledger::Month;
use std::collections::{BTreeMap, BTreeSet};

/// Start of the key of a line about fixed usage, before the name of its total.
const FALLEN: &str = "fixed ";

impl AccountingSync {
    /// Looks, once for each month, for usage of this cluster in former offerings: a vCluster may have another offering since
    /// that month. Returns whether there is some. Only a project without an older resource can have some.
    pub(super) async fn finds_moved(
        &mut self,
        month: Month,
        known: &[KnownResource],
        wanted: &BTreeMap<ResourceScope, Amounts>,
        held: &HeldUsage,
    ) -> Result<bool, WaldurError> {
        if self.moved.contains_key(&month) {
            return Ok(false);
        }
        let older = known.iter().filter(|one| one.is_created_before(month));
        let older: BTreeSet<&ResourceScope> = older.map(|one| &one.scope).collect();
        let may_be_moved = |(scope, used): (&ResourceScope, &Amounts)| {
            held.of(scope) != *used && held.covers(scope) && !older.contains(scope)
        };
        if !wanted.iter().any(may_be_moved) {
            return Ok(false);
        }
        let mut moved = Vec::new();
        for (resource, offering) in self
            .waldur
            .resources_elsewhere(&self.objects, month)
            .await?
        {
            let mut rows = MonthUsage::default();
            self.waldur
                .usage_of_resource(&resource, month, &mut rows)
                .await?;
            if rows.resources().next().is_some() {
                moved.push((resource, offering));
            }
        }
        let is_found = !moved.is_empty();
        self.moved.insert(month, moved);
        Ok(is_found)
    }

    /// Usage of a resource in plan periods that ended in this month; 0 for a resource without an order for another plan in
    /// this month. `before` is its usage in all periods. The periods are read again where month or plan are other ones, or
    /// where Waldur has another amount than the last report left: a period may have ended, or the usage of one may have been
    /// edited.
    pub(super) async fn closed_usage(
        &mut self,
        resource: &str,
        month: Month,
        plan: Option<String>,
        before: Amounts,
    ) -> Result<Amounts, WaldurError> {
        let last = self.sent.get(resource);
        let is_as_left = last.is_some_and(|last| last.month == month && last.after() == before);
        let read = self.closed_usage.get(resource);
        match read.filter(|(of, under, _)| *of == month && *under == plan) {
            Some((_, _, closed)) if is_as_left => Ok(*closed),
            None if plan.is_none() => Ok(Amounts::default()),
            _ => self.read_closed_usage(resource, month, plan).await,
        }
    }

    /// Reads the usage of a resource in plan periods that ended in this month.
    pub(super) async fn read_closed_usage(
        &mut self,
        resource: &str,
        month: Month,
        plan: Option<String>,
    ) -> Result<Amounts, WaldurError> {
        let closed = self.waldur.closed_usage(resource, month).await?;
        let entry = (month, plan, closed);
        self.closed_usage.insert(resource.to_owned(), entry);
        Ok(closed)
    }

    /// Whether the present amounts of a resource are our own last report, which Waldur booked elsewhere than expected: after
    /// the month had ended, or after another plan had begun. Such an amount is lowered, because no person has set it. `name`
    /// is that of the total.
    pub(super) async fn is_misbooked(
        &mut self,
        resource: &KnownResource,
        month: Month,
        name: &str,
        held: &HeldUsage,
    ) -> Result<bool, WaldurError> {
        let Some(last) = self.sent.get(&resource.uuid).cloned() else {
            return Ok(false);
        };
        let has = held.rows.of(&resource.uuid);
        let is_late = last.month != month || last.plan != resource.plan;
        if !is_late && (last.after() == has || self.is_set_aside(name)) {
            return Ok(false);
        }
        let plan = resource.plan.clone();
        let closed = match is_late {
            true => self.closed_usage(&resource.uuid, month, plan, has).await?,
            // A person may have changed the plan without an order.
            false => self.read_closed_usage(&resource.uuid, month, plan).await?,
        };
        // The plan was changed, or changed and changed back, before the report, which therefore replaced nothing.
        let was_added = last.closed != closed && last.before == closed;
        Ok((is_late || was_added) && last.amounts == has.without(closed))
    }

    /// The report with which a scope has `total`, less the fixed usage. Fixed usage that is lower than before counts as
    /// before, and becomes a line.
    pub(super) fn with_fixed_usage(&mut self, mut report: Report, total: Amounts) -> Report {
        let before = match self.fixed_usage.get(&report.name) {
            Some((resource, before)) if *resource == report.resource => *before,
            // Another resource is reported to, so another part of the usage is fixed.
            _ => Amounts::default(),
        };
        if before.exceeds(report.fixed) {
            self.park(&fallen(&report.name), lowered(report.fixed, before));
            report.fixed = report.fixed.at_least(before);
            report.amounts = total.without(report.fixed);
        } else {
            self.forget_fallen(&report.name);
        }
        self.note_fixed_usage(&report);
        report
    }

    /// Remembers the fixed usage of a total.
    pub(super) fn note_fixed_usage(&mut self, report: &Report) {
        let fixed = (report.resource.clone(), report.fixed);
        self.fixed_usage.insert(report.name.clone(), fixed);
    }

    /// Removes the line about the fixed usage of a total.
    pub(super) fn forget_fallen(&self, name: &str) {
        self.note(|status| status.parked.remove(&fallen(name)));
    }

    /// Whether the fixed usage of a total was lowered by a person, so that an operator must decide about the total.
    pub(super) fn is_fallen(&self, name: &str) -> bool {
        self.note(|status| status.parked.contains_key(&fallen(name)))
    }

    /// Discards what was read about the fixed usage of an ended month.
    pub(super) fn forget_fixed_usage(&mut self, month: Month) {
        let of_month = format!(" {month}");
        self.fixed_usage
            .retain(|name, _| !name.ends_with(&of_month));
        self.moved.remove(&month);
        self.note(|status| {
            let is_of = |name: &str| name.starts_with(FALLEN) && name.ends_with(&of_month);
            status.parked.retain(|name, _| !is_of(name));
        });
    }
}

fn fallen(name: &str) -> String {
    format!("{FALLEN}{name}")
}

/// Reason for a line about fixed usage.
fn lowered(present: Amounts, before: Amounts) -> String {
    format!(
        "ended plan periods and former resources had {}, and have {}: a person has changed them in Waldur. Their invoice \
         items may stand; compare the invoice, then run `lattice admin accounting reconcile`, which reports the \
         difference to the present plan",
        written(before),
        written(present)
    )
}
