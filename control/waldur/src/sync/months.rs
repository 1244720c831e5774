//! The end of a month: the final totals of the ended month are compared, and booked where Waldur allows it.
//!
//! Waldur 7 books into the present month alone. What it did not receive in time becomes a line in the status, which an
//! administrator ends with `lattice admin accounting reconcile --accept` after correcting the invoice. The quorum keeps
//! which months have such lines, so that each control shows them, and which months are accepted, so that none does.

use super::{
    AccountingSync, RoundError,
    totals::{Booking, higher, is_total_of, total_name, written},
};
use crate::{
    client::{Amounts, KnownResource, ResourceScope},
    cluster::ClusterError,
    status::{Difference, Outcome},
};
use lattice_ledger::Month;
use lattice_quorum_types::{
    accounting_month::{AccountingMonth, MonthDifferences},
    command::Principal,
    id::InvalidId,
};
use std::collections::{BTreeMap, BTreeSet};

/// First major version of Waldur that books a report by its date.
const BOOKS_BY_DATE: u32 = 8;
/// Number of ended months that are compared, if the quorum has them as open. The ledger keeps the usage of a year.
const COMPARED_MONTHS: u32 = 11;

impl AccountingSync {
    /// Compares and books, once, the totals of the month before `present`, and of earlier months that the quorum has as
    /// open. Returns `false` while their usage is not known yet.
    pub(super) async fn close_ended(
        &mut self,
        present: Month,
        known: &[KnownResource],
    ) -> Result<bool, RoundError> {
        let previous = present.previous();
        if self.closed.contains(&previous) && !self.awaits_booking(present) {
            return Ok(true);
        }
        let found = self.cluster.months().await?;
        let mut month = previous;
        for _ in 0..COMPARED_MONTHS {
            let found = found.get(&quorum_month(month)?);
            let is_due = month == previous || found.is_some();
            if is_due && !self.closed.contains(&month) && !self.close(month, found, known).await? {
                return Ok(false);
            }
            month = month.previous();
        }
        Ok(true)
    }

    /// The first month of which totals may be compared: the one before the present, or an earlier one that is open.
    pub(super) async fn first_compared(&self, present: Month) -> Result<Month, RoundError> {
        let previous = present.previous();
        let mut first = previous;
        if self.closed.contains(&previous) {
            return Ok(first);
        }
        let found = self.cluster.months().await?;
        let mut month = previous;
        for _ in 0..COMPARED_MONTHS {
            let found = found.get(&quorum_month(month)?);
            if found.is_some() && !is_accepted(found) {
                first = month;
            }
            month = month.previous();
        }
        Ok(first)
    }

    /// Compares and books the totals of an ended month. `found`: what the quorum has of it. Returns `false` while its
    /// usage is not known yet.
    async fn close(
        &mut self,
        month: Month,
        found: Option<&MonthDifferences>,
        known: &[KnownResource],
    ) -> Result<bool, RoundError> {
        if is_accepted(found) {
            self.closed.insert(month);
            return Ok(true);
        }
        let Some(wanted) = self.final_totals(month) else {
            return Ok(false);
        };
        let held = self.held(month, known, &wanted).await?;
        let mut reports = Vec::new();
        let mut is_complete = true;
        let scopes: BTreeSet<ResourceScope> =
            wanted.keys().chain(held.projects()).cloned().collect();
        for scope in scopes {
            let used = wanted.get(&scope).copied().unwrap_or_default();
            let has = held.of(&scope);
            let name = total_name(&scope, month);
            if has == used {
                self.note(|status| status.forget(&name));
                continue;
            }
            if !held.covers(&scope) {
                is_complete = false;
                continue;
            }
            if !self.books_by_date() {
                self.park(&name, self.left_over(month, has, used));
                continue;
            }
            if has.exceeds(used) {
                self.park(&name, higher(has, used));
                continue;
            }
            if self.is_parked(&name) {
                continue;
            }
            let booking = Booking::Ended(month);
            let prepared = self.prepare_or_park(&scope, booking, used, known, &held);
            reports.extend(prepared.await?);
        }
        self.send_all(reports).await?;
        let of_month = format!(" {month}");
        let (is_open, waits) = self.note(|status| {
            let is_of = |key: &str| is_total_of(key, &of_month);
            let waits = status.missing_rights.keys().any(is_of);
            (status.rejected().any(is_of), waits)
        });
        if is_open != found.is_some() {
            let month = quorum_month(month)?;
            self.cluster.note_open_month(month, is_open).await?;
        }
        if waits || !is_complete {
            return Ok(true);
        }
        self.closed.insert(month);
        self.closed_usage.retain(|_, (of, _, _)| *of > month);
        self.forget_fixed_usage(month);
        Ok(true)
    }

