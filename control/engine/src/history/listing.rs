//! Node history listing: class changes and other events in one list.

use super::{
    entry::HistoryEntry,
    event::{EventContent, HistoryPosition, NodeObservation, PositionedEvent},
    line_kind::LineKind,
    store::HistoryStore,
    tables::{ENTRIES, EVENTS, Failure, HistoryError, ORDER, read_entry, read_event},
};
use lattice_conformance::Class;
use redb::ReadTransaction;
use std::collections::BTreeSet;

/// Kind name of class changes.
pub const CHANGE_KIND: &str = "change";
/// Filter of a node's history list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Only changes of this class.
    pub class: Option<Class>,
    /// Only these kinds; `None` for all kinds.
    pub kinds: Option<BTreeSet<String>>,
    /// Earliest time, in Unix milliseconds.
    pub since: Option<u64>,
    /// Latest time, in Unix milliseconds.
    pub until: Option<u64>,
    /// Only items after this position.
    pub after: Option<HistoryPosition>,
    /// Whether to leave out items that name users: audit entries and BMC events. Set for callers that may not read the
    /// audit.
    pub hides_users: bool,
}

/// One item of a history list.
#[derive(Debug, Clone, PartialEq)]
pub enum HistoryItem {
    /// A class was published with a new mark.
    Change(Box<HistoryEntry>),
    /// Another event.
    Event(Box<PositionedEvent>),
}

impl HistoryItem {
    /// Position in the order of the history.
    pub fn position(&self) -> HistoryPosition {
        let (when, number) = match self {
            Self::Change(change) => (change.when, change.number),
            Self::Event(happened) => (happened.when, happened.number),
        };
        HistoryPosition { when, number }
    }
}

impl Listing {
    fn wants(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    fn shows(&self, what: &EventContent) -> bool {
        let names_people = matches!(
            what,
            EventContent::Noted(NodeObservation::Audit { .. }) | EventContent::Bmc(_)
        );
        !(self.hides_users && names_people) && self.wants(what.kind())
    }
}

impl HistoryStore {
    /// History items of a node that match `listing`, newest first, at most `most`.
    pub(crate) fn list(
        &self,
        node: &str,
        listing: &Listing,
        most: usize,
    ) -> Result<Vec<HistoryItem>, HistoryError> {
        let after = listing.after;
        self.read(|txn| {
            let order = txn.open_table(ORDER)?;
            let from = (node, listing.since.unwrap_or(0), 0);
            let until = listing.until.and_then(|until| until.checked_add(1));
            let mut to = until.map_or((node, u64::MAX, u64::MAX), |until| (node, until, 0));
            if let Some(after) = after {
                to = to.min((node, after.when, after.number));
            }
            let mut found = Vec::new();
            if from >= to {
                return Ok(found);
            }
            for row in order.range(from..to)?.rev() {
                if found.len() >= most {
                    break;
                }
                let (key, kind) = row?;
                let number = key.value().2;
                found.extend(wanted(
                    txn,
                    (node, number),
                    LineKind::of(kind.value()),
                    listing,
                )?);
            }
            Ok(found)
        })
    }

    /// Time of the oldest kept change of a node, in Unix milliseconds.
    pub(crate) fn oldest_change(&self, node: &str) -> Result<Option<u64>, HistoryError> {
        self.read(|txn| {
            let order = txn.open_table(ORDER)?;
            for row in order.range((node, 0, 0)..=(node, u64::MAX, u64::MAX))? {
                let (key, kind) = row?;
                if LineKind::of(kind.value()).is_change() {
                    return Ok(Some(key.value().1));
                }
            }
            Ok(None)
        })
    }

    /// The item with this number, if it is kept and `hides_people` does not exclude it.
    pub(crate) fn item_numbered(
        &self,
        node: &str,
        number: u64,
        hides_people: bool,
    ) -> Result<Option<HistoryItem>, HistoryError> {
        let all = Listing {
            hides_users: hides_people,
            ..Listing::default()
        };
        self.read(|txn| {
            for kind in [LineKind::Change, LineKind::Event] {
                if let Some(item) = wanted(txn, (node, number), kind, &all)? {
                    return Ok(Some(item));
                }
            }
            Ok(None)
        })
    }
}

fn wanted(
    txn: &ReadTransaction,
    (node, number): (&str, u64),
    kind: LineKind,
    listing: &Listing,
) -> Result<Option<HistoryItem>, Failure> {
    if kind.is_change() {
        if !listing.wants(CHANGE_KIND) {
            return Ok(None);
        }
        let table = txn.open_table(ENTRIES)?;
        let Some(json) = table.get((node, number))? else {
            return Ok(None);
        };
        let change = read_entry(node, number, json.value())?;
        let is_wanted = listing
            .class
            .is_none_or(|class| change.entry.class == class);
        return Ok(is_wanted.then(|| HistoryItem::Change(Box::new(change))));
    }
    if listing.class.is_some() {
        return Ok(None);
    }
    let table = txn.open_table(EVENTS)?;
    let Some(json) = table.get((node, number))? else {
        return Ok(None);
    };
    let happened = read_event(node, number, json.value())?;
    let is_wanted = listing.shows(&happened.what);
    Ok(is_wanted.then(|| HistoryItem::Event(Box::new(happened))))
}

#[cfg(test)]
mod tests;
