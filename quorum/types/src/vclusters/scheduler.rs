//! Scheduler settings of a vCluster: weights, reservations, and the movement of allocations.
//!
//! A setting that is `None` has its default, which the solver defines. Each setting has two names: the one in the API
//! (`movement.preemption.patience_s`), for refusals, and the one in the audit (`preemption.patience_ms`), where times
//! are milliseconds. [`SchedulerSettings::check`] holds the rules that need neither defaults nor the cluster; the
//! quorum applies them, so that no single stored setting is unusable. The solver checks combinations that involve
//! defaults.

mod groups;
#[cfg(test)]
mod tests;

pub use groups::{
    CheckpointPatch, CheckpointSettings, PreemptionPatch, PreemptionSettings, ScalingPatch,
    ScalingSettings, SharingPatch, SharingSettings, WeightPatch, WeightSettings,
    intervals_are_ordered,
};

use groups::{SettingRow, in_range};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Longest time of any setting, milliseconds: a leap year.
pub const MAX_TIME_MS: u64 = 366 * 86_400_000;
/// Largest weight. Weights are relative, and the sum of nine stays exact.
pub const MAX_WEIGHT: PartsPerMillion = PartsPerMillion(1_000_000_000_000);
/// Largest bandwidth of checkpoints, bytes a second.
pub const MAX_CHECKPOINT_BYTES_S: u64 = 1_000_000_000_000_000_000;
/// Largest number of victims of one preemption. A job that needs more than three victims is not worth their loss.
pub const MAX_VICTIMS: u32 = 3;

/// A number with a resolution of 0.000001.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PartsPerMillion(pub u64);

impl PartsPerMillion {
    /// Rounds to the nearest part; `None` for negative numbers and NaN. Numbers above the range become the largest one.
    pub fn rounded(value: f64) -> Option<Self> {
        (value >= 0.0).then(|| Self((value * 1e6).round() as u64))
    }

    /// The nearest floating-point number. A decimal number with at most six places yields the same number as its text.
    pub fn get(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl fmt::Display for PartsPerMillion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

/// Kind of workload for which the weights of a vCluster were set last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Batch jobs with many nodes.
    HpcBatch,
    /// Machine-learning training.
    MlTraining,
    /// Services.
    Service,
    /// Sensitive allocations.
    Sensitive,
    /// Interactive jobs.
    Interactive,
    /// A mixture: the default weights.
    Balanced,
}

impl WorkloadKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::HpcBatch,
        Self::MlTraining,
        Self::Service,
        Self::Sensitive,
        Self::Interactive,
        Self::Balanced,
    ];

    /// Name in the API and in the audit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HpcBatch => "hpc-batch",
            Self::MlTraining => "ml-training",
            Self::Service => "service",
            Self::Sensitive => "sensitive",
            Self::Interactive => "interactive",
            Self::Balanced => "balanced",
        }
    }

    /// Returns the kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Blocked jobs that get a planned reservation. Backfilled jobs never delay these jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedReservations {
    /// The first jobs of the queue, up to this number. 0: any job that fits starts, and a large job may wait forever;
    /// 1: EASY.
    First(u32),
    /// Every blocked job (conservative backfill).
    All,
}

impl Default for PlannedReservations {
    /// EASY.
    fn default() -> Self {
        Self::First(1)
    }
}

impl fmt::Display for PlannedReservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(count) => count.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// Change of one setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingPatch<T> {
    /// Keep the stored value.
    #[default]
    Unchanged,
    /// Remove the stored value; the default applies.
    Clear,
    /// Store this value.
    Set(T),
}

impl<T: Copy> SettingPatch<T> {
    fn apply(self, stored: &mut Option<T>) {
        match self {
            Self::Unchanged => {}
            Self::Clear => *stored = None,
            Self::Set(value) => *stored = Some(value),
        }
    }
}

impl<T> From<Option<Option<T>>> for SettingPatch<T> {
    /// As in bodies of the API: an absent field is unchanged, and `null` clears.
    fn from(field: Option<Option<T>>) -> Self {
        match field {
            None => Self::Unchanged,
            Some(None) => Self::Clear,
            Some(Some(value)) => Self::Set(value),
        }
    }
}

/// A setting with a value out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct InvalidSetting {
    /// Name of the setting in the API.
    pub setting: &'static str,
    /// Value and allowed range.
    pub reason: String,
}

