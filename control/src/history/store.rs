//! What nodes published, kept on this control's own disk: answered also while a node is down or
//! gone. A cache of what agents tell, so every control keeps its own and none asks another.
//!
//! Blocking: called off the runtime's threads.

use super::{
    book::Book,
    event::What,
    last::{DOCUMENTS, KnownAges},
    listing::read_unread,
    now::Known,
    tables::{
        CURSORS, DEEDS, ENTRIES, EVENTS, FORMAT, Failure, HistoryError, MARKS, NOTES, ORDER,
        RECORDS, TIMES, failed, read_entry,
    },
};
use lattice_hwprobe::{
    Class,
    history::{Entry, Record},
};
use parking_lot::Mutex;
use redb::{
    Database, ReadableDatabase, ReadableTable as _, ReadableTableMetadata as _, WriteTransaction,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    path::{Path, PathBuf},
};

/// The name of the format in [`MARKS`].
pub(super) const FORMAT_MARK: &str = "format";

/// Who told an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// The node's agent, from its journal.
    #[default]
    Agent,
    /// The node's BMC, as this control read it.
    Bmc,
}

/// One entry with its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Ours, rising by one with each entry of the node.
    pub(crate) number: u64,
    /// When, Unix milliseconds: as the node says, but never after it was heard.
    pub(crate) when: u64,
    /// Who told it.
    #[serde(default)]
    pub(crate) source: Source,
    /// What was published.
    pub(crate) entry: Entry,
    /// Entries of this class before it that were not written: a BMC came and went too often.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) left_out: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_none(number: &u32) -> bool {
    *number == 0
}

/// An entry that a BMC's worker made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FromBmc {
    pub(crate) entry: Entry,
    /// It tells of no change: the class is unknown, or known again as it was.
    pub(crate) is_turn: bool,
    /// See [`Told::left_out`].
    pub(crate) left_out: u32,
}

impl From<Entry> for FromBmc {
    fn from(entry: Entry) -> Self {
        Self {
            entry,
            is_turn: false,
            left_out: 0,
        }
    }
}

/// An entry somewhere in the fleet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToldBy {
    pub(crate) node: String,
    pub(crate) told: Told,
}

/// Writes the format into a new database; refuses one of another format.
fn check_format(txn: &WriteTransaction, path: &Path) -> Result<(), Failure> {
    let mut marks = txn.open_table(MARKS)?;
    let found = marks.get(FORMAT_MARK)?.map(|format| format.value());
    let is_new = found.is_none() && txn.open_table(CURSORS)?.is_empty()?;
    if is_new {
        marks.insert(FORMAT_MARK, FORMAT)?;
    } else if found != Some(FORMAT) {
        let path = path.to_owned();
        return Err(Failure::History(HistoryError::Format { path, found }));
    }
    Ok(())
}

/// How far an agent's journal was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Which journal; 0 for none.
    pub(crate) journal: u64,
    /// The last entry that was read, by its own number there.
    pub(crate) read: u64,
}

/// The database.
#[derive(Debug)]
pub(crate) struct HistoryStore {
    path: PathBuf,
    database: Database,
    /// Records that no entry named when they were last looked through.
    pub(super) unnamed: Mutex<BTreeSet<[u8; 32]>>,
    /// So that who asks for groups again costs no reading.
    pub(super) ages: KnownAges,
    /// The same for who asks what drifts.
    pub(super) known: Known,
}

impl HistoryStore {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Self, HistoryError> {
        let database = Database::create(path).map_err(|e| failed(path, e))?;
        Self::with(path.to_owned(), database)
    }

