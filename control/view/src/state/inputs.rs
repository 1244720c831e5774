//! Scheduling inputs from site sources: price of energy, readiness of input data, and bandwidth of a storage system
//! used by others.
//!
//! A value that no source reports is `None`, never zero. [`System::counted_mb_s`] defines the value that counts while
//! the bandwidth used by others is unknown.

use lattice_placement::Fraction;
use lattice_quorum_types::{AllocationId, UnixMillis};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// The latest reports of the site's sources.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The price in force; `None` if unknown.
    pub energy: Option<Price>,
    /// Fraction of the input data that is ready, for each pending allocation with a report.
    pub data_ready: Arc<BTreeMap<AllocationId, Fraction>>,
    /// Pending allocations for which the latest request to the source failed.
    pub data_ready_failing: usize,
    /// Storage systems with a configured bandwidth, by name.
    pub storage: Arc<BTreeMap<String, System>>,
    /// State of each configured source.
    pub sources: Arc<BTreeMap<Source, SourceState>>,
}

/// A price of energy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Price in the unit of the source; may be negative.
    pub price: f64,
    /// Linear position of the price between the lowest (0) and the highest (1) price of the series.
    pub normalized: Fraction,
}

/// Bandwidth of a storage system, total and used by others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct System {
    /// Total bandwidth, MB/s.
    pub budget_mb_s: u64,
    /// Whether a source that reports the bandwidth in use is configured.
    pub has_source: bool,
    /// Bandwidth used by clients other than running allocations, MB/s; `None` if unknown.
    pub others_mb_s: Option<u64>,
    /// Latest known value of `others_mb_s`, however old; 0 before the first report.
    pub last_mb_s: u64,
}

impl System {
    /// Bandwidth that counts as used by others, MB/s. While the source does not report, half of the system's bandwidth
    /// counts, or the latest report if higher. A value of 0 could grant the bandwidth of a full system again; the total
    /// bandwidth would stop new jobs while a source is down. Without a configured source, 0 counts.
    pub fn counted_mb_s(&self) -> u64 {
        match self.others_mb_s {
            Some(mb_s) => mb_s,
            None if self.has_source => self.last_mb_s.max(self.budget_mb_s.div_ceil(2)),
            None => 0,
        }
    }

    /// Stores the latest report of the system's source; `None` if the latest report is too old to count.
    pub fn report(&mut self, others_mb_s: Option<u64>) {
        self.others_mb_s = others_mb_s;
        self.last_mb_s = others_mb_s.unwrap_or(self.last_mb_s);
    }
}

/// Source of a scheduling input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Prices of energy.
    EnergyPrice,
    /// Readiness of input data.
    DataReadiness,
    /// Utilisation of the storage system with this name.
    Storage(String),
}

impl fmt::Display for Source {
    /// Formats the configuration key of the source, relative to `scheduling`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EnergyPrice => f.write_str("energy_price"),
            Self::DataReadiness => f.write_str("data_readiness"),
            Self::Storage(system) => write!(f, "storage.{system}"),
        }
    }
}

/// State of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Time of the last successful request.
    pub answered_at: Option<UnixMillis>,
    /// Error of the latest request; `None` if the request succeeded, and before the first request.
    pub failure: Option<Arc<str>>,
}

impl Inputs {
    /// Whether a source of data readiness is configured.
    pub fn asks_for_readiness(&self) -> bool {
        self.sources.contains_key(&Source::DataReadiness)
    }

    /// Records the result of one request to a source. Returns true if the request succeeds after a failed one, or fails
    /// with another error than the previous request.
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
