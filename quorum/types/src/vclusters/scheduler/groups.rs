//! Groups of scheduler settings, with the range of each value.

use super::{InvalidSetting, MAX_TIME_MS, MAX_VICTIMS, MAX_WEIGHT, PartsPerMillion, SettingPatch};
use crate::checkpoint::MAX_TIMEOUT_MS;
use serde::{Deserialize, Serialize};
use std::{fmt, ops::RangeInclusive};

/// One setting: its names, and its value as text if it is set.
pub(super) struct SettingRow {
    pub(super) api: &'static str,
    pub(super) audit: &'static str,
    pub(super) value: Option<String>,
}

impl SettingRow {
    pub(super) fn new<T: fmt::Display>(
        api: &'static str,
        audit: &'static str,
        value: &Option<T>,
    ) -> Self {
        let value = value.as_ref().map(T::to_string);
        Self { api, audit, value }
    }
}

pub(super) fn in_range<T: PartialOrd + fmt::Display>(
    setting: &'static str,
    unit: &str,
    value: Option<T>,
    range: RangeInclusive<T>,
) -> Result<(), InvalidSetting> {
    match value {
        Some(value) if !range.contains(&value) => {
            let (least, most) = range.into_inner();
            let reason = format!("it is {value}{unit}; it must be from {least} to {most}{unit}");
            Err(InvalidSetting { setting, reason })
        }
        _ => Ok(()),
    }
}

/// Unit of a setting in error texts, by its audit name.
fn unit(audit: &str) -> &'static str {
    match audit.ends_with("_ms") {
        true => " ms",
        false => "",
    }
}

