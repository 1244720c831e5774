//! History database: published class marks of nodes, stored on this control's disk and available while a node is down
//! or gone. The database is a cache of the agents' journals; every control keeps its own copy independently.
//!
//! Calls block and must run outside the runtime's threads.

use super::{
    event::What,
    last::{DOCUMENTS, KnownAges},
    listing::read_unread,
    now::AnswerCache,
    tables::{
        CURSORS, DEEDS, ENTRIES, EVENTS, FORMAT, Failure, HistoryError, MARKS, NOTES, ORDER,
        RECORDS, TIMES, failed, read_entry,
    },
    writer::Book,
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

/// Key of the format number in [`MARKS`].
pub(super) const FORMAT_MARK: &str = "format";

/// Source of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The node's agent, from its journal.
    #[default]
    Agent,
    /// The node's BMC, as read by this control.
    Bmc,
}

/// An entry with its position in the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Number assigned by this control, rising by one with each entry or event of the node.
    pub number: u64,
    /// Time reported by the node, in Unix milliseconds, but not later than the time of receipt.
    pub when: u64,
    /// Source of the entry.
    #[serde(default)]
    pub source: Source,
    /// Published change.
    pub entry: Entry,
    /// Number of earlier entries of this class that were left out because the BMC was flapping.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
const fn is_none(number: &u32) -> bool {
    *number == 0
}

/// An entry from a BMC worker.
#[derive(Debug, Clone, PartialEq)]
pub struct FromBmc {
    pub(crate) entry: Entry,
    /// Whether the entry reports no change: the class became unknown, or has its last known value again.
    pub(crate) is_turn: bool,
    /// Number of earlier entries of this class that were left out because the BMC was flapping.
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

/// An entry of any node of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ToldBy {
    pub node: String,
    pub told: HistoryEntry,
}

/// Writes the format into a new database; rejects a database of another format.
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

/// Position up to which an agent's journal was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Id of the journal; 0 for none.
    pub journal: u64,
    /// Sequence number in the journal of the last entry read.
    pub read: u64,
}

/// History database.
#[derive(Debug)]
pub struct HistoryStore {
    path: PathBuf,
    database: Database,
    /// Digests of records that no entry named at the last sweep.
    pub(super) unnamed: Mutex<BTreeSet<[u8; 32]>>,
    /// Cached class ages, so that repeated queries for groups need no read.
    pub(super) ages: KnownAges,
    /// Cached answers, so that repeated drift queries need no read.
    pub(super) known: AnswerCache,
}

impl HistoryStore {
    /// Opens the database file, or creates it.
    pub(crate) fn open(path: &Path) -> Result<Self, HistoryError> {
        let database = Database::create(path).map_err(|e| failed(path, e))?;
        Self::with(path.to_owned(), database)
    }

    /// Creates a database in memory, which ends with the process.
    pub(crate) fn in_memory() -> Result<Self, HistoryError> {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend);
        let path = PathBuf::new();
        let database = database.map_err(|e| failed(&path, e))?;
        Self::with(path, database)
    }

    /// Creates all tables, so that read transactions can open them.
    fn with(path: PathBuf, database: Database) -> Result<Self, HistoryError> {
        let store = Self {
            path,
            database,
            unnamed: Mutex::default(),
            ages: Mutex::default(),
            known: AnswerCache::default(),
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

    /// Journal of `node` that was read, and the position up to which it was read.
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

    /// Adds records from the agent's journal in `cursor`, received at `heard_at`, and stores the new cursor. Records
    /// that are stored already are skipped. Returns the number of new records.
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

    /// Adds changes read from a node's BMC at `heard_at`. Agent and BMC share one sequence of numbers.
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

    /// Entries of a node that match `wanted`, last received first, at most `most`.
    pub(crate) fn of_node(
        &self,
        node: &str,
        wanted: &HistoryFilter,
        most: usize,
    ) -> Result<Vec<HistoryEntry>, HistoryError> {
        self.read(|txn| {
            let table = txn.open_table(ENTRIES)?;
            let end = wanted.before.unwrap_or(u64::MAX);
            let mut found = Vec::new();
            for row in table.range((node, 0)..(node, end))?.rev() {
                let (key, json) = row?;
                let told = read_entry(key.value().0, key.value().1, json.value())?;
                // The loop must not stop at the time limit, because entries of one source may arrive late.
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

    /// Last received entry of a node for each class and source.
    pub(super) fn last_of_each(
        &self,
        node: &str,
    ) -> Result<BTreeMap<(Class, Source), HistoryEntry>, HistoryError> {
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

    /// Changes of all nodes from `since` on, newest first, only those before `before` if given, at most `most`.
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
                // The database treats a range that ends before its start as an error.
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

    /// Simulates a failing database by deleting the table of entries.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn lose_entries(&self) -> Result<(), HistoryError> {
        self.write(|txn| Ok(txn.delete_table(ENTRIES).map(|_| ())?))
    }

    /// Number of entries of all nodes.
    #[cfg(any(test, feature = "testing"))]
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

/// Filter of a node's entries.
#[derive(Debug, Clone, Default)]
pub struct HistoryFilter {
    pub(crate) class: Option<Class>,
    /// Only entries from this source.
    pub(crate) source: Option<Source>,
    /// Earliest time, in Unix milliseconds.
    pub(crate) since: Option<u64>,
    /// Latest time, in Unix milliseconds.
    pub(crate) until: Option<u64>,
    /// Only entries with a lower number.
    pub(crate) before: Option<u64>,
}