    /// Whether a report for an ended month waits for a right.
    fn awaits_booking(&self, present: Month) -> bool {
        let present = present.to_string();
        let is_ended = |key: &str| {
            let month = key.rsplit(' ').next();
            key.starts_with("usage ") && month.is_some_and(|month| month < present.as_str())
        };
        self.note(|status| status.missing_rights.keys().any(is_ended))
    }

    /// Totals of an ended month; `None` while the ledger does not have all of its usage.
    pub(super) fn final_totals(&self, month: Month) -> Option<BTreeMap<ResourceScope, Amounts>> {
        let zone = &self.settings.zone;
        let ends = month.ends(zone);
        let totals = self.cluster.totals(month.begins(zone), ends)?;
        (totals.until >= ends).then(|| self.resource_totals(totals.used))
    }

    /// Whether Waldur books a report into the month of its date. Older versions ignore the date, so a report for an
    /// ended month would be wrong in both months. An unknown version counts as an old one.
    pub(super) fn books_by_date(&self) -> bool {
        let version = self.note(|status| status.version.clone());
        let major = version
            .as_deref()
            .and_then(|version| version.split('.').next())
            .and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major >= BOOKS_BY_DATE)
    }

    /// Reason for a total of an ended month that Waldur does not book.
    pub(super) fn left_over(&self, month: Month, has: Amounts, used: Amounts) -> String {
        let version = self.note(|status| status.version.clone());
        let version = version.map_or_else(String::new, |version| format!(" {version}"));
        format!(
            "not bookable: Waldur{version} books into the present month alone; in {month} it has {}, and {} were used. \
             Correct the invoice in Waldur, then run `lattice admin accounting reconcile --accept` for that month",
            written(has),
            written(used)
        )
    }

    /// Takes the lines of an ended month off the status. If differences remain, the quorum keeps their acceptance, so
    /// that no control shows them again.
    ///
    /// # Errors
    /// Returns an error when the quorum does not accept the command.
    pub(super) async fn accept_month(
        &mut self,
        month: Month,
        by: &Principal,
        found: &[Difference],
    ) -> Result<(), ClusterError> {
        let remain = found.iter().filter(|one| one.outcome == Outcome::Accepted);
        let count = u32::try_from(remain.count()).unwrap_or(u32::MAX);
        let name = quorum_month(month)?;
        match count {
            0 => self.cluster.note_open_month(name, false).await?,
            count => self.cluster.accept_month(name, by, count).await?,
        }
        self.remove_lines(month);
        Ok(())
    }

    /// Takes back that `present` and later months have ended, after Waldur's clock was set back. Their totals are reported
    /// again while that is possible, and compared after the end: a report on its way may have replaced them. An accepted
    /// month stays accepted.
    pub(super) fn reopen(&mut self, present: Month) {
        let ended_again = self.closed.split_off(&present);
        for month in ended_again {
            tracing::warn!(%month, "Waldur's clock was set back into a month that had ended; its totals are compared again");
            self.remove_lines(month);
        }
    }

    fn remove_lines(&self, month: Month) {
        let of_month = format!(" {month}");
        self.note(|status| status.retain(|name| !is_total_of(name, &of_month)));
    }
}

/// Whether the differences of a month are accepted. `found`: what the quorum has of it.
pub(super) fn is_accepted(found: Option<&MonthDifferences>) -> bool {
    matches!(found, Some(MonthDifferences::Accepted { .. }))
}

/// The month as the quorum stores it.
pub(super) fn quorum_month(month: Month) -> Result<AccountingMonth, ClusterError> {
    let read = month.to_string().parse();
    read.map_err(|error: InvalidId| ClusterError::Refused {
        text: error.to_string(),
    })
}
