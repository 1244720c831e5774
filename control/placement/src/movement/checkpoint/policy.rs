//! A vCluster's settings of checkpoints.

#[cfg(test)]
mod tests;

use super::{Deadlines, Input, Storage};
use crate::Fraction;
use lattice_quorum_types::{
    checkpoint::{MOST_DEFERRAL_MS, MOST_DEFERRALS, TIMEOUT_MS},
    scheduler::intervals_are_ordered,
};
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const GIB: u64 = 1 << 30;

/// How often checkpoints are written, and how long one may take. Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// None sooner after the last one, or after the start.
    pub min_interval_ms: u64,
    /// None later, whatever it costs.
    pub max_interval_ms: u64,
    /// How long it may take before it is extended or given up.
    pub timeout_ms: u64,
}

/// A vCluster's settings of checkpoints. The defaults are those of the checkpoint documents, as collected in
/// the semantics; where these have a number without a unit, or none, it is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Of ordinary work: 5 min, 6 h, 10 min.
    pub ordinary: Bounds,
    /// Of sensitive work: 10 min, 1 h, 15 min.
    pub sensitive: Bounds,
    /// Bytes that a node writes whose GPUs' memory is not known: 80 GiB.
    pub node_bytes: u64,
    /// Bytes a second that the storage writes where nothing is known of it: 10 GiB. 0: there is none.
    pub bytes_s: u64,
    /// That a node fails within [`Policy::failure_period_ms`]: 0.001.
    pub failure_probability: Fraction,
    /// The period of that probability: a day. The documents name none. 6.5 and 2.3 failures in 1000 days of a
    /// node were counted in two large GPU clusters (Kokolis et al., HPCA 2025): of a day it is low, of an hour
    /// it would be four to ten times too high.
    pub failure_period_ms: u64,
    /// That one fully urgent allocation of a higher class takes the nodes of just this one: 0.01. Ours.
    pub preemption_probability: Fraction,
    /// How long work waits until it is fully urgent: 1 h, as the reference wait of the queue.
    pub urgent_after_ms: u64,
    /// That it is moved when the backlog is full (f6 = 1): 0.02. Ours.
    pub backlog_probability: Fraction,
    /// What the wait for a checkpoint counts, as a part of the GPU time that it wastes: 0.05. Ours; the
    /// documents have "a small wait term".
    pub wait_part: Fraction,
    /// Price of storing a GB (10^9 bytes) for a month of 30 days, millionths of the currency: 0.02, the price
    /// of object storage.
    pub storage_price: u64,
    /// How long a checkpoint is kept: 6 h, when the next one replaces it at the latest.
    pub kept_ms: u64,
    /// Price of a GPU for an hour, millionths of the same currency: 2.00. Ours. 0: money does not count.
    pub gpu_hour_price: u64,
    /// How much longer one may take that is slow and answers, once, percent of its timeout: 50.
    pub extension_percent: u32,
    /// How long work may put a checkpoint off, in all: 5 min.
    pub max_deferral_ms: u64,
    /// How often: 3.
    pub max_deferrals: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ordinary: Bounds {
                min_interval_ms: 5 * MINUTE,
                max_interval_ms: 6 * HOUR,
                timeout_ms: TIMEOUT_MS,
            },
            sensitive: Bounds {
                min_interval_ms: 10 * MINUTE,
                max_interval_ms: HOUR,
                timeout_ms: 15 * MINUTE,
            },
            node_bytes: 80 * GIB,
            bytes_s: 10 * GIB,
            failure_probability: Fraction::millionths(1_000),
            failure_period_ms: 24 * HOUR,
            preemption_probability: Fraction::millionths(10_000),
            urgent_after_ms: HOUR,
            backlog_probability: Fraction::millionths(20_000),
            wait_part: Fraction::millionths(50_000),
            storage_price: 20_000,
            kept_ms: 6 * HOUR,
            gpu_hour_price: 2_000_000,
            extension_percent: 50,
            max_deferral_ms: MOST_DEFERRAL_MS,
            max_deferrals: MOST_DEFERRALS,
        }
    }
}

