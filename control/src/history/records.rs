//! Preimages by digest: kept as long as an entry names them.

use super::{
    store::HistoryStore,
    tables::{ENTRIES, HistoryError, RECORDS, read_entry},
};
use lattice_hwprobe::{ClassRecord, Digest, verify};
use redb::ReadableTable as _;
use std::{collections::BTreeSet, sync::PoisonError};

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
}
