//! BMC state of one node, updated with each reading: published records, changes and faults.

#[cfg(test)]
mod tests;

use super::{
    flapping::{RecentTransitions, UnwrittenEntry},
    health::BmcHealth,
    host::Host,
    node_match::match_node,
    parts::Parts,
    reading_requests::{ReadingRequest, RequestedReading},
};
use crate::history::{self, HistoryError};
use lattice_conformance::{
    Class, ClassMark, ClassRecord, Power, Reading,
    history::{Cause, History, Line, ReadContext},
};
use lattice_quorum_types::{NodeId, UnixMillis};
use lattice_redfish::{BmcReport, NodeReport, Route, Selector, SystemName};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of history entries kept while they cannot be written.
const MOST_UNWRITTEN: usize = 64;

/// Next step after a complete reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextReadingStep {
    /// Read again after the usual interval.
    WaitInterval,
    /// A value changed: read again soon to confirm the change.
    Confirm,
    /// The BMC did not answer, or not completely: retry.
    Retry,
}

/// Time and cause of a reading.
#[derive(Debug, Clone)]
pub(super) struct ReadingCause {
    /// Time of the reading.
    pub(super) at: UnixMillis,
    /// Cause of the reading.
    pub(super) cause: Cause,
}

impl ReadingCause {
    /// Creates the cause of a reading for these requests: the principal of the first request, or periodic without
    /// requests.
    pub(super) fn of(asked: &[ReadingRequest], at: UnixMillis) -> Self {
        let cause = asked
            .first()
            .map_or(Cause::Periodic, |ask| Cause::Operator {
                who: ask.requester.clone(),
            });
        Self { at, cause }
    }
}

/// One node of a BMC.
#[derive(Debug)]
pub(super) struct Node {
    name: NodeId,
    selector: Selector,
    /// Resources from which power draw and limit are read with few requests.
    route: Option<Route>,
    /// Whether the route was stale when it was last used. The next complete reading then replaces it.
    is_route_stale: bool,
    history: History,
    /// Published record of each class; while a change waits for confirmation, the record before the change.
    published: BTreeMap<Class, ClassRecord>,
    bmc_health: BmcHealth,
    /// Name of the node's system at the BMC.
    system: Option<SystemName>,
    /// Whether a change was read once and must be read again.
    needs_confirmation: bool,
    /// Classes that change with every reading: unknown until two successive readings are equal.
    unstable: BTreeSet<Class>,
    /// History entries that are not written to disk yet, with the records that they name.
    unwritten: Vec<UnwrittenEntry>,
    /// Limits how many transitions to unknown and back are recorded.
    transitions: RecentTransitions,
}

impl Node {
    /// Creates a node that was not read yet.
    pub(super) fn new(name: NodeId, selector: Selector, wrong: BmcHealth) -> Self {
        Self {
            name,
            selector,
            route: None,
            is_route_stale: false,
            history: History::default(),
            published: unread(&Reading::failed("BMC not read yet")),
            bmc_health: wrong,
            system: None,
            needs_confirmation: false,
            unstable: BTreeSet::new(),
            unwritten: Vec::new(),
            transitions: RecentTransitions::default(),
        }
    }

    /// Resets the node to the state before its first reading, except for the faults that its BMC reported. A fault
    /// remains until the BMC reports its end.
    pub(super) fn reset(self) -> Self {
        Self::new(self.name, self.selector, self.bmc_health)
    }

    /// Selector of the node's system at the BMC.
    pub(super) const fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Continues from the stored history, so that a restart of control adds no entry and a change during the restart is
    /// detected.
    pub(super) async fn resume(&mut self, kept: &history::History) {
        match kept.of_bmc(self.name.to_string()).await {
            Ok(history) => {
                self.transitions.resume(history.published());
                self.history = history;
            }
            Err(error) => tracing::error!(node = %self.name, error = error_text(&error),
                "earlier BMC readings not available: BMC history of the node starts again"),
        }
    }

    /// Whether an event of these systems concerns the node.
    pub(super) fn is_concerned(&self, systems: &[String]) -> bool {
        match &self.selector {
            Selector::Id(id) => systems.contains(id),
            // The node is the only one of its BMC.
            _ => true,
        }
    }

