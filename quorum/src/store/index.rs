//! In-memory index of the log: its ends, vote and commit point, and the newest entries.

use crate::raft::types::{Entry, LogId, Vote};
use std::collections::BTreeMap;

/// Maximum encoded size of the cached entries, bytes, apart from entries not on disk yet. Followers that keep up are
/// served from this cache.
const CACHE_BYTES: usize = 32 << 20;
pub(super) struct CachedEntry {
    pub(super) entry: Entry,
    pub(super) bytes: usize,
    /// Number of the append that wrote the entry. The entry may leave the cache once that append is on disk.
    pub(super) seq: u64,
}

#[derive(Default)]
pub(super) struct LogIndex {
    pub(super) cache: BTreeMap<u64, CachedEntry>,
    pub(super) cached_bytes: usize,
    /// Number of appends handed to the writer.
    pub(super) appends: u64,
    /// Number of appends known to be on disk.
    pub(super) flushed: u64,
    pub(super) last: Option<LogId>,
    pub(super) purged: Option<LogId>,
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
}

impl LogIndex {
    pub(super) fn insert(&mut self, entry: Entry, bytes: usize, seq: u64) {
        self.last = Some(entry.log_id);
        let cached = CachedEntry { entry, bytes, seq };
        self.cached_bytes += bytes;
        if let Some(old) = self.cache.insert(cached.entry.log_id.index, cached) {
            self.cached_bytes -= old.bytes;
        }
    }
    /// Drops the oldest entries that are on disk, down to the limit.
    pub(super) fn shrink(&mut self) {
        while self.cached_bytes > CACHE_BYTES && self.cache.len() > 1 {
            match self.cache.first_entry() {
                Some(first) if first.get().seq <= self.flushed => {
                    self.cached_bytes -= first.remove().bytes;
                }
                _ => return,
            }
        }
    }
    pub(super) fn drop_outside(&mut self, keep: impl Fn(u64) -> bool) {
        let mut dropped = 0;
        self.cache.retain(|index, cached| {
            let kept = keep(*index);
            dropped += if kept { 0 } else { cached.bytes };
            kept
        });
        self.cached_bytes -= dropped;
    }
}
