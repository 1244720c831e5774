//! Usage of tenants and users, for scheduling, for queries and for accounting. Every control keeps its own ledger,
//! built from the quorum's usage records; see `accounting/0001-ledger.md`.

mod follow;
mod gpus;
#[cfg(test)]
mod tests;

pub use follow::follow;
pub use lattice_view::Hours;
pub use lattice_view::{Standings, bursts};

use lattice_accounting::ledger::Ledger;
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

/// Usage ledger; `None` until it is read.
#[derive(Debug)]
pub struct Books {
    ledger: RwLock<Option<Ledger>>,
    period_days: OnceLock<u64>,
    /// Folder that stores the last known GPU counts of nodes.
    folder: OnceLock<PathBuf>,
}

impl Default for Books {
    fn default() -> Self {
        Self {
            ledger: RwLock::new(None),
            period_days: OnceLock::new(),
            folder: OnceLock::new(),
        }
    }
}

impl Books {
    /// Sets the length of the budget window, in days. Only the first call has an effect.
    pub fn count_days(&self, days: u64) {
        let _ = self.period_days.set(days);
    }

    /// Sets the folder for the last known GPU counts of nodes. Only the first call has an effect; call it before
    /// [`follow`].
    pub fn keep_in(&self, folder: &Path) {
        let _ = self.folder.set(folder.to_owned());
    }

    fn folder(&self) -> Option<&Path> {
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

    fn change<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        let mut ledger = self.ledger.write();
        ledger.as_mut().map(change)
    }

    fn set(&self, read: Option<Ledger>) {
        let mut ledger = self.ledger.write();
        *ledger = read;
    }
}
