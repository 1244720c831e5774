//! Checkpoint policy of a vCluster.

#[cfg(test)]
mod tests;

use super::{Deadlines, Input, Storage};
use crate::Fraction;
use lattice_quorum_types::{
    checkpoint::{DEFAULT_MAX_DEFERRAL_MS, DEFAULT_MAX_DEFERRALS, DEFAULT_TIMEOUT_MS},
    scheduler::intervals_are_ordered,
};
use serde::{Deserialize, Serialize};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const GIB: u64 = 1 << 30;

/// Interval and timeout of checkpoints, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Shortest time after the last checkpoint, or after the start.
    pub min_interval_ms: u64,
    /// Longest time without a checkpoint, whatever the cost.
    pub max_interval_ms: u64,
    /// Time after which a checkpoint is extended or given up.
    pub timeout_ms: u64,
}

/// Checkpoint policy of a vCluster. Intervals, timeouts and deferrals are settings of the vCluster; the other fields
/// keep their defaults. The defaults come from design documents outside this repository;
/// `0004-checkpoints-and-scaling.md` explains them. Where the documents have no number, or a number without a unit, the
/// comment of the field mentions it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Ordinary allocations: 5 min, 6 h, 10 min.
    pub ordinary: Bounds,
    /// Sensitive allocations: 10 min, 1 h, 15 min.
    pub sensitive: Bounds,
    /// Bytes written by a node with unknown GPU memory: 80 GiB.
    pub node_bytes: u64,
    /// Assumed write bandwidth of unknown storage, bytes per second: 10 GiB. 0: no storage.
    pub bytes_s: u64,
    /// Probability that a node fails within [`Policy::failure_period_ms`]: 0.001.
    pub failure_probability: Fraction,
    /// Period of [`Policy::failure_probability`]: a day. The documents name no period. Two large GPU clusters had 6.5
    /// and 2.3 failures per 1000 node-days (Kokolis et al., HPCA 2025). For a day the default is low; for an hour the
    /// default would be four to ten times too high.
    pub failure_period_ms: u64,
    /// Probability that one fully urgent allocation of a higher class takes the nodes of this one: 0.01. Not from the
    /// documents.
    pub preemption_probability: Fraction,
    /// Wait after which a job is fully urgent: 1 h, like the reference wait of the queue.
    pub urgent_after_ms: u64,
    /// Probability that the allocation is moved at full backlog ([`crate::priority::factors::backlog`] is 1): 0.02. Not
    /// from the documents.
    pub backlog_probability: Fraction,
    /// Weight of the wait for a checkpoint, as a part of the GPU time that it wastes: 0.05. Not from the documents,
    /// which name "a small wait term".
    pub wait_part: Fraction,
    /// Price of storing a GB (10^9 bytes) for a month of 30 days, millionths of the currency: 0.02, the price of object
    /// storage.
    pub storage_price: u64,
    /// Time for which a checkpoint is kept: 6 h, after which the next one has replaced it at the latest.
    pub kept_ms: u64,
    /// Price of a GPU for an hour, millionths of the same currency: 2.00. Not from the documents. 0: storage costs are
    /// ignored.
    pub gpu_hour_price: u64,
    /// One-time extension for a slow but responsive job, percent of the checkpoint timeout: 50.
    pub extension_percent: u32,
    /// Longest total deferral of a checkpoint by the job: 5 min.
    pub max_deferral_ms: u64,
    /// Maximum number of deferrals: 3.
    pub max_deferrals: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ordinary: Bounds {
                min_interval_ms: 5 * MINUTE,
                max_interval_ms: 6 * HOUR,
                timeout_ms: DEFAULT_TIMEOUT_MS,
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
            max_deferral_ms: DEFAULT_MAX_DEFERRAL_MS,
            max_deferrals: DEFAULT_MAX_DEFERRALS,
        }
    }
}

/// Error of an invalid checkpoint setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {must}")]
pub struct InvalidPolicy {
    /// Name of the setting.
    pub field: &'static str,
    /// Rejected value.
    pub value: u64,
    /// Accepted values, as text.
    pub must: String,
}

impl Policy {
    /// Checks the order of intervals, and that fields without a vCluster setting are not 0 where 0 has no meaning. The
    /// range of each setting is checked before it is stored ([`SchedulerSettings::check`]). [`super::decide`] also
    /// accepts rejected settings.
    ///
    /// [`SchedulerSettings::check`]: lattice_quorum_types::scheduler::SchedulerSettings::check
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), InvalidPolicy> {
        self.ordinary
            .check(["ordinary.min_interval_ms", "ordinary.max_interval_ms"])?;
        self.sensitive
            .check(["sensitive.min_interval_ms", "sensitive.max_interval_ms"])?;
        at_least_1("node_bytes", self.node_bytes)?;
        at_least_1("failure_period_ms", self.failure_period_ms)?;
        at_least_1("urgent_after_ms", self.urgent_after_ms)
    }

    /// Bounds of ordinary or of sensitive allocations.
    pub fn bounds(&self, sensitive: bool) -> Bounds {
        match sensitive {
            true => self.sensitive,
            false => self.ordinary,
        }
    }

    /// Deadlines of a checkpoint request.
    pub fn deadlines(&self, sensitive: bool) -> Deadlines {
        Deadlines {
            timeout_ms: self.bounds(sensitive).timeout_ms,
            extension_percent: self.extension_percent,
            max_deferral_ms: self.max_deferral_ms,
            max_deferrals: self.max_deferrals,
        }
    }

    /// Duration of a checkpoint, milliseconds: as given by the user, or size over bandwidth. `None`: no storage is
    /// available now, so a checkpoint would never end.
    pub fn write_ms(&self, input: &Input<'_>) -> Option<u64> {
        let bytes_s = self.bandwidth(input.storage)?;
        let of_size = || millis(u128::from(input.holding.bytes) * 1000, bytes_s);
        Some(input.checkpoint_ms.unwrap_or_else(of_size))
    }

    /// Bytes written in `write_ms`: the size of the checkpoint, or less if the duration given by the user is shorter.
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

/// Time for writing, milliseconds, rounded up so that writing any data takes time.
fn millis(byte_ms: u128, bytes_s: u64) -> u64 {
    u64::try_from(byte_ms.div_ceil(u128::from(bytes_s))).unwrap_or(u64::MAX)
}
