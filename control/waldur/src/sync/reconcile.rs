//! Comparison and correction of totals in Waldur, on request and on schedule: for a month of which the last seconds
//! could not be reported in time, or a total that was changed by hand.

use super::{
    AccountingSync, RoundError, USAGE_RECORDS_PER_READ,
    held::HeldUsage,
    months::{is_accepted, quorum_month},
    set_aside::RightsScope,
    totals::{Booking, Report, total_name},
};
use crate::{
    client::{Amounts, KnownResource, ResourceScope, WaldurError},
    cluster::ClusterError,
    event::Event,
    status::{Difference, Outcome},
};
use lattice_ledger::Month;
use lattice_quorum_types::{UnixMillis, command::Principal};
use std::collections::{BTreeMap, BTreeSet};

/// What a reconciliation does with the differences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReconcileMode {
    /// Differences are listed only.
    Compare,
    /// Amounts in Waldur are corrected, also to lower values.
    Correct,
    /// Amounts in Waldur are corrected, and differences of ended months that remain are taken off the status for good:
    /// this principal has settled them in Waldur.
    Accept(Principal),
}

/// Differences of one month, with what was used.
struct Compared {
    month: Month,
    wanted: BTreeMap<ResourceScope, Amounts>,
    held: HeldUsage,
    differing: Vec<ResourceScope>,
}

impl AccountingSync {
    /// Compares the totals of every month that overlaps the window from `since` to `until` with the amounts in Waldur,
    /// and does with the differences what `mode` requires. Unless it only compares, sends the single events of the
    /// window again if the settings require events. An amount counts as corrected when Waldur shows it afterwards.
    ///
    /// # Errors
    /// Returns an error when the quorum or Waldur does not answer, or the usage of a month is not known yet.
    pub async fn reconcile(
        &mut self,
        since: UnixMillis,
        until: UnixMillis,
        mode: ReconcileMode,
    ) -> Result<Vec<Difference>, RoundError> {
        self.read_version().await?;
        let now = self.cluster.now();
        let first = Month::of(since, &self.settings.zone);
        let first = first.min(Month::of(now, &self.settings.zone).previous());
        if !self.prepare_offerings(now, first).await? {
            return Err(usage_unknown());
        }
        let (present, known) = self.known(now).await?;
        let zone = self.settings.zone.clone();
        let mut differences = Vec::new();
        let mut month = Month::of(since, &zone);
        while month <= present && month.begins(&zone) < until {
            let compared = self.compare(month, present, &known).await?;
            let outcomes = match mode {
                ReconcileMode::Compare => BTreeMap::new(),
                ReconcileMode::Correct | ReconcileMode::Accept(_) => {
                    self.correct(&compared, present, &known).await?
                }
            };
            let by = match &mode {
                ReconcileMode::Accept(by) if month < present => Some(by),
                _ => None,
            };
            let found = self.differences(&compared, &outcomes, by.is_some());
            if let Some(by) = by {
                self.accept_month(month, by, &found).await?;
            }
            differences.extend(found);
            month = month.next();
        }
        let wants_events = self.settings.seed_paths || self.settings.order_per_allocation;
        if wants_events && mode != ReconcileMode::Compare {
            self.resend_events(since, until).await?;
        }
        Ok(differences)
    }

    /// Reconciles the last month and `present` when that is due. The first time is one interval after the start. Totals
    /// are lowered only where the settings allow it; others become lines in the status.
    pub(super) async fn reconcile_on_schedule(
        &mut self,
        present: Month,
        now: UnixMillis,
    ) -> Result<(), RoundError> {
        let Some(every) = self.settings.reconcile_every else {
            return Ok(());
        };
        let due = self.reconciled_at.get_or_insert(now);
        // A clock that was set back makes the wait no longer.
        *due = now.min(*due);
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        if now.since(*due) < every_ms {
            return Ok(());
        }
        self.reconciled_at = Some(now);
        let (_, known) = self.known(now).await?;
        let found = self.cluster.months().await?;
        for month in [present.previous(), present] {
            if is_accepted(found.get(&quorum_month(month)?)) {
                continue;
            }
            let mut compared = self.compare(month, present, &known).await?;
            let found = compared.differing.len();
            let lowers = self.settings.lower_totals;
            let differing = std::mem::take(&mut compared.differing);
            let (kept, corrected): (Vec<_>, Vec<_>) = differing.into_iter().partition(|scope| {
                let used = compared.wanted.get(scope).copied().unwrap_or_default();
                let is_higher = compared.held.of(scope).exceeds(used);
                (is_higher && !lowers) || self.is_fallen(&total_name(scope, month))
            });
            compared.differing = corrected;
            tracing::info!(%month, found, kept = kept.len(), "totals compared on schedule");
            self.correct(&compared, present, &known).await?;
        }
        // The next round shows the differences that remain in the ended month.
        self.closed.remove(&present.previous());
        Ok(())
    }

