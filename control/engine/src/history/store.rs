//! History database: class changes and events of nodes, stored on this control's disk and available while a node is
//! down or gone. Lines of agents are copies from their journals; lines of BMCs and observations of control exist only
//! here. Every control keeps a database of its own.
//!
//! Calls block and must not run on the async worker threads.

use super::{
    cache::{AnswerCache, KnownAges},
    tables::{
        BMC_EVENTS, CURSORS, DOCUMENTS, ENTRIES, EVENTS, FORMAT, FORMAT_MARK, Failure,
        HistoryError, MARKS, NOTES, ORDER, RECORDS, TIMES, database_error,
    },
    unread::parse_unread_lines,
};
use parking_lot::Mutex;
use redb::{
    Database, ReadableDatabase, ReadableTable as _, ReadableTableMetadata as _, WriteTransaction,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

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

/// History database.
#[derive(Debug)]
pub(crate) struct HistoryStore {
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
        let database = Database::create(path).map_err(|e| database_error(path, e))?;
        Self::create_tables(path.to_owned(), database)
    }

    /// Creates a database in memory, which ends with the process.
    pub(crate) fn in_memory() -> Result<Self, HistoryError> {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder().create_with_backend(backend);
        let path = PathBuf::new();
        let database = database.map_err(|e| database_error(&path, e))?;
        Self::create_tables(path, database)
    }

    /// Creates all tables, so that read transactions can open them.
    fn create_tables(path: PathBuf, database: Database) -> Result<Self, HistoryError> {
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
            txn.open_table(BMC_EVENTS)?;
            txn.open_table(ORDER)?;
            txn.open_table(DOCUMENTS)?;
            parse_unread_lines(txn)
        })?;
        Ok(store)
    }

    pub(super) fn read<T>(
        &self,
        look: impl FnOnce(&redb::ReadTransaction) -> Result<T, Failure>,
    ) -> Result<T, HistoryError> {
        let txn = self.database.begin_read();
        let txn = txn.map_err(|e| database_error(&self.path, e))?;
        look(&txn).map_err(|failure| failure.at(&self.path))
    }

    pub(super) fn write<T>(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<T, Failure>,
    ) -> Result<T, HistoryError> {
        let txn = self.database.begin_write();
        let txn = txn.map_err(|e| database_error(&self.path, e))?;
        let done = change(&txn).map_err(|failure| failure.at(&self.path))?;
        txn.commit().map_err(|e| database_error(&self.path, e))?;
        Ok(done)
    }
}
