//! A page of the entries that somebody asks for, whichever way they are kept: in one piece, or in
//! runs of which some need not be read.

use super::{AuditEntry, AuditFilter, AuditHead, Segment};
use crate::weight::on_wire;
use serde::{Deserialize, Serialize};

/// Most entries on a page.
pub const MAX_FOUND: u32 = 10_000;
/// Entries looked at for one page. It may come out short; its cursor goes on.
const MAX_LOOKED: usize = 100_000;
/// Most bytes of entries on a page, unless its only entry has more: one may name thousands of nodes. As
/// JSON it is two to three times as much, and clients of gRPC take 4 MiB unless they are told to take
/// more.
pub const MAX_PAGE_BYTES: usize = 1 << 20;

/// Which end comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOrder {
    /// As they were written.
    #[default]
    OldestFirst,
    /// The last one first.
    NewestFirst,
}

/// What is asked of the audit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSearch {
    /// What to look for.
    pub filter: AuditFilter,
    /// In which order.
    pub order: AuditOrder,
    /// Only what comes behind the entry of this number, in that order; `None`: from the beginning.
    pub cursor: Option<u64>,
    /// At most so many; never more than [`MAX_FOUND`].
    pub limit: u32,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// In the order that was asked for.
    pub entries: Vec<AuditEntry>,
    /// The cursor of the next page; `None`: there is nothing behind.
    pub next: Option<u64>,
    /// Where the audit ended when it was asked.
    pub head: AuditHead,
}

/// Whether an entry of `bytes` has room on a page with so many already.
pub fn fits(on_page: usize, bytes: usize) -> bool {
    on_page.saturating_add(bytes) <= MAX_PAGE_BYTES
}

/// Fills a page from runs of entries, in the order that was asked for.
#[derive(Debug)]
pub struct Finder<'a> {
    search: &'a AuditSearch,
    found: Vec<AuditEntry>,
    looked: usize,
    bytes: usize,
    next: Option<u64>,
}

impl<'a> Finder<'a> {
    /// Nothing found yet.
    pub fn new(search: &'a AuditSearch) -> Self {
        Self {
            search,
            found: Vec::new(),
            looked: 0,
            bytes: 0,
            next: None,
        }
    }

    /// Whether this run has to be looked at.
    pub fn wants(&self, run: &Segment) -> bool {
        let is_behind = match (self.search.order, self.search.cursor) {
            (_, None) => true,
            (AuditOrder::OldestFirst, Some(cursor)) => run.last > cursor,
            (AuditOrder::NewestFirst, Some(cursor)) => run.first < cursor,
        };
        is_behind && self.search.filter.may_match(run)
    }

    /// Looks at a run of entries, always given as they were written; runs come in the order that was
    /// asked for. `false`: the page is full, no further run is needed.
    pub fn look(&mut self, run: &[AuditEntry]) -> bool {
        let AuditFilter { since, until, .. } = &self.search.filter;
        let cursor = self.search.cursor;
        let (from, to) = match self.search.order {
            AuditOrder::OldestFirst => (cursor, None),
            AuditOrder::NewestFirst => (None, cursor),
        };
        // Numbers and times only grow.
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

    /// `false`: there was no room for this one.
    fn take(&mut self, entry: &AuditEntry) -> bool {
        let most = self.search.limit.min(MAX_FOUND) as usize;
        let is_wanted = self.search.filter.matches(entry);
        let bytes = if is_wanted { on_wire(entry) } else { 0 };
        let is_full = self.found.len() >= most
            || self.looked >= MAX_LOOKED
            || !(self.found.is_empty() || fits(self.bytes, bytes));
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

    /// The page; `head` is where the audit ends.
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
