//! What nodes published, kept on this control's own disk: answered also while a node is down or
//! gone. A cache of what agents tell, so every control keeps its own and none asks another.
//!
//! Blocking: called off the runtime's threads.

use super::{
    book::Book,
    event::{Happened, What},
    listing::put_in_order,
};
use lattice_hwprobe::{
    Class, ClassRecord, Digest,
    history::{Entry, Record},
    verify,
};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// `(node, number)`: one published change. Numbers are ours: an agent that lost its journal begins
/// at 1 again.
pub(super) const ENTRIES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("entries");
/// `(when, node, number)`, for questions about the whole fleet.
pub(super) const TIMES: TableDefinition<'_, (u64, &str, u64), ()> = TableDefinition::new("times");
/// Which journal of a node was read, up to which of its entries, and the number the next one gets.
pub(super) const CURSORS: TableDefinition<'_, &str, (u64, u64, u64)> =
    TableDefinition::new("cursors");
/// `(node, number)`: what else happened.
pub(super) const EVENTS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("events");
/// `(node, when, number)`: which of the two tables has it. What is asked of one node goes by this;
/// what is asked of the fleet by [`TIMES`], which has changes alone.
pub(super) const ORDER: TableDefinition<'_, (&str, u64, u64), u8> = TableDefinition::new("order");
/// What this control compares a node with the next time it looks.
pub(super) const NOTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notes");
/// What of a node's BMC was told.
pub(super) const DEEDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("deeds");
/// How far it read what has numbers of its own.
pub(super) const MARKS: TableDefinition<'_, &str, u64> = TableDefinition::new("marks");
/// Preimages by digest.
const RECORDS: TableDefinition<'_, [u8; 32], &[u8]> = TableDefinition::new("records");

/// Why the history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The database refuses.
    #[error("the history at {}", .path.display())]
    Database {
        /// Its file; empty for one in memory.
        path: PathBuf,
        /// What it says.
        source: Box<redb::Error>,
    },
    /// An entry is not what was written.
    #[error("entry {number} of {node} in the history cannot be read")]
    Entry {
        /// Whose.
        node: String,
        /// Which.
        number: u64,
        /// What the reader says.
        source: serde_json::Error,
    },
}

/// Who told an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    unnamed: Mutex<BTreeSet<[u8; 32]>>,
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
        };
        store.write(|txn| {
            txn.open_table(ENTRIES)?;
            txn.open_table(TIMES)?;
            txn.open_table(CURSORS)?;
            txn.open_table(RECORDS)?;
            txn.open_table(EVENTS)?;
            txn.open_table(NOTES)?;
            txn.open_table(MARKS)?;
            txn.open_table(DEEDS)?;
            put_in_order(txn)
        })?;
        store.sweep(true)?;
        Ok(store)
    }

    /// Drops records that no kept entry names: at once where nobody else writes yet, otherwise what
    /// the sweep before found so too, since a record is kept before its entry.
    pub(super) fn sweep(&self, at_once: bool) -> Result<(), HistoryError> {
        let unnamed = self.unnamed.lock();
        let mut unnamed = unnamed.unwrap_or_else(PoisonError::into_inner);
        *unnamed = self.write(|txn| {
            let table = txn.open_table(ENTRIES)?;
            let mut named = BTreeSet::new();
            for row in table.iter()? {
                let (key, json) = row?;
                let (node, number) = key.value();
                let told = read_entry(node, number, json.value())?;
                named.extend(told.entry.to.digest().map(|digest| digest.0));
            }
            let mut records = txn.open_table(RECORDS)?;
            let mut left = BTreeSet::new();
            records.retain(|digest, _| {
                let is_named = named.contains(&digest);
                let goes = !is_named && (at_once || unnamed.contains(&digest));
                if !is_named && !goes {
                    left.insert(digest);
                }
                !goes
            })?;
            Ok(left)
        })?;
        Ok(())
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

    /// What happened anywhere from `since` on, oldest first, after `after` where given, `most` at
    /// most.
    pub(crate) fn changes(
        &self,
        since: u64,
        after: Option<(u64, &str, u64)>,
        most: usize,
    ) -> Result<Vec<ToldBy>, HistoryError> {
        self.read(|txn| {
            let (times, table) = (txn.open_table(TIMES)?, txn.open_table(ENTRIES)?);
            let start = match after {
                Some(after) => Bound::Excluded(after),
                None => Bound::Included((since, "", 0)),
            };
            let mut found = Vec::new();
            for row in times.range::<(u64, &str, u64)>((start, Bound::Unbounded))? {
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

    /// The record of a digest, verified.
    pub(crate) fn record(&self, digest: &Digest) -> Result<Option<ClassRecord>, HistoryError> {
        self.read(|txn| {
            let records = txn.open_table(RECORDS)?;
            let found = records.get(digest.0)?;
            // One that is damaged is fetched again, as one that is not there.
            Ok(found.and_then(|bytes| verify(digest, bytes.value()).ok()))
        })
    }

    /// Whether something is kept for a digest.
    pub(crate) fn has_record(&self, digest: &Digest) -> Result<bool, HistoryError> {
        self.read(|txn| Ok(txn.open_table(RECORDS)?.get(digest.0)?.is_some()))
    }

    /// Keeps the bytes of a record. The caller has verified them.
    pub(crate) fn keep_record(&self, digest: &Digest, bytes: &[u8]) -> Result<(), HistoryError> {
        self.write(|txn| {
            txn.open_table(RECORDS)?.insert(digest.0, bytes)?;
            Ok(())
        })
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

pub(super) fn read_entry(node: &str, number: u64, json: &[u8]) -> Result<Told, Failure> {
    serde_json::from_slice(json).map_err(|source| {
        Failure::Entry(HistoryError::Entry {
            node: node.to_owned(),
            number,
            source,
        })
    })
}

pub(super) fn read_event(node: &str, number: u64, json: &[u8]) -> Result<Happened, Failure> {
    let read: Result<Happened, _> = serde_json::from_slice(json);
    let mut happened = read.map_err(|source| {
        Failure::Entry(HistoryError::Entry {
            node: node.to_owned(),
            number,
            source,
        })
    })?;
    happened.what = happened.what.understood();
    Ok(happened)
}

pub(super) fn encode(source: serde_json::Error) -> Failure {
    Failure::Database(Box::new(redb::Error::Io(std::io::Error::other(source))))
}

fn failed(path: &Path, source: impl Into<redb::Error>) -> HistoryError {
    HistoryError::Database {
        path: path.to_owned(),
        source: Box::new(source.into()),
    }
}

/// Inside a transaction, where the path is not at hand.
pub(super) enum Failure {
    Database(Box<redb::Error>),
    Entry(HistoryError),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Database(Box::new(error.into()))
    }
}

impl Failure {
    fn at(self, path: &Path) -> HistoryError {
        match self {
            Self::Entry(error) => error,
            Self::Database(source) => HistoryError::Database {
                path: path.to_owned(),
                source,
            },
        }
    }
}
