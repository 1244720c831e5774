//! Reconciliation on an operator's request: corrects amounts in Waldur after events were dropped, the usage of a month
//! could not be reported in time, or a total was changed manually.

use super::{AccountingSync, RoundError, USAGE_RECORDS_PER_READ, parameters, totals::BookingMonth};
use crate::{
    client::{Amounts, ResourceScope, WaldurError},
    cluster::ClusterError,
    event::Event,
    status::{Difference, Outcome},
};
use lattice_ledger::Month;
use lattice_quorum_types::UnixMillis;
use std::collections::BTreeMap;

impl AccountingSync {
    /// Compares the totals of every month that overlaps the window from `since` to `until` with the amounts in Waldur.
    /// Unless `dry_run` is set, corrects the amounts in Waldur, also to lower values, and sends the single events of
    /// the window again if the settings require events.
    ///
    /// # Errors
    /// Returns an error when the quorum or Waldur does not answer, or the usage of a month is not known yet.
    pub async fn reconcile(
        &mut self,
        since: UnixMillis,
        until: UnixMillis,
        dry_run: bool,
    ) -> Result<Vec<Difference>, RoundError> {
        let version = self.waldur.version().await?;
        self.note(|status| status.version = Some(version));
        let zone = self.settings.zone.clone();
        let now = self.cluster.now();
        let present = Month::of(now, &zone);
        let mut differences = Vec::new();
        let mut month = Month::of(since, &zone);
        while month <= present && month.begins(&zone) < until {
            let ends = month.ends(&zone).min(now);
            let Some(totals) = self.cluster.totals(month.begins(&zone), ends) else {
                return Err(ClusterError::Unavailable {
                    reason: "usage, or the number of GPUs of every node, is not known yet; try \
                        again in a minute"
                        .to_owned(),
                }
                .into());
            };
            for (scope, amounts) in self.resource_totals(totals.used) {
                let booked = match month == present {
                    true => BookingMonth::Present,
                    false => BookingMonth::Ended,
                };
                let found = self
                    .compare(&scope, month, amounts, booked, dry_run)
                    .await?;
                differences.extend(found);
            }
            month = month.next();
        }
        let wants_events = self.settings.seed_paths || self.settings.order_per_allocation;
        if wants_events && !dry_run {
            self.resend_events(since, until).await?;
        }
        Ok(differences)
    }

    async fn compare(
        &mut self,
        scope: &ResourceScope,
        month: Month,
        amounts: Amounts,
        booked: BookingMonth,
        only_look: bool,
    ) -> Result<Vec<Difference>, RoundError> {
        let name = format!("usage {} {month}", scope.backend_id());
        let parameters = parameters(&self.settings, &*self.cluster);
        let resource = match only_look {
            // A comparison creates no resource.
            true => self.waldur.find(scope).await?,
            false => {
                let made = self
                    .waldur
                    .resource(&mut self.objects, &parameters, scope)
                    .await;
                self.accept_or_park(&name, made)?
            }
        };
        let (here, elsewhere) = match &resource {
            Some(resource) => self.has(scope, resource, month).await?,
            None => Default::default(),
        };
        let has: BTreeMap<_, _> = here.with(elsewhere).named().into();
        let is_other = |(kind, used): &(&str, u64)| has.get(kind) != Some(used);
        let others: Vec<_> = amounts.named().into_iter().filter(is_other).collect();
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let outcome = match (&resource, only_look) {
            (_, true) => Outcome::Found,
            (None, false) => Outcome::NotBookable {
                reason: "no resource in Waldur, and ordering one failed".to_owned(),
            },
            (Some(_), false) if elsewhere.node > amounts.node || elsewhere.gpu > amounts.gpu => {
                Outcome::NotBookable {
                    reason: "terminated resources already have more usage and cannot be corrected"
                        .to_owned(),
                }
            }
            (Some(resource), false) => {
                let rest = amounts.without(elsewhere);
                match self.send(resource, month, rest, booked).await {
                    Ok(()) => {
                        self.reported.insert((scope.clone(), month), amounts);
                        self.elsewhere.insert((scope.clone(), month), elsewhere);
                        self.note(|status| status.parked.remove(&name));
                        Outcome::Corrected
                    }
                    Err(WaldurError::Refused { reason, .. }) => Outcome::NotBookable { reason },
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let difference = |(kind, used): (&str, u64)| Difference {
            project: scope.project().clone(),
            vcluster: scope.vcluster().clone(),
            month: month.to_string(),
            component: kind.to_owned(),
            has: has.get(kind).copied().unwrap_or(0),
            used,
            outcome: outcome.clone(),
        };
        Ok(others.into_iter().map(difference).collect())
    }

    /// Sends the single events of the window again. Each event keeps its id, so that Waldur stores no event twice.
    async fn resend_events(
        &mut self,
        since: UnixMillis,
        until: UnixMillis,
    ) -> Result<(), RoundError> {
        let mut after = 0;
        loop {
            let (facts, _) = self
                .cluster
                .usage_records(after, USAGE_RECORDS_PER_READ, since)
                .await?;
            let Some(last) = facts.last() else {
                return Ok(());
            };
            after = last.number;
            let within = facts
                .iter()
                .filter(|fact| fact.at >= since && fact.at < until);
            let cluster = self.cluster.clone();
            let events: Vec<Event> = within
                .filter_map(|fact| Event::of(fact, &*cluster))
                .collect();
            for event in &events {
                let sent = self.send_event(event).await;
                self.accept_or_park(&format!("event {}", event.id), sent)?;
            }
            if facts.last().is_some_and(|fact| fact.at >= until) {
                return Ok(());
            }
        }
    }
}