/// Settings of a vCluster's scheduler. Times are milliseconds; `None` is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSettings {
    /// Kind of workload for which the weights were set last.
    pub kind: Option<WorkloadKind>,
    /// Weights of the score.
    pub weights: WeightSettings,
    /// Wait after which the wait time factor is ln 2.
    pub reference_wait_ms: Option<u64>,
    /// Blocked jobs that get a planned reservation.
    pub reservations: Option<PlannedReservations>,
    /// Bandwidth of all nodes together to checkpoint storage, bytes a second; 0: the storage is out of service.
    pub checkpoint_bytes_s: Option<u64>,
    /// Preemption.
    pub preemption: PreemptionSettings,
    /// Sharing.
    pub sharing: SharingSettings,
    /// Checkpoints.
    pub checkpoint: CheckpointSettings,
    /// Scaling.
    pub scaling: ScalingSettings,
}

impl SchedulerSettings {
    /// Checks each value, and the order of checkpoint intervals that are both set.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let Self {
            kind: _,
            weights,
            reference_wait_ms,
            reservations: _,
            checkpoint_bytes_s,
            preemption,
            sharing,
            checkpoint,
            scaling,
        } = self;
        weights.check()?;
        let times = 1..=MAX_TIME_MS;
        in_range(
            "scheduler.reference_wait_s",
            " ms",
            *reference_wait_ms,
            times,
        )?;
        let bandwidths = 0..=MAX_CHECKPOINT_BYTES_S;
        let bandwidth = *checkpoint_bytes_s;
        in_range(
            "scheduler.checkpoint_gb_s",
            " bytes/s",
            bandwidth,
            bandwidths,
        )?;
        preemption.check()?;
        sharing.check()?;
        checkpoint.check()?;
        checkpoint.check_order()?;
        scaling.check()
    }

    /// Settings that are set, by their names in the audit.
    pub fn listed(&self) -> BTreeMap<&'static str, String> {
        let rows = self.rows().into_iter();
        rows.filter_map(|row| Some((row.audit, row.value?)))
            .collect()
    }

    /// Names in the API of the settings that are set, by group.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let rows = self.rows().into_iter();
        rows.filter(|row| row.value.is_some()).map(|row| row.api)
    }

    fn rows(&self) -> Vec<SettingRow> {
        let Self {
            kind,
            weights,
            reference_wait_ms,
            reservations,
            checkpoint_bytes_s,
            preemption,
            sharing,
            checkpoint,
            scaling,
        } = self;
        let mut rows = vec![
            SettingRow::new("scheduler.profile", "profile", kind),
            SettingRow::new(
                "scheduler.reference_wait_s",
                "reference_wait_ms",
                reference_wait_ms,
            ),
            SettingRow::new("scheduler.reservations", "reservations", reservations),
            SettingRow::new(
                "scheduler.checkpoint_gb_s",
                "checkpoint_bytes_s",
                checkpoint_bytes_s,
            ),
        ];
        let groups = [
            weights.rows(),
            preemption.rows(),
            sharing.rows(),
            checkpoint.rows(),
            scaling.rows(),
        ];
        rows.extend(groups.into_iter().flatten());
        rows
    }
}

/// Change of a vCluster's scheduler settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerPatch {
    /// Kind of workload for which the weights were set last.
    pub kind: SettingPatch<WorkloadKind>,
    /// Weights of the score.
    pub weights: WeightPatch,
    /// Wait after which the wait time factor is ln 2.
    pub reference_wait_ms: SettingPatch<u64>,
    /// Blocked jobs that get a planned reservation.
    pub reservations: SettingPatch<PlannedReservations>,
    /// Bandwidth of all nodes together to checkpoint storage, bytes a second.
    pub checkpoint_bytes_s: SettingPatch<u64>,
    /// Preemption.
    pub preemption: PreemptionPatch,
    /// Sharing.
    pub sharing: SharingPatch,
    /// Checkpoints.
    pub checkpoint: CheckpointPatch,
    /// Scaling.
    pub scaling: ScalingPatch,
}

impl SchedulerPatch {
    /// Returns the settings with this change applied.
    #[must_use]
    pub fn applied_to(&self, present: &SchedulerSettings) -> SchedulerSettings {
        let mut next = *present;
        let Self {
            kind,
            weights,
            reference_wait_ms,
            reservations,
            checkpoint_bytes_s,
            preemption,
            sharing,
            checkpoint,
            scaling,
        } = self;
        kind.apply(&mut next.kind);
        weights.apply(&mut next.weights);
        reference_wait_ms.apply(&mut next.reference_wait_ms);
        reservations.apply(&mut next.reservations);
        checkpoint_bytes_s.apply(&mut next.checkpoint_bytes_s);
        preemption.apply(&mut next.preemption);
        sharing.apply(&mut next.sharing);
        checkpoint.apply(&mut next.checkpoint);
        scaling.apply(&mut next.scaling);
        next
    }
}
