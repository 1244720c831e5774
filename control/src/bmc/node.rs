//! One node as its BMC tells it, look after look: what is published, what was other before, and what
//! is wrong.

#[cfg(test)]
mod tests;

use super::{
    Parts,
    ask::{Ask, Looked},
    health::Wrong,
    turns::{Turns, Unwritten},
    whose::whose,
    worker::Host,
};
use crate::history::{self, HistoryError};
use lattice_hwprobe::{
    Class, ClassMark, ClassRecord, Power, Reading,
    history::{Cause, History, Line, Seen},
};
use lattice_quorum_types::{NodeId, UnixMillis};
use lattice_redfish::{BmcReport, NodeReport, Route, Selector, SystemName};
use std::collections::{BTreeMap, BTreeSet};

/// Entries kept while they cannot be written.
const MOST_UNWRITTEN: usize = 64;

/// What to do after a look at everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Next {
    /// The usual time.
    Rest,
    /// Something changed: once more, soon.
    Confirm,
    /// It did not answer.
    Again,
}

/// The circumstances of a look.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// When.
    pub(super) at: UnixMillis,
    /// What it was made for.
    pub(super) cause: Cause,
}

impl Look {
    /// One for these, and in the name of the first of them; the usual one, where there are none.
    pub(super) fn of(asked: &[Ask], at: UnixMillis) -> Self {
        let cause = asked
            .first()
            .map_or(Cause::Periodic, |ask| Cause::Operator {
                who: ask.who.clone(),
            });
        Self { at, cause }
    }
}

/// One of a BMC's nodes.
#[derive(Debug)]
pub(super) struct Node {
    name: NodeId,
    selector: Selector,
    /// How draw and limit are asked for with few requests.
    route: Option<Route>,
    /// It led nowhere when it was last gone: whatever the next look finds takes its place.
    is_lost: bool,
    history: History,
    /// What counts of each class; of one whose reading waits to be confirmed, what counted before.
    published: BTreeMap<Class, ClassRecord>,
    wrong: Wrong,
    /// What its BMC calls it.
    system: Option<SystemName>,
    /// A change was seen once and is to be read again.
    waits: bool,
    /// The classes that read otherwise each time: unknown until two looks in a row are equal.
    restless: BTreeSet<Class>,
    /// What the disk has not taken yet, with the records it names.
    unwritten: Vec<Unwritten>,
    /// What of its coming and going is written down.
    turns: Turns,
}

impl Node {
    /// A node that was not read yet.
    pub(super) fn new(name: NodeId, selector: Selector, wrong: Wrong) -> Self {
        Self {
            name,
            selector,
            route: None,
            is_lost: false,
            history: History::default(),
            published: unread(&Reading::failed("its BMC was not read yet")),
            wrong,
            system: None,
            waits: false,
            restless: BTreeSet::new(),
            unwritten: Vec::new(),
            turns: Turns::default(),
        }
    }

    /// As a node that was not read yet, but for what its BMC named: that stands until it says that it is
    /// over.
    pub(super) fn anew(self) -> Self {
        Self::new(self.name, self.selector, self.wrong)
    }

    /// Which system of the BMC it is.
    pub(super) const fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Goes on from what was kept, so that a start of control enters nothing and a change that
    /// came meanwhile is seen.
    pub(super) async fn resume(&mut self, kept: &history::History) {
        match kept.of_bmc(self.name.to_string()).await {
            Ok(history) => {
                self.turns.resume(history.published());
                self.history = history;
            }
            Err(error) => tracing::error!(node = %self.name, error = told(&error),
                "what its BMC told before is not known: its history begins anew"),
        }
    }

    /// Whether something that concerns these systems of its BMC concerns it.
    pub(super) fn is_concerned(&self, systems: &[String]) -> bool {
        match &self.selector {
            Selector::Id(id) => systems.contains(id),
            // The only one there is.
            _ => true,
        }
    }

