//! Stored preimages by digest, kept as long as an entry names them.

use super::{
    store::HistoryStore,
    tables::{ENTRIES, HistoryError, RECORDS, read_entry},
};
use lattice_conformance::{ClassRecord, Digest, verify};
use parking_lot::MutexGuard;
use redb::ReadableTable as _;
use std::collections::BTreeSet;

/// Maximum number of records deleted in one transaction, to limit the wait of other writers.
const DELETIONS_PER_TRANSACTION: usize = 512;

impl HistoryStore {
    /// The verified record of a digest, if it is stored.
    pub(crate) fn record(&self, digest: &Digest) -> Result<Option<ClassRecord>, HistoryError> {
        self.read(|txn| {
            let records = txn.open_table(RECORDS)?;
            let found = records.get(digest.0)?;
            // A damaged record counts as missing and is fetched again.
            Ok(found.and_then(|bytes| verify(digest, bytes.value()).ok()))
        })
    }

    /// Whether a record is stored for a digest. The record then survives the next sweep, because the caller is about to
    /// write an entry that names it.
    pub(crate) fn has_record(&self, digest: &Digest) -> Result<bool, HistoryError> {
        self.unnamed().remove(&digest.0);
        self.read(|txn| Ok(txn.open_table(RECORDS)?.get(digest.0)?.is_some()))
    }

    /// Stores the bytes of a record. The caller has verified them.
    pub(crate) fn keep_record(&self, digest: &Digest, bytes: &[u8]) -> Result<(), HistoryError> {
        self.unnamed().remove(&digest.0);
        self.write(|txn| {
            txn.open_table(RECORDS)?.insert(digest.0, bytes)?;
            Ok(())
        })
    }

    /// Deletes records that no entry named at the last sweep and that no entry names now. A record is stored, or found
    /// stored, before its entry is written, so a record requested in between is kept. The scan runs in a read
    /// transaction and does not block writers; only the deletions are written.
    pub(super) fn sweep(&self) -> Result<(), HistoryError> {
        let unnamed_now = self.read(|txn| {
            let mut unnamed = BTreeSet::new();
            for row in txn.open_table(RECORDS)?.iter()? {
                unnamed.insert(row?.0.value());
            }
            for row in txn.open_table(ENTRIES)?.iter()? {
                let (key, json) = row?;
                let (node, number) = key.value();
                let history_entry = read_entry(node, number, json.value())?;
                if let Some(digest) = history_entry.entry.to.digest() {
                    unnamed.remove(&digest.0);
                }
            }
            Ok(unnamed)
        })?;
        // The lock is held until all deletions are done: a concurrent query for one of these records waits and then
        // finds it missing.
        let mut unnamed = self.unnamed();
        let goes: Vec<[u8; 32]> = unnamed.intersection(&unnamed_now).copied().collect();
        for goes in goes.chunks(DELETIONS_PER_TRANSACTION) {
            self.write(|txn| {
                let mut records = txn.open_table(RECORDS)?;
                for digest in goes {
                    records.remove(digest)?;
                }
                Ok(())
            })?;
        }
        let left = unnamed_now.difference(&unnamed).copied().collect();
        *unnamed = left;
        Ok(())
    }

    /// Locks the set of digests that no entry named at the last sweep.
    fn unnamed(&self) -> MutexGuard<'_, BTreeSet<[u8; 32]>> {
        self.unnamed.lock()
    }
}
