//! History of a node.

use bytes::Bytes;
use lattice_quorum_types::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Requests a page of the node's history, oldest first: records that the node published and other events on it.
/// Retention is bounded; see [`HistoryPage::first_kept`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetHistory {
    /// Only entries with a higher number; 0: from the beginning.
    pub since: u64,
    /// Largest number of entries. The agent also has its own limits, in entries and bytes.
    pub most: u32,
}
impl Rpc for GetHistory {
    const METHOD: &'static str = "agent.history";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The page, or the reason why the history cannot be read at present.
    type Reply = Result<HistoryPage, String>;
}

/// Answer to [`GetHistory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Identifier of the journal. If it differs from an earlier one, the node has lost its history (new or missing
    /// disk). Its numbers then start over, and the caller requests them from 0.
    pub journal: u64,
    /// JSON array of `lattice-conformance`'s `history::Record`, by number: changes and other events. The entries are on
    /// the node's disk and never change.
    pub entries: Bytes,
    /// Lowest retained number; 0 while the history is empty. Entries between `since` and this number are no longer on
    /// the node.
    pub first_kept: u64,
    /// Value of `since` for the next request. If it equals `last`, this page was the last one.
    pub next: u64,
    /// Highest number on the node's disk, as the node also gossips it.
    pub last: u64,
    /// JSON array of entries that could not be written yet, for example because of a full disk. For display only: the
    /// entries may be lost, and their numbers reused.
    pub unwritten: Bytes,
}
