//! What placement weighs and neither the quorum nor the nodes tell: the price of energy, how much of a
//! job's input data is on the hot tier, and how much bandwidth others take of a storage system. Each
//! comes from a source that the site names (`scheduling` in the configuration).
//!
//! A source may be slow, wrong or gone: each is asked by a task of its own, within a deadline. What it
//! said last is in [`Inputs`], a part of the view, and that is all that scheduling reads. What is not
//! known is `None` and weighs as unknown: it is never zero and never free.

mod answer;
mod energy;
pub(crate) mod fetch;
mod metrics;
mod readiness;
mod solver;
mod sources;
mod storage;

pub(crate) use metrics::{Metrics, Missing};
pub(crate) use solver::{Promised, fill, follow, left, pending, promise};
pub use sources::SourceError;
pub(crate) use sources::Sources;

use lattice_placement::Fraction;
use lattice_quorum_types::{AllocationId, UnixMillis};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// What the site's sources said last.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The price in force; `None` where none is known.
    pub(crate) energy: Option<Price>,
    /// The part of its input data that is ready, of pending allocations of which a source says it.
    pub(crate) data_ready: Arc<BTreeMap<AllocationId, Fraction>>,
    /// Pending allocations of which the source failed to say it when it was last asked.
    pub(crate) data_ready_failing: usize,
    /// Storage systems that have a budget.
    pub(crate) storage: Arc<BTreeMap<String, System>>,
    /// How things stand with each source that the configuration names.
    pub(crate) sources: Arc<BTreeMap<Source, SourceState>>,
}

/// A price of energy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Price {
    /// As the source has it, in its own unit; it may be negative.
    pub(crate) price: f64,
    /// Its place between the lowest (0) and the highest (1) of the series.
    pub(crate) normalized: Fraction,
}

/// A storage system whose bandwidth is rationed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct System {
    /// What it can do, MB/s.
    pub(crate) budget_mb_s: u64,
    /// Whether a source is to say what others use of it.
    pub(crate) has_source: bool,
    /// What is used by others than our running work, MB/s; `None` where nobody knows.
    pub(crate) others_mb_s: Option<u64>,
    /// What its source said last, however long ago, MB/s; 0 before the first answer.
    pub(crate) last_mb_s: u64,
}

impl System {
    /// What is taken for used by others, MB/s. While its source does not say, that is a half of what the
    /// system can do, or what was last said where that is more: not nothing, so that a full system is not
    /// promised again, and not all, so that work goes on while a source is down. Where no source is
    /// configured, nobody else is meant to use it.
    pub(crate) fn counted_mb_s(&self) -> u64 {
        match self.others_mb_s {
            Some(mb_s) => mb_s,
            None if self.has_source => self.last_mb_s.max(self.budget_mb_s.div_ceil(2)),
            None => 0,
        }
    }

    /// Its source says how much others use, or is silent for too long.
    pub(crate) fn says(&mut self, others_mb_s: Option<u64>) {
        self.others_mb_s = others_mb_s;
        self.last_mb_s = others_mb_s.unwrap_or(self.last_mb_s);
    }
}

/// Which source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
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
pub(crate) struct SourceState {
    /// When it last answered as it should.
    pub(crate) answered_at: Option<UnixMillis>,
    /// Why it did not when it was last asked; `None` where it did, or was not asked yet.
    pub(crate) failure: Option<Arc<str>>,
}

impl Inputs {
    /// Whether anybody is asked how much of a job's data is ready.
    pub(crate) fn asks_for_readiness(&self) -> bool {
        self.sources.contains_key(&Source::DataReadiness)
    }

    /// Notes what came of asking a source, and logs where that is news.
    pub(crate) fn note(&mut self, source: &Source, at: UnixMillis, came: Result<(), String>) {
        let state = Arc::make_mut(&mut self.sources)
            .entry(source.clone())
            .or_default();
        match came {
            Ok(()) => {
                if state.failure.take().is_some() {
                    tracing::info!(%source, "a source of scheduling answers again");
                }
                state.answered_at = Some(at);
            }
            Err(failure) => {
                if state.failure.as_deref() != Some(failure.as_str()) {
                    tracing::warn!(%source, %failure, "a source of scheduling does not answer as it should");
                }
                state.failure = Some(failure.into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
