//! The end of a month: the final totals of the ended month are compared, and booked where Waldur allows it.
//!
//! Waldur 7 books into the present month alone. What it did not receive in time becomes a line in the status, which an
//! operator ends with `lattice admin accounting reconcile --accept` after correcting the invoice.

use super::{
    AccountingSync, RoundError,
    totals::{Booking, total_name, written},
};
use crate::client::{Amounts, KnownResource, ResourceScope, WaldurError};
use lattice_host::durable;
use lattice_ledger::Month;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

/// First major version of Waldur that books a report by its date.
const BOOKS_BY_DATE: u32 = 8;
/// File in the journal's folder with the accepted months, one per line.
const ACCEPTED_FILE: &str = "accepted-months";

impl AccountingSync {
    /// Compares and books the totals of an ended month, once. Returns `false` while its usage is not known yet.
    pub(super) async fn close(
        &mut self,
        month: Month,
        known: &[KnownResource],
    ) -> Result<bool, RoundError> {
        if self.closed.contains(&month) || self.accepted.contains(&month.to_string()) {
            return Ok(true);
        }
        let Some(wanted) = self.final_totals(month) else {
            return Ok(false);
        };
        let held = self.held(month, known, &wanted).await?;
        let mut reports = Vec::new();
        let scopes: BTreeSet<ResourceScope> =
            wanted.keys().chain(held.projects()).cloned().collect();
        for scope in scopes {
            let used = wanted.get(&scope).copied().unwrap_or_default();
            let has = held.of(&scope);
            let name = total_name(&scope, month);
            if has == used {
                self.note(|status| status.parked.remove(&name));
                continue;
            }
            if !has.exceeds(used) && self.books_by_date() {
                let prepared = self
                    .prepare(&scope, Booking::Ended(month), used, known, &held)
                    .await;
                reports.extend(self.accept_or_park(&name, prepared)?);
                continue;
            }
            self.park(&name, self.left_over(month, has, used));
        }
        self.send_all(reports).await?;
        self.closed.insert(month);
        self.closed_usage.retain(|_, (of, _, _)| *of > month);
        Ok(true)
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

    /// Takes the lines of an ended month off the status, for good.
    ///
    /// # Errors
    /// Returns an error when the month cannot be stored.
    pub(super) fn accept_month(&mut self, month: Month) -> Result<(), WaldurError> {
        self.accepted.insert(month.to_string());
        self.store_accepted()
            .map_err(|error| WaldurError::Refused {
                what: format!("accepting {month}"),
                status: 500,
                reason: format!("{}: {error}", self.accepted_file().display()),
            })?;
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
        self.note(|status| {
            let is_of = |name: &str| name.starts_with("usage ") && name.ends_with(&of_month);
            status.parked.retain(|name, _| !is_of(name));
        });
    }

    fn accepted_file(&self) -> PathBuf {
        self.settings.folder.join(ACCEPTED_FILE)
    }

    fn store_accepted(&self) -> io::Result<()> {
        let lines: Vec<&str> = self.accepted.iter().map(String::as_str).collect();
        fs::create_dir_all(&self.settings.folder)?;
        durable::replace(&self.accepted_file(), lines.join("\n").as_bytes(), 0o640)
    }

    /// Reads the months that were accepted earlier.
    pub(super) fn read_accepted(&mut self) {
        match fs::read_to_string(self.accepted_file()) {
            Ok(text) => self.accepted.extend(text.lines().map(str::to_owned)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(
                %error,
                file = %self.accepted_file().display(),
                "the accepted months cannot be read; their differences are shown again"
            ),
        }
    }
}
