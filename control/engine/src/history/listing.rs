//! Node history listing: class changes and other events in one list.

use super::{
    event::{Happened, HistoryPosition, Noted, What},
    store::{HistoryEntry, HistoryStore, Source},
    tables::{
        ENTRIES, EVENTS, Failure, HistoryError, MARKS, NOTES, ORDER, TIMES, encode, read_entry,
        read_event,
    },
    writer::Kind,
};
use lattice_hwprobe::Class;
use redb::{ReadTransaction, ReadableTable, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};

/// Kind name of class changes.
pub const CHANGE_KIND: &str = "change";
/// Mark of the last audit entry that was read.
const AUDIT: &str = "audit";

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
    pub hides_people: bool,
}

/// One item of a history list.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A class was published with a new mark.
    Change(Box<HistoryEntry>),
    /// Another event.
    Event(Box<Happened>),
}

impl Item {
    pub fn place(&self) -> HistoryPosition {
        let (when, number) = match self {
            Self::Change(told) => (told.when, told.number),
            Self::Event(happened) => (happened.when, happened.number),
        };
        HistoryPosition { when, number }
    }
}

/// Comparison state of each node by name, and the number of the last audit entry that was read.
pub type Noticed = (BTreeMap<String, Vec<u8>>, Option<u64>);

/// Observations of one node at one time.
#[derive(Debug, Clone, Default)]
pub struct Note {
    pub node: String,
    /// Observations, each with its time in Unix milliseconds.
    pub happened: Vec<(u64, Noted)>,
    /// Serialized state for the next comparison; `None` keeps the stored state.
    pub compared: Option<Vec<u8>>,
}

impl Listing {
    fn wants(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    fn shows(&self, what: &What) -> bool {
        let names_people = matches!(what, What::Noted(Noted::Audit { .. }) | What::Bmc(_));
        !(self.hides_people && names_people) && self.wants(what.kind())
    }
}

impl HistoryStore {
    /// History items of a node that match `listing`, newest first, at most `most`.
    pub(crate) fn list(
        &self,
        node: &str,
        listing: &Listing,
        most: usize,
    ) -> Result<Vec<Item>, HistoryError> {
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
                    Kind::of(kind.value()),
                    listing,
                )?);
            }
            Ok(found)
        })
    }

    /// Time of the oldest kept change of a node, in Unix milliseconds.
    pub(crate) fn begins(&self, node: &str) -> Result<Option<u64>, HistoryError> {
        self.read(|txn| {
            let order = txn.open_table(ORDER)?;
            for row in order.range((node, 0, 0)..=(node, u64::MAX, u64::MAX))? {
                let (key, kind) = row?;
                if Kind::of(kind.value()).is_change() {
                    return Ok(Some(key.value().1));
                }
            }
            Ok(None)
        })
    }

    /// The item with this number, if it is kept and `hides_people` does not exclude it.
    pub(crate) fn numbered(
        &self,
        node: &str,
        number: u64,
        hides_people: bool,
    ) -> Result<Option<Item>, HistoryError> {
        let all = Listing {
            hides_people,
            ..Listing::default()
        };
        self.read(|txn| {
            for kind in [Kind::Change, Kind::Event] {
                if let Some(item) = wanted(txn, (node, number), kind, &all)? {
                    return Ok(Some(item));
                }
            }
            Ok(None)
        })
    }

    /// Stores observations of this control and the number of the last audit entry read, in one transaction.
    pub(crate) fn note(&self, notes: &[Note], audit: Option<u64>) -> Result<(), HistoryError> {
        self.write(|txn| {
            for note in notes {
                let mut book = super::writer::Book::open(txn, &note.node)?;
                for (when, noted) in &note.happened {
                    book.event(*when, &What::Noted(noted.clone()))?;
                }
                book.close(None)?;
                if let Some(compared) = &note.compared {
                    let mut table = txn.open_table(NOTES)?;
                    table.insert(note.node.as_str(), compared.as_slice())?;
                }
            }
            if let Some(audit) = audit {
                txn.open_table(MARKS)?.insert(AUDIT, audit)?;
            }
            Ok(())
        })
    }

    /// Comparison state of each node, and the number of the last audit entry read.
    pub(crate) fn noted(&self) -> Result<Noticed, HistoryError> {
        self.read(|txn| {
            let mut compared = BTreeMap::new();
            for row in txn.open_table(NOTES)?.iter()? {
                let (node, bytes) = row?;
                compared.insert(node.value().to_owned(), bytes.value().to_vec());
            }
            let audit = txn.open_table(MARKS)?.get(AUDIT)?.map(|read| read.value());
            Ok((compared, audit))
        })
    }
}

fn wanted(
    txn: &ReadTransaction,
    (node, number): (&str, u64),
    kind: Kind,
    listing: &Listing,
) -> Result<Option<Item>, Failure> {
    if kind.is_change() {
        if !listing.wants(CHANGE_KIND) {
            return Ok(None);
        }
        let table = txn.open_table(ENTRIES)?;
        let Some(json) = table.get((node, number))? else {
            return Ok(None);
        };
        let told = read_entry(node, number, json.value())?;
        let is_wanted = listing.class.is_none_or(|class| told.entry.class == class);
        return Ok(is_wanted.then(|| Item::Change(Box::new(told))));
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
    Ok(is_wanted.then(|| Item::Event(Box::new(happened))))
}

/// Mark: 1 if any line is unreadable to every control so far, else 0; absent in a new database.
pub(super) const UNREAD: &str = "unread";

/// Parses lines that an older control stored unread and that this control can read.
pub(super) fn read_unread(txn: &WriteTransaction) -> Result<(), Failure> {
    let mut marks = txn.open_table(MARKS)?;
    // Without the mark every line of every node would be read at each start.
    if marks.get(UNREAD)?.is_some_and(|any| any.value() == 0) {
        return Ok(());
    }
    let mut order = txn.open_table(ORDER)?;
    let mut entries = txn.open_table(ENTRIES)?;
    let mut events = txn.open_table(EVENTS)?;
    let mut is_any_left = false;
    let mut unread = Vec::new();
    for row in order.iter()? {
        let (key, kind) = row?;
        if kind.value() == Kind::Unread as u8 {
            let (node, when, number) = key.value();
            unread.push((node.to_owned(), when, number));
        }
    }
    let mut times = txn.open_table(TIMES)?;
    for (node, when, number) in unread {
        let node = node.as_str();
        let Some(json) = events
            .get((node, number))?
            .map(|json| json.value().to_vec())
        else {
            continue;
        };
        let happened: Happened = read_event(node, number, &json)?;
        let kind = match happened.what.entry() {
            Some(entry) => {
                let told = HistoryEntry {
                    number,
                    when,
                    source: Source::Agent,
                    entry,
                    left_out: 0,
                };
                let json = serde_json::to_vec(&told).map_err(encode)?;
                entries.insert((node, number), json.as_slice())?;
                times.insert((when, node, number), ())?;
                events.remove((node, number))?;
                Kind::Change
            }
            None => Kind::of_event(&happened.what),
        };
        is_any_left |= kind == Kind::Unread;
        if kind == Kind::Event {
            let json = serde_json::to_vec(&happened).map_err(encode)?;
            events.insert((node, number), json.as_slice())?;
        }
        order.insert((node, when, number), kind as u8)?;
    }
    marks.insert(UNREAD, u64::from(is_any_left))?;
    Ok(())
}

#[cfg(test)]
mod tests;