/// A setting with which no checkpoint would be written as meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {must}")]
pub struct InvalidPolicy {
    /// Which.
    pub field: &'static str,
    /// As given.
    pub value: u64,
    /// What would do.
    pub must: String,
}

impl Policy {
    /// Checks the order of intervals, and the values that are not settings of a vCluster. The range of each setting is
    /// checked before it is stored ([`SchedulerSettings::check`]). What it refuses is still defined for
    /// [`super::decide`].
    ///
    /// [`SchedulerSettings::check`]: lattice_quorum_types::scheduler::SchedulerSettings::check
    ///
    /// # Errors
    /// The first setting that is of no use.
    pub fn check(&self) -> Result<(), InvalidPolicy> {
        self.ordinary
            .check(["ordinary.min_interval_ms", "ordinary.max_interval_ms"])?;
        self.sensitive
            .check(["sensitive.min_interval_ms", "sensitive.max_interval_ms"])?;
        at_least_1("node_bytes", self.node_bytes)?;
        at_least_1("failure_period_ms", self.failure_period_ms)?;
        at_least_1("urgent_after_ms", self.urgent_after_ms)
    }

    /// Of ordinary or of sensitive work.
    pub fn bounds(&self, sensitive: bool) -> Bounds {
        match sensitive {
            true => self.sensitive,
            false => self.ordinary,
        }
    }

    /// How long a request for one is waited for.
    pub fn deadlines(&self, sensitive: bool) -> Deadlines {
        Deadlines {
            timeout_ms: self.bounds(sensitive).timeout_ms,
            extension_percent: self.extension_percent,
            max_deferral_ms: self.max_deferral_ms,
            max_deferrals: self.max_deferrals,
        }
    }

    /// How long a checkpoint takes, milliseconds: its own word, or its size over the bandwidth. `None`: there
    /// is no storage now, and it would take for ever.
    pub fn write_ms(&self, input: &Input<'_>) -> Option<u64> {
        let bytes_s = self.bandwidth(input.storage)?;
        let of_size = || millis(u128::from(input.holding.bytes) * 1000, bytes_s);
        Some(input.checkpoint_ms.unwrap_or_else(of_size))
    }

    /// What is written in that time: the memory of the GPUs, or less where its own word says that it is done
    /// sooner.
    pub(super) fn bytes_written(&self, input: &Input<'_>, write_ms: u64) -> u64 {
        let bytes_s = self.bandwidth(input.storage).unwrap_or(0);
        let in_time = u128::from(write_ms) * u128::from(bytes_s) / 1000;
        u64::try_from(in_time).map_or(input.holding.bytes, |bytes| bytes.min(input.holding.bytes))
    }

    fn bandwidth(&self, storage: Storage) -> Option<u64> {
        let bytes_s = match storage {
            Storage::Unknown => self.bytes_s,
            Storage::Writes(bytes_s) => bytes_s,
            Storage::Paused => 0,
        };
        (bytes_s > 0).then_some(bytes_s)
    }
}

impl Bounds {
    fn check(self, [min, max]: [&'static str; 2]) -> Result<(), InvalidPolicy> {
        if !intervals_are_ordered(self.min_interval_ms, self.max_interval_ms) {
            return Err(InvalidPolicy {
                field: min,
                value: self.min_interval_ms,
                must: format!("at most {max} ({})", self.max_interval_ms),
            });
        }
        Ok(())
    }
}

fn at_least_1(field: &'static str, value: u64) -> Result<(), InvalidPolicy> {
    let must = "at least 1".to_owned();
    match value {
        0 => Err(InvalidPolicy { field, value, must }),
        _ => Ok(()),
    }
}

/// Rounded up: what writes anything takes time.
fn millis(byte_ms: u128, bytes_s: u64) -> u64 {
    u64::try_from(byte_ms.div_ceil(u128::from(bytes_s))).unwrap_or(u64::MAX)
}