    async fn compare(
        &mut self,
        month: Month,
        present: Month,
        known: &[KnownResource],
    ) -> Result<Compared, RoundError> {
        let wanted = match month < present {
            true => self.final_totals(month),
            false => {
                let totals = self.present_totals(month);
                totals.map(|totals| self.resource_totals(totals.used))
            }
        };
        let wanted = wanted.ok_or_else(usage_unknown)?;
        let held = self.held(month, known, &wanted).await?;
        let scopes: BTreeSet<_> = wanted.keys().chain(held.projects()).collect();
        let differs = |scope: &&&ResourceScope| {
            wanted.get(**scope).copied().unwrap_or_default() != held.of(scope)
        };
        let differing = scopes.iter().filter(differs).map(|scope| (*scope).clone());
        Ok(Compared {
            differing: differing.collect(),
            month,
            wanted,
            held,
        })
    }

    /// Sends the totals that differ, then reads them again. Returns the outcome for each scope that differed.
    async fn correct(
        &mut self,
        compared: &Compared,
        present: Month,
        known: &[KnownResource],
    ) -> Result<BTreeMap<ResourceScope, Outcome>, RoundError> {
        let mut outcomes = BTreeMap::new();
        let mut reports: Vec<Report> = Vec::new();
        for scope in &compared.differing {
            let correction = self.correction(scope, compared, present, known).await;
            match correction.map_err(WaldurError::of_one_request) {
                Ok(report) => reports.push(report),
                Err(error) if error.is_transient() => return Err(error.into()),
                Err(error) => {
                    let reason = error.to_string();
                    outcomes.insert(scope.clone(), Outcome::NotBookable { reason });
                }
            }
        }
        self.send_all(reports).await?;
        let held = self.held(compared.month, known, &compared.wanted).await?;
        for scope in &compared.differing {
            if outcomes.contains_key(scope) {
                continue;
            }
            let used = compared.wanted.get(scope).copied().unwrap_or_default();
            let name = total_name(scope, compared.month);
            let outcome = match held.of(scope) == used {
                true => {
                    self.note(|status| status.forget(&name));
                    self.forget_fallen(&name);
                    Outcome::Corrected
                }
                false => {
                    let reason = self.note(|status| status.reason(&name).map(str::to_owned));
                    let reason = reason.unwrap_or_else(|| {
                        "Waldur still has another amount after the report; try again".to_owned()
                    });
                    Outcome::NotBookable { reason }
                }
            };
            outcomes.insert(scope.clone(), outcome);
        }
        Ok(outcomes)
    }

    /// The report that corrects the total of a scope.
    async fn correction(
        &mut self,
        scope: &ResourceScope,
        compared: &Compared,
        present: Month,
        known: &[KnownResource],
    ) -> Result<Report, WaldurError> {
        let Compared { month, held, .. } = compared;
        let used = compared.wanted.get(scope).copied().unwrap_or_default();
        let refused = |reason: String| WaldurError::Unusable {
            what: total_name(scope, *month),
            reason,
        };
        if *month < present && !self.books_by_date() {
            return Err(refused(self.left_over(*month, held.of(scope), used)));
        }
        let booking = match *month < present {
            true => Booking::Ended(*month),
            false => Booking::Present(*month),
        };
        let report = self.prepare(scope, booking, used, known, held).await?;
        let fixed = held.of(scope).without(report.present(held));
        if fixed.exceeds(used) {
            let reason = "terminated resources or closed plan periods already have more usage, \
                          which no report changes";
            return Err(refused(reason.to_owned()));
        }
        Ok(report)
    }

    fn differences(
        &self,
        compared: &Compared,
        outcomes: &BTreeMap<ResourceScope, Outcome>,
        accepts: bool,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        for scope in &compared.differing {
            let used = compared.wanted.get(scope).copied().unwrap_or_default();
            let has = compared.held.of(scope);
            let outcome = match outcomes.get(scope) {
                None => Outcome::Found,
                Some(Outcome::NotBookable { .. }) if accepts => Outcome::Accepted,
                Some(outcome) => outcome.clone(),
            };
            for ((component, has), (_, used)) in has.named().into_iter().zip(used.named()) {
                if has != used {
                    differences.push(Difference {
                        project: scope.project().clone(),
                        vcluster: scope.vcluster().clone(),
                        month: compared.month.to_string(),
                        component: component.to_owned(),
                        has,
                        used,
                        outcome: outcome.clone(),
                    });
                }
            }
        }
        differences
    }

    /// Sends the single events of the window again. Each event keeps its id, so that Waldur stores no event twice.
    async fn resend_events(
        &mut self,
        since: UnixMillis,
        until: UnixMillis,
    ) -> Result<(), RoundError> {
        let mut after = 0;
        loop {
            let (records, _) = self
                .cluster
                .usage_records(after, USAGE_RECORDS_PER_READ, since)
                .await?;
            let Some(last) = records.last() else {
                return Ok(());
            };
            after = last.number;
            let within = records
                .iter()
                .filter(|record| record.at >= since && record.at < until);
            let cluster = self.cluster.clone();
            let events: Vec<Event> = within
                .filter_map(|record| Event::of(record, &*cluster))
                .collect();
            for event in &events {
                let sent = self.send_event(event).await;
                let name = format!("event {}", event.id);
                self.accept_or_park(&name, &RightsScope::of_event(event), sent)?;
            }
            if records.last().is_some_and(|record| record.at >= until) {
                return Ok(());
            }
        }
    }
}

fn usage_unknown() -> RoundError {
    ClusterError::Unavailable {
        reason:
            "usage, or the number of GPUs of every node, is not known yet; try again in a minute"
                .to_owned(),
    }
    .into()
}
