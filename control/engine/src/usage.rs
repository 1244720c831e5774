//! Usage ledger of this control, for scheduling, queries and accounting. Every control keeps a ledger of its own, built
//! from the quorum's usage records (`tasks/usage_ledger.rs`); see `control/ledger/0001-ledger.md`.

use lattice_ledger::Ledger;
use parking_lot::RwLock;
use std::path::{Path, PathBuf};

/// Default length of the budget window, in days.
pub(crate) const PERIOD_DAYS: u64 = 90;
/// Days of usage that the ledger keeps, and so the longest budget window.
pub const KEPT_DAYS: u64 = 366;
/// Milliseconds per day.
pub const DAY_MS: u64 = 24 * 3_600_000;

/// Usage ledger with its settings; empty until the usage records are read.
#[derive(Debug)]
pub struct UsageLedger {
    /// Running sums; `None` until they are read.
    ledger: RwLock<Option<Ledger>>,
    period_days: u64,
    folder: Option<PathBuf>,
}

impl Default for UsageLedger {
    fn default() -> Self {
        Self::new(PERIOD_DAYS, None)
    }
}

impl UsageLedger {
    /// New, empty ledger with a budget window of `period_days`. The last known GPU counts of nodes are stored in
    /// `folder`, or only in memory.
    pub const fn new(period_days: u64, folder: Option<PathBuf>) -> Self {
        Self {
            ledger: RwLock::new(None),
            period_days,
            folder,
        }
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Length of the budget window, in days.
    pub const fn period_days(&self) -> u64 {
        self.period_days
    }

    /// Result of `ask` on the ledger; `None` while the ledger is not read yet.
    pub fn ask<T>(&self, ask: impl FnOnce(&Ledger) -> T) -> Option<T> {
        let ledger = self.ledger.read();
        ledger.as_ref().map(ask)
    }

    /// Result of `change` on the ledger; `None` while the ledger is not read yet.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        let mut ledger = self.ledger.write();
        ledger.as_mut().map(change)
    }

    /// Replaces the ledger; `None` until it is read again.
    pub(crate) fn set(&self, read: Option<Ledger>) {
        let mut ledger = self.ledger.write();
        *ledger = read;
    }
}
