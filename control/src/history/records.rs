//! Preimages by digest: kept as long as an entry names them.

use super::{
    store::HistoryStore,
    tables::{ENTRIES, HistoryError, RECORDS, read_entry},
};
use lattice_hwprobe::{ClassRecord, Digest, verify};
use parking_lot::MutexGuard;
use redb::ReadableTable as _;
use std::collections::BTreeSet;

/// Records dropped in one transaction: nobody who writes waits for more.
const AT_A_TIME: usize = 512;

impl HistoryStore {
    /// The record of a digest, verified.
    pub(crate) fn record(&self, digest: &Digest) -> Result<Option<ClassRecord>, HistoryError> {
        self.read(|txn| {
            let records = txn.open_table(RECORDS)?;
            let found = records.get(digest.0)?;
            // One that is damaged is fetched again, as one that is not there.
            Ok(found.and_then(|bytes| verify(digest, bytes.value()).ok()))
        })
    }

    /// Whether something is kept for a digest. It stays until the next sweep but one: who asks is about
    /// to name it.
    pub(crate) fn has_record(&self, digest: &Digest) -> Result<bool, HistoryError> {
        self.unnamed().remove(&digest.0);
        self.read(|txn| Ok(txn.open_table(RECORDS)?.get(digest.0)?.is_some()))
    }

    /// Keeps the bytes of a record. The caller has verified them.
    pub(crate) fn keep_record(&self, digest: &Digest, bytes: &[u8]) -> Result<(), HistoryError> {
        self.unnamed().remove(&digest.0);
        self.write(|txn| {
            txn.open_table(RECORDS)?.insert(digest.0, bytes)?;
            Ok(())
        })
    }

    /// Drops records that no entry named when it was looked last, and none names now: a record is kept,
    /// or found kept, before its entry is written, and what is asked for meanwhile is left. All is read
    /// beside whoever writes; only what goes is written.
    pub(super) fn sweep(&self) -> Result<(), HistoryError> {
        let unnamed_now = self.read(|txn| {
            let mut unnamed = BTreeSet::new();
            for row in txn.open_table(RECORDS)?.iter()? {
                unnamed.insert(row?.0.value());
            }
            for row in txn.open_table(ENTRIES)?.iter()? {
                let (key, json) = row?;
                let (node, number) = key.value();
                let told = read_entry(node, number, json.value())?;
                if let Some(digest) = told.entry.to.digest() {
                    unnamed.remove(&digest.0);
                }
            }
            Ok(unnamed)
        })?;
        // Held until all of them are gone: who asks for one of them now waits, and is told that it is.
        let mut unnamed = self.unnamed();
        let goes: Vec<[u8; 32]> = unnamed.intersection(&unnamed_now).copied().collect();
        for goes in goes.chunks(AT_A_TIME) {
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

    /// Whole between statements, so a panic elsewhere does not spoil it.
    fn unnamed(&self) -> MutexGuard<'_, BTreeSet<[u8; 32]>> {
        self.unnamed.lock()
    }
}
