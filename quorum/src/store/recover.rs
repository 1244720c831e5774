//! Opening of the log: reads and verifies all of it before any other use.

use super::{
    OpenError,
    index::LogIndex,
    row,
    writer::{COMMITTED, LOG, META, PURGED, VOTE, read_meta},
};
use crate::{
    platform::Files,
    raft::types::{Entry, Vote},
};
use lattice_quorum_types::{
    VoterId,
    planted::{self, Bug},
};
use redb::{Database, ReadableDatabase};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// Returns whether the error reports invalid content of the file, and not a failed read.
fn is_content(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof)
}

/// Returns the vote as uncommitted if it is for this member, which may have led when it stopped. A restarted member
/// must not resume as leader of the same term. The openraft engine would let it resume, and would treat the commit
/// point on disk, possibly an old one, as final. Reads from the member could then miss acknowledged commands. Instead,
/// the member stands for election. The leader of a new term serves no read before an entry of that term is committed.
pub(super) fn without_leadership(vote: Vote, voter: VoterId) -> Vote {
    if vote.leader_id.node_id == voter && !planted::is_planted(Bug::LeadsOn) {
        Vote::new(vote.leader_id.term, voter)
    } else {
        vote
    }
}

/// Opens the database. redb checks its own pages; a panic in redb is treated as damage too.
pub(super) fn open_database(files: &dyn Files, path: &Path) -> Result<Database, OpenError> {
    let open = || {
        let mut builder = Database::builder();
        builder.set_cache_size(16 << 20);
        let database = files.database(path, builder)?;
        let transaction = database.begin_write()?;
        transaction.open_table(LOG)?;
        transaction.open_table(META)?;
        transaction.commit()?;
        Ok(database)
    };
    let opened: Result<Result<Database, redb::Error>, _> = catch_unwind(AssertUnwindSafe(open));
    match opened {
        Ok(Ok(database)) => Ok(database),
        Ok(Err(redb::Error::DatabaseAlreadyOpen)) => Err(OpenError::InUse {
            path: path.parent().unwrap_or(path).to_owned(),
        }),
        Ok(Err(redb::Error::Io(source))) if !is_content(&source) => Err(OpenError::Io {
            path: path.to_owned(),
            source,
        }),
        Ok(Err(error)) => Err(OpenError::damaged(path, error)),
        Err(_) => Err(OpenError::damaged(
            path,
            "its structure is broken (is it truncated?)",
        )),
    }
}

/// Reads all entries, so that damage is found at the start and not in the middle of operation.
pub(super) fn load(database: &Database) -> Result<LogIndex, String> {
    let mut index = LogIndex {
        vote: read_meta(database, VOTE)?,
        committed: read_meta(database, COMMITTED)?,
        purged: read_meta(database, PURGED)?,
        ..LogIndex::default()
    };
    index.last = index.purged;
    let read = || -> Result<_, redb::Error> { Ok(database.begin_read()?.open_table(LOG)?) };
    let table = read().map_err(|e| e.to_string())?;
    for item in table.range::<u64>(..).map_err(|e| e.to_string())? {
        let (key, row) = item.map_err(|e| e.to_string())?;
        let entry: Entry = row::decode(key.value(), row.value())?;
        let expected = index.last.map_or(0, |id| id.index + 1);
        if entry.log_id.index != expected || key.value() != expected {
            return Err(format!(
                "entry {expected} is missing, {} follows",
                key.value()
            ));
        }
        index.insert(entry, row.value().len(), 0);
        index.shrink();
    }
    Ok(index)
}