    fn found<'r>(&self, report: &'r BmcReport) -> Option<&'r NodeReport> {
        match &self.selector {
            Selector::Id(id) => report.nodes.iter().find(|node| node.system.id == *id),
            _ => report.nodes.first(),
        }
    }

    /// Draw and limit, as a look has them: not known where it was not answered.
    pub(super) fn power(&self, report: &BmcReport) -> Power {
        match (self.found(report), &report.unselected) {
            (Some(found), _) => found.power.clone(),
            (None, Some(why)) => Power {
                draw: why.reading(),
                limit: why.reading(),
                ..Power::default()
            },
            (None, None) => no_power(&self.why_silent(report)),
        }
    }

    /// The way to draw and limit alone, where there is anything to ask.
    pub(super) fn route(&self) -> Option<&Route> {
        self.route.as_ref().filter(|way| !way.sources.is_empty())
    }

    /// What the way led to may be elsewhere, or is not there while the BMC starts.
    pub(super) const fn lose_route(&mut self) {
        self.is_lost = true;
    }

    /// Takes what a look said of this node.
    pub(super) fn take(&mut self, report: &BmcReport, look: &Look) -> (Next, Looked) {
        let looked = self.looked(report);
        let next = match self.found(report) {
            Some(found) => self.answered(found, look),
            None => self.silent(&self.why_silent(report), &self.unread(report), look),
        };
        (next, looked)
    }

    /// Takes that it cannot be looked at, and what that makes of it for those who ask.
    pub(super) fn cannot_be_read(&mut self, why: &str, look: &Look) -> Looked {
        self.silent(why, &Reading::failed(why), look);
        let why = why.to_owned();
        Looked::Silent { why }
    }

    /// What a look says of this node, beside what is published. Nothing comes of it.
    pub(super) fn looked(&self, report: &BmcReport) -> Looked {
        let Some(found) = self.found(report) else {
            let why = self.why_silent(report);
            return Looked::Silent { why };
        };
        Looked::Read {
            differs: self.differs(found),
        }
    }

    /// The classes that it tells otherwise than what counts. Of one that does not hold still nothing
    /// counts, and nothing is confirmed by reading it twice: what else a look says is not doubted for it.
    fn differs(&self, found: &NodeReport) -> Vec<Class> {
        let before = self.history.published();
        let other = |record: &&ClassRecord| {
            let mark = before.get(&record.class);
            let is_other = mark.is_some_and(|mark| *mark != record.state().mark());
            is_other && !self.restless.contains(&record.class)
        };
        let records = [&found.bmc, &found.bios].into_iter();
        let differs = records.filter(other).map(|record| record.class);
        let mut differs: Vec<Class> = differs.collect();
        differs.sort_unstable();
        differs
    }

    /// Judges what a look says is wrong, and takes nothing else of it. Whether it says anything.
    pub(super) fn judge(&mut self, report: &BmcReport, at: UnixMillis) -> bool {
        let found = self.found(report).cloned();
        if let Some(found) = &found {
            let is_doubted = !self.differs(found).is_empty();
            self.wrong.answered(at, found, is_doubted);
        }
        found.is_some()
    }

    /// Compares its BMC's word with the host's own; what is not known of either is no word. Whether
    /// that is news.
    pub(super) fn compare(&mut self, host: Option<&Host>, at: UnixMillis) -> bool {
        let both = self.system.as_ref().zip(host);
        let whose = both.map(|(system, host)| whose(system, &host.identity));
        let is_news = self.wrong.belongs(at, whose);
        host.is_some_and(|host| self.wrong.contradicts(at, host)) || is_news
    }

    /// Whether a change was seen once and waits to be read again.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }

    fn answered(&mut self, found: &NodeReport, look: &Look) -> Next {
        // A look at a BMC that hangs finds less than there is.
        if self.route.is_none() || self.is_lost || !found.route.is_partial() {
            self.route = Some(found.route.clone());
            self.is_lost = false;
        }
        let records: BTreeMap<Class, ClassRecord> = [&found.bmc, &found.bios]
            .map(|record| (record.class, record.clone()))
            .into();
        let mut next = self.observe(&records, look);
        let is_known = |record: &ClassRecord| record.state().digest().is_some();
        if !records.values().all(is_known) {
            next = Next::Again;
        }
        if next == Next::Rest && found.route.is_partial() {
            next = Next::Again;
        }
        // What this look confirmed counts by now.
        let is_doubted = !self.differs(found).is_empty();
        self.wrong.answered(look.at, found, is_doubted);
        self.system = Some(found.system.clone());
        next
    }

    fn why_silent(&self, report: &BmcReport) -> String {
        match (&report.unselected, &self.selector) {
            (Some(why), _) => why.to_string(),
            (None, Selector::Id(id)) => format!("the BMC serves no system \"{id}\""),
            (None, _) => "the BMC serves no system".to_owned(),
        }
    }

    /// What anything of it reads as, by a look that did not find it.
    fn unread(&self, report: &BmcReport) -> Reading<String> {
        match &report.unselected {
            Some(why) => why.reading(),
            None => Reading::failed(self.why_silent(report)),
        }
    }

    fn silent(&mut self, why: &str, reading: &Reading<String>, look: &Look) -> Next {
        tracing::warn!(node = %self.name, why, "the node's BMC says nothing of it");
        // Unknown counts at once, and so does the return to what was known.
        self.observe(&unread(reading), look);
        self.wrong.silent(look.at, self.unknown_since(look.at), why);
        Next::Again
    }

    /// Since when nothing is known of class `bmc`: also of the time before control was started.
    fn unknown_since(&self, now: UnixMillis) -> UnixMillis {
        let standing = self.history.checkpoint().classes.get(&Class::Bmc);
        let unknown = standing.filter(|standing| standing.published.digest().is_none());
        unknown.map_or(now, |standing| UnixMillis(standing.since))
    }

    fn observe(&mut self, records: &BTreeMap<Class, ClassRecord>, look: &Look) -> Next {
        let seen = Seen {
            at: look.at.0,
            // A BMC knows nothing of the host's boots.
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
            // Unknown, or again as it was when it was last known.
            let known = known.get(&entry.class);
            let known = known.and_then(|standing| standing.last_complete);
            let is_known = entry.to.digest().is_some();
            let is_turn = entry.from.is_some() && (!is_known || known == Some(entry.to));
            let due = self.turns.take(look.at.0, (entry, record), is_turn);
            self.unwritten.extend(due);
        }
        let too_many = self.unwritten.len().saturating_sub(MOST_UNWRITTEN);
        self.unwritten.drain(..too_many);
        self.waits = observed.confirm;
        match observed.confirm {
            true => Next::Confirm,
            false => Next::Rest,
        }
    }

    /// What counts after a look. `confirm`: something of it waits to be read a second time.
    fn publish(&mut self, records: &BTreeMap<Class, ClassRecord>, confirm: bool) {
        let published = self.history.published();
        for (class, record) in records {
            let mark = record.state().mark();
            let is_unknown = published.get(class) == Some(&ClassMark::Incomplete);
            if !is_unknown {
                self.restless.remove(class);
            } else if mark.digest().is_some() && !confirm {
                // Known, not what counts, and not to be read again soon.
                self.restless.insert(*class);
            }
            if published.get(class) == Some(&mark) {
                self.published.insert(*class, record.clone());
                continue;
            }
            // While a first change after silence waits, the reason is what it was.
            let counted = self.published.get(class);
            let is_old = counted.is_none_or(|counted| counted.state().digest().is_some());
            if is_unknown && (is_old || self.restless.contains(class)) {
                let record = record.clone().unsettled("does not hold still");
                self.published.insert(*class, record);
            } else if is_unknown && !self.wrong.was_asked() {
                let why = "was not known before, and counts once it is read twice";
                self.published.insert(*class, record.clone().unsettled(why));
            }
        }
    }

    /// What everybody else is to see.
    pub(super) fn parts(&self, read_at: UnixMillis) -> Parts {
        Parts {
            records: self.published.clone(),
            findings: self.wrong.findings().to_vec(),
            reasons: self.wrong.reasons(),
            read_at,
            was_asked: self.wrong.was_asked(),
            may_drain: self.wrong.may_drain(),
            untold: self.wrong.untold().clone(),
        }
    }

    /// Writes what was not written yet; what cannot be is tried again after the next look.
    pub(super) async fn write(&mut self, kept: &history::History, now: UnixMillis) {
        self.unwritten.extend(self.turns.due(now.0));
        if self.unwritten.is_empty() {
            return;
        }
        match write(kept, &self.name, &self.unwritten, now).await {
            Ok(()) => self.unwritten.clear(),
            Err(error) => tracing::error!(node = %self.name, error = told(&error),
                "what its BMC told is not written yet"),
        }
    }
}

async fn write(
    kept: &history::History,
    node: &NodeId,
    unwritten: &[Unwritten],
    now: UnixMillis,
) -> Result<(), HistoryError> {
    for (told, record) in unwritten {
        // The record first: an entry is never without the record it names.
        if let (Some(digest), Some(record)) = (told.entry.to.digest(), record) {
            kept.keep_record(digest, record.encode()).await?;
        }
    }
    let told = unwritten.iter().map(|(told, _)| told.clone()).collect();
    kept.append_bmc(node.to_string(), told, now.0).await
}

fn told(error: &HistoryError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Draw and limit that are not known.
pub(super) fn no_power(why: &str) -> Power {
    Power {
        draw: Reading::failed(why),
        limit: Reading::failed(why),
        ..Power::default()
    }
}

/// What a BMC tells of while it tells nothing.
fn unread(reading: &Reading<String>) -> BTreeMap<Class, ClassRecord> {
    let records = lattice_redfish::unread(reading).into_iter();
    records.map(|record| (record.class, record)).collect()
}
