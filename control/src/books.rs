//! What tenants and users have used, for scheduling, for who asks, and for accounting. Every control keeps a ledger of
//! its own, made of the quorum's facts; see `accounting/0001-ledger.md`.

mod follow;
mod gpus;
#[cfg(test)]
mod tests;

pub(crate) use follow::follow;
pub use lattice_view::Hours;
pub(crate) use lattice_view::{Standings, bursts};

use lattice_accounting::ledger::Ledger;
use parking_lot::RwLock;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Days of the window in which budgets are used, unless the site says otherwise.
pub(crate) const PERIOD_DAYS: u64 = 90;
/// Days of which somebody can ask, and so the longest period.
pub(crate) const KEPT_DAYS: u64 = 366;
/// Milliseconds of a day.
pub(crate) const DAY_MS: u64 = 24 * 3_600_000;

/// The ledger; `None` until it was read.
#[derive(Debug)]
pub(crate) struct Books {
    ledger: RwLock<Option<Ledger>>,
    period_days: OnceLock<u64>,
    /// Where what nodes had last is kept.
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
    /// From now on budgets are of so many days. Once.
    pub(crate) fn count_days(&self, days: u64) {
        let _ = self.period_days.set(days);
    }

    /// From now on what nodes had last is kept here. Once, and before [`follow`].
    pub(crate) fn keep_in(&self, folder: &Path) {
        let _ = self.folder.set(folder.to_owned());
    }

    fn folder(&self) -> Option<&Path> {
        self.folder.get().map(PathBuf::as_path)
    }

    /// Days of the window in which budgets are used.
    pub(crate) fn period_days(&self) -> u64 {
        self.period_days.get().copied().unwrap_or(PERIOD_DAYS)
    }

    /// What `ask` finds out; `None` while the ledger is not read yet.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Ledger) -> T) -> Option<T> {
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
