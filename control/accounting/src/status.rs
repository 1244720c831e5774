//! How an accountant stands.

use lattice_quorum_types::{ProjectPath, UnixMillis, VclusterName};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// When the accounting system last took everything that there was; `None`: not yet.
    pub pushed_at: Option<UnixMillis>,
    /// Why it did not when it was last tried; `None`: it did, or was not tried yet.
    pub failure: Option<String>,
    /// When it is tried again.
    pub retry_at: Option<UnixMillis>,
    /// Number of the last fact there is.
    pub last: u64,
    /// Up to which it has them.
    pub acknowledged: u64,
    /// Events in memory.
    pub in_memory: u64,
    /// Events on the disk alone.
    pub on_disk: u64,
    /// Events that were dropped since this control began.
    pub dropped: u64,
    /// Whether as many events are on the disk as may be.
    pub is_full: bool,
    /// Events that were sent since this control began.
    pub sent: u64,
    /// Reports of usage that were sent since this control began.
    pub reported: u64,
    /// What the accounting system refuses, by what it is about.
    pub parked: BTreeMap<String, Parked>,
    /// Of which version it is.
    pub version: Option<String>,
}

/// Something that the accounting system refuses. It is tried again now and then, and nothing waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Since when.
    pub since: UnixMillis,
    /// When it was last tried.
    pub tried_at: UnixMillis,
    /// What it says.
    pub reason: String,
}

/// One total that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Of which project.
    pub project: ProjectPath,
    /// In which vCluster.
    pub vcluster: VclusterName,
    /// Of which month: `2026-11`.
    pub month: String,
    /// Of what: `gpu_hours`, `node_hours`.
    pub component: String,
    /// What the accounting system has, hundredths.
    pub has: u64,
    /// What was used, hundredths.
    pub used: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was only looked for.
    Found,
    /// It is put right.
    Corrected,
    /// It cannot be.
    NotBookable {
        /// Why.
        reason: String,
    },
}
