//! Tables of the history database, decoding of rows, and errors.

use super::{entry::HistoryEntry, event::PositionedEvent};
use redb::TableDefinition;
use std::path::{Path, PathBuf};

/// `(node, number)`: one published change. Numbers are assigned by this control, because an agent that lost its journal
/// starts at 1 again.
pub(super) const ENTRIES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("entries");
/// `(when, node, number)`: index of changes for queries about all nodes.
pub(super) const TIMES: TableDefinition<'_, (u64, &str, u64), ()> = TableDefinition::new("times");
/// By node: id of the journal read, sequence number of its last entry read, and number of the next line.
pub(super) const CURSORS: TableDefinition<'_, &str, (u64, u64, u64)> =
    TableDefinition::new("cursors");
/// `(node, number)`: one event other than a class change.
pub(super) const EVENTS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("events");
/// `(node, when, number)`: kind of the line, which selects entries or events. Queries about one node use this index;
/// queries about all nodes use [`TIMES`], which holds changes only.
pub(super) const ORDER: TableDefinition<'_, (&str, u64, u64), u8> = TableDefinition::new("order");
/// By node: state for the next comparison by this control.
pub(super) const NOTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notes");
/// By node: BMC events that were stored already.
pub(super) const BMC_EVENTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("deeds");
/// Named numbers, such as the last audit entry read.
pub(super) const MARKS: TableDefinition<'_, &str, u64> = TableDefinition::new("marks");
/// By digest: verified records (preimages).
pub(super) const RECORDS: TableDefinition<'_, [u8; 32], &[u8]> = TableDefinition::new("records");

/// By node: the last document, as its digest followed by the document's bytes.
pub(super) const DOCUMENTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("documents");
/// Format number of the database, stored in [`MARKS`] when the database is created.
pub(super) const FORMAT: u64 = 1;
/// Key of the format number in [`MARKS`].
pub(super) const FORMAT_MARK: &str = "format";
/// Mark of the last audit entry that was read.
pub(super) const AUDIT: &str = "audit";
/// Mark: 1 if the database holds an agent's record that no control could read so far, else 0.
pub(super) const UNREAD: &str = "unread";

/// Reason why the history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Another version of Lattice wrote the database.
    #[error(
        "the history at {} has {}; this version of Lattice reads format {FORMAT}. Nothing was \
         changed. Start the version that wrote it, or move the file away: a new history starts \
         with the entries that agents still have in their journals",
        .path.display(), found.map_or("no format".to_owned(), |found| format!("format {found}"))
    )]
    Format {
        /// Path of the database; empty for one in memory.
        path: PathBuf,
        /// Format number found; `None` if a database with rows has none.
        found: Option<u64>,
    },
    /// The database returned an error.
    #[error("cannot access the history database {}", .path.display())]
    Database {
        /// Path of the database; empty for one in memory.
        path: PathBuf,
        /// Error of the database.
        source: Box<redb::Error>,
    },
    /// A stored entry or event cannot be parsed.
    #[error("entry {number} of {node} in the history cannot be read")]
    Entry {
        /// Node of the entry.
        node: String,
        /// Number of the entry.
        number: u64,
        /// Parse error.
        source: serde_json::Error,
    },
}

pub(super) fn read_entry(node: &str, number: u64, json: &[u8]) -> Result<HistoryEntry, Failure> {
    serde_json::from_slice(json).map_err(|source| {
        Failure::History(HistoryError::Entry {
            node: node.to_owned(),
            number,
            source,
        })
    })
}

pub(super) fn read_event(node: &str, number: u64, json: &[u8]) -> Result<PositionedEvent, Failure> {
    let read: Result<PositionedEvent, _> = serde_json::from_slice(json);
    let mut happened = read.map_err(|source| {
        Failure::History(HistoryError::Entry {
            node: node.to_owned(),
            number,
            source,
        })
    })?;
    happened.what = happened.what.upgraded();
    Ok(happened)
}

pub(super) fn encode(source: serde_json::Error) -> Failure {
    Failure::Database(Box::new(redb::Error::Io(std::io::Error::other(source))))
}

pub(super) fn database_error(path: &Path, source: impl Into<redb::Error>) -> HistoryError {
    HistoryError::Database {
        path: path.to_owned(),
        source: Box::new(source.into()),
    }
}

/// Error inside a transaction, where the path is not available.
pub(super) enum Failure {
    Database(Box<redb::Error>),
    History(HistoryError),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Database(Box::new(error.into()))
    }
}

impl Failure {
    pub(super) fn at(self, path: &Path) -> HistoryError {
        match self {
            Self::History(error) => error,
            Self::Database(source) => HistoryError::Database {
                path: path.to_owned(),
                source,
            },
        }
    }
}
