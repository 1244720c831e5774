//! Site inputs: price of energy, readiness of input data, and bandwidth that others use of a storage system.
//!
//! A value that no source reports is `None` and weighs as unknown: it is never zero and never free.

use lattice_placement::Fraction;
use lattice_quorum_types::{AllocationId, UnixMillis};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// The latest reports of the site's sources.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The price in force; `None` where none is known.
    pub energy: Option<Price>,
    /// The part of the input data that is ready, for pending allocations with a report.
    pub data_ready: Arc<BTreeMap<AllocationId, Fraction>>,
    /// Pending allocations for which the latest request to the source failed.
    pub data_ready_failing: usize,
    /// Storage systems that have a budget.
    pub storage: Arc<BTreeMap<String, System>>,
    /// How things stand with each source that the configuration names.
    pub sources: Arc<BTreeMap<Source, SourceState>>,
}

/// A price of energy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// As the source has it, in its own unit; it may be negative.
    pub price: f64,
    /// Its place between the lowest (0) and the highest (1) of the series.
    pub normalized: Fraction,
}

/// A storage system with rationed bandwidth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct System {
    /// What it can do, MB/s.
    pub budget_mb_s: u64,
    /// Whether a source reports what others use of it.
    pub has_source: bool,
    /// What is used by others than our running work, MB/s; `None` where it is not known.
    pub others_mb_s: Option<u64>,
    /// The latest report of its source, however old, MB/s; 0 before the first one.
    pub last_mb_s: u64,
}

impl System {
    /// Bandwidth that counts as used by others, MB/s. While the source does not report, that is half of the system's
    /// bandwidth, or the latest report where that is more. It is not nothing, so that a full system is not promised
    /// again, and not all, so that work goes on while a source is down. Without a configured source it is 0.
    pub fn counted_mb_s(&self) -> u64 {
        match self.others_mb_s {
            Some(mb_s) => mb_s,
            None if self.has_source => self.last_mb_s.max(self.budget_mb_s.div_ceil(2)),
            None => 0,
        }
    }

    /// Stores the latest report of its source; `None`: the source is silent for too long.
    pub fn report(&mut self, others_mb_s: Option<u64>) {
        self.others_mb_s = others_mb_s;
        self.last_mb_s = others_mb_s.unwrap_or(self.last_mb_s);
    }
}

/// Which source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Prices of energy.
    EnergyPrice,
    /// Readiness of input data.
    DataReadiness,
    /// Utilisation of a storage system.
    Storage(String),
}

impl fmt::Display for Source {
    /// As the configuration has it below `scheduling`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EnergyPrice => f.write_str("energy_price"),
            Self::DataReadiness => f.write_str("data_readiness"),
            Self::Storage(system) => write!(f, "storage.{system}"),
        }
    }
}

/// How things stand with a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    /// When it last answered as it should.
    pub answered_at: Option<UnixMillis>,
    /// Why it did not when it was last asked; `None` where it did, or was not asked yet.
    pub failure: Option<Arc<str>>,
}

impl Inputs {
    /// Whether a source of data readiness is configured.
    pub fn asks_for_readiness(&self) -> bool {
        self.sources.contains_key(&Source::DataReadiness)
    }

    /// Records the result of one request to a source. Returns whether it differs in kind from the result before:
    /// a source that failed answers again, or fails for a new reason.
    pub fn note(&mut self, source: &Source, at: UnixMillis, result: Result<(), &str>) -> bool {
        let state = Arc::make_mut(&mut self.sources)
            .entry(source.clone())
            .or_default();
        match result {
            Ok(()) => {
                state.answered_at = Some(at);
                state.failure.take().is_some()
            }
            Err(failure) => {
                let is_news = state.failure.as_deref() != Some(failure);
                state.failure = Some(failure.into());
                is_news
            }
        }
    }
}