/// Defines the settings and the patch of each group. A group has a prefix in the API and a prefix in the audit. A row
/// is `field: type = name in the API, allowed range`. The field is the name in the audit.
macro_rules! groups {
    ($(
        $(#[$about:meta])*
        $settings:ident, $patch:ident, $api:literal, $audit:literal {
            $( $(#[$what:meta])* $field:ident: $value:ty = $name:literal $(, $range:expr)?; )*
        }
    )*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $settings {
            $( $(#[$what])* pub $field: Option<$value>, )*
        }

        #[doc = concat!("Change of [`", stringify!($settings), "`].")]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $patch {
            $( $(#[$what])* pub $field: SettingPatch<$value>, )*
        }

        impl $patch {
            pub(super) fn apply(&self, settings: &mut $settings) {
                $( self.$field.apply(&mut settings.$field); )*
            }
        }

        impl $settings {
            pub(super) fn rows(&self) -> Vec<SettingRow> {
                vec![ $( SettingRow::new(
                    concat!($api, ".", $name),
                    concat!($audit, ".", stringify!($field)),
                    &self.$field,
                ), )* ]
            }

            pub(super) fn check(&self) -> Result<(), InvalidSetting> {
                $( $( in_range(
                    concat!($api, ".", $name),
                    unit(stringify!($field)),
                    self.$field,
                    $range,
                )?; )? )*
                Ok(())
            }
        }
    )* };
}

groups! {
    /// Weights of the nine factors of the score, w1 to w9, in the order of [`WEIGHTS`](crate::vcluster::WEIGHTS). The
    /// weights are relative and need not add up to 1. The resolution is 0.000001, and the largest weight is 1,000,000.
    WeightSettings, WeightPatch, "scheduler.weights", "weights" {
        /// w1: priority class.
        priority: PartsPerMillion = "priority", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w2: time in the queue.
        wait_time: PartsPerMillion = "wait_time", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w3: distance of the tenant from its share.
        fair_share: PartsPerMillion = "fair_share", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w4: few topology groups.
        topology: PartsPerMillion = "topology", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w5: input data on the hot tier.
        data_ready: PartsPerMillion = "data_ready", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w6: backlog.
        backlog: PartsPerMillion = "backlog", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w7: energy price.
        energy: PartsPerMillion = "energy", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w8: low cost of a checkpoint.
        checkpoint: PartsPerMillion = "checkpoint", PartsPerMillion(0)..=MAX_WEIGHT;
        /// w9: one conformance group.
        conformance: PartsPerMillion = "conformance", PartsPerMillion(0)..=MAX_WEIGHT;
    }

    /// Preemption: victims release nodes for jobs of a higher class.
    PreemptionSettings, PreemptionPatch, "movement.preemption", "preemption" {
        /// Whether preemption is enabled.
        enabled: bool = "enabled";
        /// Largest number of victims of one job.
        max_victims: u32 = "max_victims", 1..=MAX_VICTIMS;
        /// Time that a job has waited, and would still wait, before victims are preempted for it.
        patience_ms: u64 = "patience_s", 0..=MAX_TIME_MS;
        /// Remaining time below which a job is not preempted.
        near_completion_ms: u64 = "near_completion_threshold_s", 0..=MAX_TIME_MS;
        /// Time after a preemption or resumption during which a job is not preempted again.
        thrash_interval_ms: u64 = "thrash_interval_s", 0..=MAX_TIME_MS;
        /// Number of preemptions after which a job counts as one class higher; 0: never.
        thrash_count: u32 = "thrash_count";
        /// Whether only jobs that hold nothing but borrowed nodes are preempted.
        only_borrowed: bool = "only_borrowed";
    }

    /// Sharing: lending and borrowing of nodes.
    SharingSettings, SharingPatch, "movement.sharing", "sharing" {
        /// Whether the vCluster lends idle nodes.
        allow_lending: bool = "allow_lending";
        /// Largest number of nodes lent at once.
        lending_limit: u32 = "lending_limit";
        /// Whether the vCluster borrows nodes.
        allow_borrowing: bool = "allow_borrowing";
        /// Largest number of nodes borrowed at once.
        borrowing_limit: u32 = "borrowing_limit";
        /// Time for which a borrower keeps a reclaimed node before its job is stopped.
        return_grace_ms: u64 = "return_grace_s", 0..=MAX_TIME_MS;
    }

    /// Checkpoints: interval and timeout.
    CheckpointSettings, CheckpointPatch, "movement.checkpoint", "checkpoint" {
        /// Timeout of a checkpoint, after which it is extended or given up.
        timeout_ms: u64 = "timeout_s", 1..=MAX_TIMEOUT_MS;
        /// Shortest time from the last checkpoint, or from the start, to the next automatic checkpoint.
        min_interval_ms: u64 = "min_interval_s", 0..=MAX_TIME_MS;
        /// Longest time from the last checkpoint, or from the start, to the next automatic checkpoint.
        max_interval_ms: u64 = "max_interval_s", 1..=MAX_TIME_MS;
        /// As `timeout_ms`, for sensitive allocations.
        sensitive_timeout_ms: u64 = "sensitive_timeout_s", 1..=MAX_TIMEOUT_MS;
        /// As `min_interval_ms`, for sensitive allocations.
        sensitive_min_interval_ms: u64 = "sensitive_min_interval_s", 0..=MAX_TIME_MS;
        /// As `max_interval_ms`, for sensitive allocations.
        sensitive_max_interval_ms: u64 = "sensitive_max_interval_s", 1..=MAX_TIME_MS;
        /// Total time by which a job may defer a checkpoint.
        max_deferral_ms: u64 = "max_deferral_s", 0..=MAX_TIME_MS;
        /// Number of times that a job may defer a checkpoint.
        max_deferrals: u32 = "max_deferral_count";
    }

    /// Scaling: pace at which services follow their metrics.
    ScalingSettings, ScalingPatch, "movement.scaling", "scale" {
        /// Part of the target below which a service shrinks; above 0 and below 1.
        threshold: PartsPerMillion = "threshold", PartsPerMillion(1)..=PartsPerMillion(999_999);
        /// Interval between readings of the metric.
        evaluate_ms: u64 = "evaluation_s", 1..=MAX_TIME_MS;
        /// Time for which the metric must be above the target before the service grows.
        up_window_ms: u64 = "up_window_s", 1..=MAX_TIME_MS;
        /// Time for which the metric must be below the threshold before the service shrinks.
        down_window_ms: u64 = "down_window_s", 1..=MAX_TIME_MS;
        /// Time for which a service keeps its size after a change.
        cooldown_ms: u64 = "cooldown_s", 1..=MAX_TIME_MS;
        /// Number of consecutive evaluations without a metric before an alert.
        missing_alert: u32 = "missing_alert", 1..=u32::MAX;
        /// Number of times that a refused proposal is repeated.
        retries: u32 = "retries";
        /// Number of cooldowns without proposals after `retries` refused repeats.
        backoff_cooldowns: u32 = "backoff_cooldowns", 1..=u32::MAX;
        /// Number of consecutive changes of direction, between growing and shrinking, before an alert.
        oscillation_alert: u32 = "oscillation_alert", 1..=u32::MAX;
        /// Time without changes of size after which the next change does not count as a change of direction.
        calm_ms: u64 = "calm_s", 1..=MAX_TIME_MS;
    }
}

impl CheckpointSettings {
    pub(super) fn check_order(&self) -> Result<(), InvalidSetting> {
        let pairs = [
            (
                "movement.checkpoint.min_interval_s",
                self.min_interval_ms.zip(self.max_interval_ms),
            ),
            (
                "movement.checkpoint.sensitive_min_interval_s",
                self.sensitive_min_interval_ms
                    .zip(self.sensitive_max_interval_ms),
            ),
        ];
        for (setting, pair) in pairs {
            if let Some((min_ms, max_ms)) = pair
                && !intervals_are_ordered(min_ms, max_ms)
            {
                let reason = format!(
                    "it is {min_ms} ms; it must be at most the longest interval, {max_ms} ms"
                );
                return Err(InvalidSetting { setting, reason });
            }
        }
        Ok(())
    }
}

/// Checks whether the shortest interval between checkpoints fits the longest.
pub const fn intervals_are_ordered(min_interval_ms: u64, max_interval_ms: u64) -> bool {
    min_interval_ms <= max_interval_ms
}
