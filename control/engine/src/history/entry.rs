//! Class changes of the history: the stored form of one change, its source, and the position in an agent's journal.

use lattice_conformance::history::Entry;
use serde::{Deserialize, Serialize};

/// Source of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The node's agent, from its journal.
    #[default]
    Agent,
    /// The node's BMC, as read by this control.
    Bmc,
}

/// An entry with its position in the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Number assigned by this control, rising by one with each entry or event of the node.
    pub number: u64,
    /// Time of the entry at its source, in Unix milliseconds, but not later than the time of receipt.
    pub when: u64,
    /// Source of the entry.
    #[serde(default)]
    pub source: Source,
    /// Published change.
    pub entry: Entry,
    /// Number of earlier entries of this class that were left out because the BMC was flapping.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "signature required by serde"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An entry from a BMC worker.
#[derive(Debug, Clone, PartialEq)]
pub struct BmcEntry {
    pub(crate) entry: Entry,
    /// Whether the entry reports no change: the class became unknown, or has its last known value again.
    pub(crate) is_transition: bool,
    /// Number of earlier entries of this class that were left out because the BMC was flapping.
    pub(crate) left_out: u32,
}

impl From<Entry> for BmcEntry {
    fn from(entry: Entry) -> Self {
        Self {
            entry,
            is_transition: false,
            left_out: 0,
        }
    }
}

/// An entry of any node of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterEntry {
    /// Node name.
    pub node: String,
    /// Entry of the node's history.
    pub entry: HistoryEntry,
}

/// Position up to which an agent's journal was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Id of the journal; 0 for none.
    pub journal: u64,
    /// Sequence number in the journal of the last entry read.
    pub read: u64,
}