    /// One that ends with the process.
    pub(crate) fn in_memory() -> Result<Self, HistoryError> {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend);
        let path = PathBuf::new();
        let database = database.map_err(|e| failed(&path, e))?;
        Self::with(path, database)
    }

    /// Makes the tables, so that readers find them.
    fn with(path: PathBuf, database: Database) -> Result<Self, HistoryError> {
        let store = Self {
            path,
            database,
            unnamed: Mutex::default(),
            ages: Mutex::default(),
            known: Known::default(),
        };
        store.write(|txn| {
            check_format(txn, &store.path)?;
            txn.open_table(ENTRIES)?;
            txn.open_table(TIMES)?;
            txn.open_table(CURSORS)?;
            txn.open_table(RECORDS)?;
            txn.open_table(EVENTS)?;
            txn.open_table(NOTES)?;
            txn.open_table(MARKS)?;
            txn.open_table(DEEDS)?;
            txn.open_table(ORDER)?;
            txn.open_table(DOCUMENTS)?;
            read_unread(txn)
        })?;
        Ok(store)
    }

    /// Which journal of `node` was read, up to which entry.
    pub(crate) fn cursor(&self, node: &str) -> Result<Cursor, HistoryError> {
        self.read(|txn| {
            let cursors = txn.open_table(CURSORS)?;
            let found = cursors.get(node)?.map(|cursor| cursor.value());
            Ok(
                found.map_or_else(Cursor::default, |(journal, read, _)| Cursor {
                    journal,
                    read,
                }),
            )
        })
    }

    /// Adds what an agent told of the journal in `cursor`, heard at `heard_at`, and remembers that
    /// it was read up to there. What is here already is left out. How many were new.
    pub(crate) fn append<R: Clone + Into<Record>>(
        &self,
        node: &str,
        cursor: Cursor,
        records: &[R],
        heard_at: u64,
    ) -> Result<u64, HistoryError> {
        self.write(|txn| {
            let mut book = Book::open(txn, node)?;
            let known = book.cursor();
            let mut added = 0;
            for record in records {
                let record: Record = record.clone().into();
                let is_news = known.journal != cursor.journal || record.seq() > Some(known.read);
                added += u64::from(is_news);
                let at = record.at();
                match record {
                    _ if !is_news => {}
                    Record::Entry(entry) => book.entry(&entry, heard_at)?,
                    Record::Event(event) => book.told(at, What::Event(event), heard_at)?,
                    Record::Other(value) => book.told(at, What::Other(value), heard_at)?,
                }
            }
            book.close(Some(cursor))?;
            Ok(added)
        })
    }

    /// Adds what a node's BMC told, read at `heard_at`, among what its agent told: one sequence of
    /// numbers for both.
    pub(crate) fn append_bmc<T: Clone + Into<FromBmc>>(
        &self,
        node: &str,
        told: &[T],
        heard_at: u64,
    ) -> Result<(), HistoryError> {
        self.write(|txn| {
            let mut book = Book::open(txn, node)?;
            for told in told {
                book.bmc_entry(&told.clone().into(), heard_at)?;
            }
            book.close(None)
        })
    }

    /// The entries of a node, those heard last first: of `class` where one is given, before `before`
    /// where a number is, not older than `since`, `most` at most.
    pub(crate) fn of_node(
        &self,
        node: &str,
        wanted: &Wanted,
        most: usize,
    ) -> Result<Vec<Told>, HistoryError> {
        self.read(|txn| {
            let table = txn.open_table(ENTRIES)?;
            let end = wanted.before.unwrap_or(u64::MAX);
            let mut found = Vec::new();
            for row in table.range((node, 0)..(node, end))?.rev() {
                let (key, json) = row?;
                let told = read_entry(key.value().0, key.value().1, json.value())?;
                // No end of the search: of two sources one may be heard late.
                if wanted.class.is_none_or(|class| told.entry.class == class)
                    && wanted.source.is_none_or(|source| told.source == source)
                    && wanted.since.is_none_or(|since| told.when >= since)
                    && wanted.until.is_none_or(|until| told.when <= until)
                {
                    found.push(told);
                }
                if found.len() >= most {
                    break;
                }
            }
            Ok(found)
        })
    }

    /// The entry of a node heard last of each class and from each who tells it.
    pub(super) fn last_of_each(
        &self,
        node: &str,
    ) -> Result<BTreeMap<(Class, Source), Told>, HistoryError> {
        self.read(|txn| {
            let table = txn.open_table(ENTRIES)?;
            let mut last = BTreeMap::new();
            for row in table.range((node, 0)..(node, u64::MAX))?.rev() {
                let (key, json) = row?;
                let told = read_entry(key.value().0, key.value().1, json.value())?;
                last.entry((told.entry.class, told.source)).or_insert(told);
            }
            Ok(last)
        })
    }

    /// What changed anywhere from `since` on, newest first, before `before` where given, `most` at
    /// most.
    pub(crate) fn changes(
        &self,
        since: u64,
        before: Option<(u64, &str, u64)>,
        most: usize,
    ) -> Result<Vec<ToldBy>, HistoryError> {
        self.read(|txn| {
            let (times, table) = (txn.open_table(TIMES)?, txn.open_table(ENTRIES)?);
            let start = Bound::Included((since, "", 0));
            let end = match before {
                // A range that ends before it starts is a mistake of the caller to the database.
                Some(before) if before <= (since, "", 0) => return Ok(Vec::new()),
                Some(before) => Bound::Excluded(before),
                None => Bound::Unbounded,
            };
            let mut found = Vec::new();
            for row in times.range::<(u64, &str, u64)>((start, end))?.rev() {
                if found.len() >= most {
                    break;
                }
                let (key, ()) = row.map(|(key, unit)| (key, unit.value()))?;
                let (_, node, number) = key.value();
                let Some(json) = table.get((node, number))? else {
                    continue;
                };
                found.push(ToldBy {
                    node: node.to_owned(),
                    told: read_entry(node, number, json.value())?,
                });
            }
            Ok(found)
        })
    }

    /// As a database that refuses: the table that nodes' entries are in is gone.
    #[cfg(test)]
    pub(crate) fn lose_entries(&self) -> Result<(), HistoryError> {
        self.write(|txn| Ok(txn.delete_table(ENTRIES).map(|_| ())?))
    }

    /// Entries of all nodes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> Result<u64, HistoryError> {
        use redb::ReadableTableMetadata as _;
        self.read(|txn| Ok(txn.open_table(TIMES)?.len()?))
    }

    pub(super) fn read<T>(
        &self,
        look: impl FnOnce(&redb::ReadTransaction) -> Result<T, Failure>,
    ) -> Result<T, HistoryError> {
        let txn = self.database.begin_read();
        let txn = txn.map_err(|e| failed(&self.path, e))?;
        look(&txn).map_err(|failure| failure.at(&self.path))
    }

    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<T, Failure>,
    ) -> Result<T, HistoryError> {
        let txn = self.database.begin_write();
        let txn = txn.map_err(|e| failed(&self.path, e))?;
        let done = change(&txn).map_err(|failure| failure.at(&self.path))?;
        txn.commit().map_err(|e| failed(&self.path, e))?;
        Ok(done)
    }
}

/// Which entries of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) class: Option<Class>,
    /// Told by this one.
    pub(crate) source: Option<Source>,
    /// Not older, Unix milliseconds.
    pub(crate) since: Option<u64>,
    /// Not younger.
    pub(crate) until: Option<u64>,
    /// With a lower number.
    pub(crate) before: Option<u64>,
}
