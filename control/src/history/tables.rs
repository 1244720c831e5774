//! The database's tables, what is read of their rows, and why that fails.

use super::{event::Happened, store::Told};
use redb::TableDefinition;
use std::path::{Path, PathBuf};

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
pub(super) const RECORDS: TableDefinition<'_, [u8; 32], &[u8]> = TableDefinition::new("records");

/// The format of the database, kept in [`MARKS`] since its first opening.
pub(super) const FORMAT: u64 = 1;

/// Why the history cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Another version wrote the database.
    #[error(
        "the history at {} has {}; this version of Lattice reads format {FORMAT}. Nothing was changed. Start the \
         version that wrote it, or move the file away: a new one begins with what agents still have in their journals",
        .path.display(), found.map_or("no format".to_owned(), |found| format!("format {found}"))
    )]
    Format {
        /// Its file; empty for one in memory.
        path: PathBuf,
        /// The format that it names; `None` where it names none and has rows.
        found: Option<u64>,
    },
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

pub(super) fn read_entry(node: &str, number: u64, json: &[u8]) -> Result<Told, Failure> {
    serde_json::from_slice(json).map_err(|source| {
        Failure::History(HistoryError::Entry {
            node: node.to_owned(),
            number,
            source,
        })
    })
}

pub(super) fn read_event(node: &str, number: u64, json: &[u8]) -> Result<Happened, Failure> {
    let read: Result<Happened, _> = serde_json::from_slice(json);
    let mut happened = read.map_err(|source| {
        Failure::History(HistoryError::Entry {
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

pub(super) fn failed(path: &Path, source: impl Into<redb::Error>) -> HistoryError {
    HistoryError::Database {
        path: path.to_owned(),
        source: Box::new(source.into()),
    }
}

/// Inside a transaction, where the path is not at hand.
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
