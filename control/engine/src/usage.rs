//! Usage ledger of this control, for scheduling, queries and accounting. Every control keeps a ledger of its own, built
//! from the quorum's usage records (`tasks/usage_ledger.rs`); see `control/ledger/0001-ledger.md`.

use lattice_ledger::Ledger;
use parking_lot::RwLock;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

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
    period_days: OnceLock<u64>,
    /// Folder that stores the last known GPU counts of nodes.
    folder: OnceLock<PathBuf>,
}

impl Default for UsageLedger {
    fn default() -> Self {
        Self {
            ledger: RwLock::new(None),
            period_days: OnceLock::new(),
            folder: OnceLock::new(),
        }
    }
}

impl UsageLedger {
    /// Sets the length of the budget window, in days. Only the first call has an effect.
    pub fn set_period_days(&self, days: u64) {
        let _ = self.period_days.set(days);
    }

    /// Sets the folder for the last known GPU counts of nodes. Only the first call has an effect; call it before
    /// `tasks::usage_ledger::follow`.
    pub fn set_folder(&self, folder: &Path) {
        let _ = self.folder.set(folder.to_owned());
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.get().map(PathBuf::as_path)
    }

    /// Length of the budget window, in days.
    pub fn period_days(&self) -> u64 {
        self.period_days.get().copied().unwrap_or(PERIOD_DAYS)
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
