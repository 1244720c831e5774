//! Audit search: pages of matching entries, from entries in memory and from segments that are read only if needed.

use super::{AuditEntry, AuditFilter, AuditHead, SegmentBounds};
use crate::size::encoded_bytes;
use serde::{Deserialize, Serialize};

/// Largest number of entries on a page.
pub const MAX_PAGE_ENTRIES: u32 = 10_000;
/// Largest number of entries examined for one page. A page may therefore be short; its cursor continues the search.
const MAX_EXAMINED: usize = 100_000;
/// Largest size of the entries on a page, bytes. A single larger entry is still returned, since one entry may name
/// thousands of nodes. JSON takes two to three times as much, and gRPC clients accept 4 MiB by default.
pub const MAX_PAGE_BYTES: usize = 1 << 20;

/// Order of the entries on a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOrder {
    /// In the order of writing.
    #[default]
    OldestFirst,
    /// The newest entry first.
    NewestFirst,
}

/// A search of the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSearch {
    /// Filter for the entries.
    pub filter: AuditFilter,
    /// Order of the results.
    pub order: AuditOrder,
    /// Only entries after the entry with this number, in the requested order; `None`: from the beginning.
    pub cursor: Option<u64>,
    /// Largest number of entries; at most [`MAX_PAGE_ENTRIES`] in any case.
    pub limit: u32,
}

/// One page of results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// Entries in the requested order.
    pub entries: Vec<AuditEntry>,
    /// Cursor of the next page; `None`: there are no further entries.
    pub next: Option<u64>,
    /// Audit head at the time of the search.
    pub head: AuditHead,
}

/// Checks whether an entry of `bytes` fits on a page that already holds `on_page` bytes.
pub fn fits_on_page(on_page: usize, bytes: usize) -> bool {
    on_page.saturating_add(bytes) <= MAX_PAGE_BYTES
}

/// Fills a page from segments of entries, in the requested order.
#[derive(Debug)]
pub struct AuditPageBuilder<'a> {
    search: &'a AuditSearch,
    found: Vec<AuditEntry>,
    looked: usize,
    bytes: usize,
    next: Option<u64>,
}

impl<'a> AuditPageBuilder<'a> {
    /// Starts with an empty page.
    pub fn new(search: &'a AuditSearch) -> Self {
        Self {
            search,
            found: Vec::new(),
            looked: 0,
            bytes: 0,
            next: None,
        }
    }

    /// Checks whether this segment must be examined.
    pub fn needs(&self, run: &SegmentBounds) -> bool {
        let is_behind = match (self.search.order, self.search.cursor) {
            (_, None) => true,
            (AuditOrder::OldestFirst, Some(cursor)) => run.last > cursor,
            (AuditOrder::NewestFirst, Some(cursor)) => run.first < cursor,
        };
        is_behind && self.search.filter.may_match(run)
    }

    /// Examines a segment of entries, which are always in the order of writing. Segments come in the requested order.
    /// Returns `false` if the page is full and no further segment is needed.
    pub fn examine(&mut self, run: &[AuditEntry]) -> bool {
        let AuditFilter { since, until, .. } = &self.search.filter;
        let cursor = self.search.cursor;
        let (from, to) = match self.search.order {
            AuditOrder::OldestFirst => (cursor, None),
            AuditOrder::NewestFirst => (None, cursor),
        };
        // Numbers and times never decrease.
        let early = |entry: &AuditEntry| {
            from.is_some_and(|n| entry.number <= n) || since.is_some_and(|t| entry.at < t)
        };
        let not_late = |entry: &AuditEntry| {
            to.is_none_or(|n| entry.number < n) && until.is_none_or(|t| entry.at < t)
        };
        let run = &run[..run.partition_point(not_late)];
        let run = &run[run.partition_point(early)..];
        match self.search.order {
            AuditOrder::OldestFirst => run.iter().all(|entry| self.take(entry)),
            AuditOrder::NewestFirst => run.iter().rev().all(|entry| self.take(entry)),
        }
    }

    /// Examines an entry. Returns `false` if the page is full.
    fn take(&mut self, entry: &AuditEntry) -> bool {
        let most = self.search.limit.min(MAX_PAGE_ENTRIES) as usize;
        let is_wanted = self.search.filter.matches(entry);
        let bytes = if is_wanted { encoded_bytes(entry) } else { 0 };
        let is_full = self.found.len() >= most
            || self.looked >= MAX_EXAMINED
            || !(self.found.is_empty() || fits_on_page(self.bytes, bytes));
        if is_full {
            self.next = match self.search.order {
                AuditOrder::OldestFirst => Some(entry.number.saturating_sub(1)),
                AuditOrder::NewestFirst => Some(entry.number.saturating_add(1)),
            };
            return false;
        }
        self.looked += 1;
        if is_wanted {
            self.bytes = self.bytes.saturating_add(bytes);
            self.found.push(entry.clone());
        }
        true
    }

    /// Returns the page; `head` is the audit head.
    pub fn finish(self, head: AuditHead) -> AuditPage {
        AuditPage {
            entries: self.found,
            next: self.next,
            head,
        }
    }
}

#[cfg(test)]
mod tests;