    fn found<'r>(&self, report: &'r BmcReport) -> Option<&'r NodeReport> {
        match &self.selector {
            Selector::Id(id) => report.nodes.iter().find(|node| node.system.id == *id),
            _ => report.nodes.first(),
        }
    }

    /// Power draw and limit from a complete reading; unknown if the BMC did not answer.
    pub(super) fn power(&self, report: &BmcReport) -> Power {
        match (self.found(report), &report.unselected) {
            (Some(found), _) => found.power.clone(),
            (None, Some(why)) => Power {
                draw: why.reading(),
                limit: why.reading(),
                ..Power::default()
            },
            (None, None) => no_power(&self.silence_reason(report)),
        }
    }

    /// Route to power draw and limit, if there is any resource to read.
    pub(super) fn route(&self) -> Option<&Route> {
        self.route.as_ref().filter(|way| !way.sources.is_empty())
    }

    /// Marks the route as stale: its resources have moved, or are missing while the BMC starts.
    pub(super) const fn lose_route(&mut self) {
        self.is_route_stale = true;
    }

    /// Takes over the result of a reading for this node.
    pub(super) fn take(
        &mut self,
        report: &BmcReport,
        look: &ReadingCause,
    ) -> (NextReadingStep, RequestedReading) {
        let looked = self.compare_reading(report);
        let next = match self.found(report) {
            Some(found) => self.answered(found, look),
            None => self.silent(&self.silence_reason(report), &self.unread(report), look),
        };
        (next, looked)
    }

    /// Records that the node cannot be read, and returns the result for pending requests.
    pub(super) fn cannot_be_read(&mut self, why: &str, look: &ReadingCause) -> RequestedReading {
        self.silent(why, &Reading::failed(why), look);
        let why = why.to_owned();
        RequestedReading::Silent { why }
    }

    /// Result of a reading for this node, compared with the published records. Changes no state.
    pub(super) fn compare_reading(&self, report: &BmcReport) -> RequestedReading {
        let Some(found) = self.found(report) else {
            let why = self.silence_reason(report);
            return RequestedReading::Silent { why };
        };
        RequestedReading::Read {
            differs: self.differs(found),
        }
    }

    /// Classes with a value other than the published one. Classes in `unstable` are left out: a second reading of them
    /// confirms nothing, and they must not make the rest of the reading doubtful.
    fn differs(&self, found: &NodeReport) -> Vec<Class> {
        let before = self.history.published();
        let other = |record: &&ClassRecord| {
            let mark = before.get(&record.class);
            let is_other = mark.is_some_and(|mark| *mark != record.state().mark());
            is_other && !self.unstable.contains(&record.class)
        };
        let records = [&found.bmc, &found.bios].into_iter();
        let differs = records.filter(other).map(|record| record.class);
        let mut differs: Vec<Class> = differs.collect();
        differs.sort_unstable();
        differs
    }

    /// Evaluates only the health part of a reading. Returns whether the reading contains this node.
    pub(super) fn update_health(&mut self, report: &BmcReport, at: UnixMillis) -> bool {
        let found = self.found(report).cloned();
        if let Some(found) = &found {
            let is_doubted = !self.differs(found).is_empty();
            self.bmc_health.answered(at, found, is_doubted);
        }
        found.is_some()
    }

    /// Compares the BMC's data with the host's own; unknown values are not compared. Returns whether a health reason
    /// changed.
    pub(super) fn compare(&mut self, host: Option<&Host>, at: UnixMillis) -> bool {
        let both = self.system.as_ref().zip(host);
        let matched = both.map(|(system, host)| match_node(system, &host.identity));
        let is_news = self.bmc_health.set_match(at, matched);
        host.is_some_and(|host| self.bmc_health.compare_with_host(at, host)) || is_news
    }

    /// Whether a change was read once and waits for confirmation.
    pub(super) const fn waits(&self) -> bool {
        self.needs_confirmation
    }

    fn answered(&mut self, found: &NodeReport, look: &ReadingCause) -> NextReadingStep {
        // A reading of a hanging BMC finds only a part of the route and must not replace a complete one.
        if self.route.is_none() || self.is_route_stale || !found.route.is_partial() {
            self.route = Some(found.route.clone());
            self.is_route_stale = false;
        }
        let records: BTreeMap<Class, ClassRecord> = [&found.bmc, &found.bios]
            .map(|record| (record.class, record.clone()))
            .into();
        let mut next = self.observe(&records, look);
        let is_known = |record: &ClassRecord| record.state().digest().is_some();
        if !records.values().all(is_known) {
            next = NextReadingStep::Retry;
        }
        if next == NextReadingStep::WaitInterval && found.route.is_partial() {
            next = NextReadingStep::Retry;
        }
        // A change that this reading confirmed is already published, and no longer a difference.
        let is_doubted = !self.differs(found).is_empty();
        self.bmc_health.answered(look.at, found, is_doubted);
        self.system = Some(found.system.clone());
        next
    }

    fn silence_reason(&self, report: &BmcReport) -> String {
        match (&report.unselected, &self.selector) {
            (Some(why), _) => why.to_string(),
            (None, Selector::Id(id)) => format!("the BMC has no system \"{id}\""),
            (None, _) => "the BMC has no system".to_owned(),
        }
    }

    /// Reading of every value when the complete reading did not find the node.
    fn unread(&self, report: &BmcReport) -> Reading<String> {
        match &report.unselected {
            Some(why) => why.reading(),
            None => Reading::failed(self.silence_reason(report)),
        }
    }

    fn silent(
        &mut self,
        why: &str,
        reading: &Reading<String>,
        look: &ReadingCause,
    ) -> NextReadingStep {
        tracing::warn!(node = %self.name, why, "BMC returned no data for the node");
        // A change to unknown is published at once, and so is the return to the last known value.
        self.observe(&unread(reading), look);
        self.bmc_health
            .silent(look.at, self.unknown_since(look.at), why);
        NextReadingStep::Retry
    }

    /// Time since which class `bmc` is unknown, including the time before control started.
    fn unknown_since(&self, now: UnixMillis) -> UnixMillis {
        let standing = self.history.checkpoint().classes.get(&Class::Bmc);
        let unknown = standing.filter(|standing| standing.published.digest().is_none());
        unknown.map_or(now, |standing| UnixMillis(standing.since))
    }

    fn observe(
        &mut self,
        records: &BTreeMap<Class, ClassRecord>,
        look: &ReadingCause,
    ) -> NextReadingStep {
        let seen = ReadContext {
            at: look.at.0,
            // A BMC does not report the boots of the host.
            boot_id: String::new(),
            cause: look.cause.clone(),
        };
        let known = self.history.checkpoint().classes.clone();
        let observed = self.history.observe(records, &seen);
        self.publish(records, observed.confirm);
        for line in observed.lines {
            let Line::Entry(entry) = line else {
                continue;
            };
            let record = entry.to.digest().and_then(|_| records.get(&entry.class));
            let record = record.cloned();
            // The class became unknown, or has its last known value again.
            let known = known.get(&entry.class);
            let known = known.and_then(|standing| standing.last_complete);
            let is_known = entry.to.digest().is_some();
            let is_turn = entry.from.is_some() && (!is_known || known == Some(entry.to));
            let due = self.transitions.take(look.at.0, (entry, record), is_turn);
            self.unwritten.extend(due);
        }
        let too_many = self.unwritten.len().saturating_sub(MOST_UNWRITTEN);
        self.unwritten.drain(..too_many);
        self.needs_confirmation = observed.confirm;
        match observed.confirm {
            true => NextReadingStep::Confirm,
            false => NextReadingStep::WaitInterval,
        }
    }

    /// Updates the published records after a reading. `confirm`: a change waits for a second reading.
    fn publish(&mut self, records: &BTreeMap<Class, ClassRecord>, confirm: bool) {
        let published = self.history.published();
        for (class, record) in records {
            let mark = record.state().mark();
            let is_unknown = published.get(class) == Some(&ClassMark::Incomplete);
            if !is_unknown {
                self.unstable.remove(class);
            } else if mark.digest().is_some() && !confirm {
                // Known, different from the published value, and not scheduled for confirmation.
                self.unstable.insert(*class);
            }
            if published.get(class) == Some(&mark) {
                self.published.insert(*class, record.clone());
                continue;
            }
            // While the first change after silence waits for confirmation, the published reason stays.
            let counted = self.published.get(class);
            let is_old = counted.is_none_or(|counted| counted.state().digest().is_some());
            if is_unknown && (is_old || self.unstable.contains(class)) {
                let record = record.clone().unsettled("value changes with every reading");
                self.published.insert(*class, record);
            } else if is_unknown && !self.bmc_health.was_asked() {
                let why = "first reading; published once a second reading confirms it";
                self.published.insert(*class, record.clone().unsettled(why));
            }
        }
    }

    /// Data of the node for the rest of control.
    pub(super) fn parts(&self, read_at: UnixMillis) -> Parts {
        Parts {
            records: self.published.clone(),
            findings: self.bmc_health.findings().to_vec(),
            reasons: self.bmc_health.reasons(),
            read_at,
            was_asked: self.bmc_health.was_asked(),
            may_drain: self.bmc_health.may_drain(),
            undecided: self.bmc_health.undecided_codes().clone(),
        }
    }

    /// Writes pending history entries. A failed write is retried after the next reading.
    pub(super) async fn write(&mut self, kept: &history::History, now: UnixMillis) {
        self.unwritten.extend(self.transitions.due(now.0));
        if self.unwritten.is_empty() {
            return;
        }
        match write(kept, &self.name, &self.unwritten, now).await {
            Ok(()) => self.unwritten.clear(),
            Err(error) => tracing::error!(node = %self.name, error = error_text(&error),
                "BMC reading not written yet"),
        }
    }
}

async fn write(
    kept: &history::History,
    node: &NodeId,
    unwritten: &[UnwrittenEntry],
    now: UnixMillis,
) -> Result<(), HistoryError> {
    for (bmc_entry, record) in unwritten {
        // The record is written first, so an entry never names a missing record.
        if let (Some(digest), Some(record)) = (bmc_entry.entry.to.digest(), record) {
            kept.keep_record(digest, record.encode()).await?;
        }
    }
    let bmc_entries = unwritten
        .iter()
        .map(|(bmc_entry, _)| bmc_entry.clone())
        .collect();
    kept.append_bmc(node.to_string(), bmc_entries, now.0).await
}

fn error_text(error: &HistoryError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Returns unknown power draw and limit, with the reason.
pub(super) fn no_power(why: &str) -> Power {
    Power {
        draw: Reading::failed(why),
        limit: Reading::failed(why),
        ..Power::default()
    }
}

/// Records of the BMC's classes while the BMC returns no data.
fn unread(reading: &Reading<String>) -> BTreeMap<Class, ClassRecord> {
    let records = lattice_redfish::unread_records(reading).into_iter();
    records.map(|record| (record.class, record)).collect()
}
