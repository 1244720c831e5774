//! Status of the synchronisation with the accounting system.

use crate::missing_rights::MissingRights;
use lattice_quorum_types::{ProjectPath, UnixMillis, VclusterName};
use std::collections::BTreeMap;

/// Status of the synchronisation, for display and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncStatus {
    /// End of the last round without a failure; `None` before the first. A rejected request that is set aside is not a
    /// failure.
    pub pushed_at: Option<UnixMillis>,
    /// Time of the last complete read of the usage records and the journal. `None` before the first: the numbers of
    /// records and events are unknown, and 0 here.
    pub collected_at: Option<UnixMillis>,
    /// Error of the last attempt; `None` if it succeeded, or before the first attempt.
    pub failure: Option<String>,
    /// Start of the round that is running; `None` between two rounds. [`Self::failure`] is that of the round before.
    pub round_since: Option<UnixMillis>,
    /// Difference of the accounting system's clock from ours in milliseconds, positive where that clock is ahead; `None`
    /// while it is unknown.
    pub clock_skew_ms: Option<i64>,
    /// Time of the next attempt after a failure.
    pub retry_at: Option<UnixMillis>,
    /// Number of the last usage record in the quorum.
    pub last: u64,
    /// Number of the last acknowledged usage record: the accounting system has each record up to this one, or will
    /// never get it.
    pub acknowledged: u64,
    /// Number of events in memory.
    pub in_memory: u64,
    /// Number of events only on disk.
    pub on_disk: u64,
    /// Number of events dropped since this control started.
    pub dropped: u64,
    /// Number of dropped events that are not acknowledged yet. The quorum counts the acknowledged ones.
    pub dropped_unacknowledged: u64,
    /// Whether the maximum number of events on disk is reached.
    pub is_full: bool,
    /// Number of events sent since this control started.
    pub sent: u64,
    /// Number of usage reports sent since this control started.
    pub reported: u64,
    /// Requests that the accounting system rejected, by their subject, such as `event 7-1`.
    pub parked: BTreeMap<String, Parked>,
    /// Rights that the token's user lacks, with the requests that wait for them.
    pub missing_rights: MissingRights,
    /// Version of the accounting system; `None` before the first round, or if the token's user may not read it.
    pub version: Option<String>,
}

impl SyncStatus {
    /// Removes the line of a request that is not needed any more.
    pub fn forget(&mut self, key: &str) {
        self.retain(|other| other != key);
    }

    /// Removes the lines of requests of which `is_needed` is false.
    pub fn retain(&mut self, is_needed: impl Fn(&str) -> bool) {
        self.parked.retain(|key, _| is_needed(key));
        self.missing_rights.retain(is_needed);
    }

    /// Keys of all rejected requests.
    pub fn rejected(&self) -> impl Iterator<Item = &str> {
        let parked = self.parked.keys().map(String::as_str);
        parked.chain(self.missing_rights.keys())
    }

    /// Reason for which a request is rejected; `None` if it is not.
    pub fn reason(&self, key: &str) -> Option<&str> {
        let parked = self.parked.get(key).map(|parked| parked.reason.as_str());
        parked.or_else(|| self.missing_rights.reason(key))
    }
}

/// Request that the accounting system rejected. The request is retried at intervals and blocks no other request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Time of the first rejection.
    pub since: UnixMillis,
    /// Time of the last attempt.
    pub tried_at: UnixMillis,
    /// Reason given by the accounting system.
    pub reason: String,
}

/// One total that differs between the accounting system and the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Project of the total.
    pub project: ProjectPath,
    /// vCluster of the total.
    pub vcluster: VclusterName,
    /// Month of the total, such as `2026-11`.
    pub month: String,
    /// Component of the total: `gpu_hours` or `node_hours`.
    pub component: String,
    /// Amount in the accounting system, in hundredths of an hour.
    pub has: u64,
    /// Amount used according to the ledger, in hundredths of an hour.
    pub used: u64,
    /// Result of the reconciliation.
    pub outcome: Outcome,
}

/// Result of the reconciliation of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The difference was found and not corrected.
    Found,
    /// The difference was corrected.
    Corrected,
    /// The difference remains, and an operator has accepted it.
    Accepted,
    /// The difference cannot be corrected.
    NotBookable {
        /// Reason why the difference cannot be corrected.
        reason: String,
    },
}
