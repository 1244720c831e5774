//! Scaling settings of a service.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

const MINUTE: u64 = 60_000;
/// Most evaluations in a window: one a minute for a day. Bounds the size of the state.
const MAX_WINDOW: u64 = 1440;

/// Range and metric target of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalePolicy {
    /// Minimum number of nodes, all owned by the service's vCluster. The service starts with this number.
    pub min_nodes: u32,
    /// Maximum number of nodes.
    pub max_nodes: u32,
    /// Target of the metric, in its unit; above 0.
    pub target: f64,
    /// Damping: how quickly the service follows its metric.
    #[serde(default)]
    pub damping: Damping,
}

/// Damping: how quickly a service follows its metric. Times are in milliseconds; each field's comment ends with its
/// default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Damping {
    /// Part of the target below which the service shrinks; above 0 and below 1: 0.5.
    pub threshold: f64,
    /// Interval between evaluations of the metric: 60 s.
    pub evaluation_ms: u64,
    /// Time above the target before the service grows: 2 min.
    pub up_window_ms: u64,
    /// Time below the threshold before the service shrinks: 5 min.
    pub down_window_ms: u64,
    /// Time after any change in which no further change for the metric is made: 3 min.
    pub cooldown_ms: u64,
    /// Consecutive evaluations without a metric until an alert: 3.
    pub missing_alert: u32,
    /// Retries of a rejected proposal: 3.
    pub retries: u32,
    /// Length of the pause after the last retry, in cooldowns: 2.
    pub backoff_cooldowns: u32,
    /// Consecutive turns between growing and shrinking until an alert: 5.
    pub oscillation_alert: u32,
    /// Time after which a change in the opposite direction does not count as a turn: 1 h. A service that grows in the
    /// morning and shrinks at night does not oscillate.
    pub calm_ms: u64,
}

impl Default for Damping {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            evaluation_ms: MINUTE,
            up_window_ms: 2 * MINUTE,
            down_window_ms: 5 * MINUTE,
            cooldown_ms: 3 * MINUTE,
            missing_alert: 3,
            retries: 3,
            backoff_cooldowns: 2,
            oscillation_alert: 5,
            calm_ms: 60 * MINUTE,
        }
    }
}

/// Error of a setting with which a service would not scale as intended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}; it must be {must}")]
pub struct InvalidScale {
    /// Name of the setting.
    pub field: &'static str,
    /// Rejected value.
    pub found: String,
    /// Accepted values, as text.
    pub must: String,
}

impl ScalePolicy {
    /// Checks the settings. [`super::decide`] does not require this check: it has a defined result for any settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), InvalidScale> {
        let some = self.min_nodes >= 1;
        require(some, "min_nodes", &self.min_nodes, || {
            "at least 1".to_owned()
        })?;
        let enough = self.max_nodes >= self.min_nodes;
        require(enough, "max_nodes", &self.max_nodes, || {
            format!("at least min_nodes ({})", self.min_nodes)
        })?;
        let positive = self.target.is_finite() && self.target > 0.0;
        require(positive, "target", &self.target, || {
            "a number above 0".to_owned()
        })?;
        self.damping.check()
    }
}

impl Damping {
    /// Checks the windows against the evaluation interval. The range of each setting is checked before it is stored
    /// ([`SchedulerSettings::check`](lattice_quorum_types::scheduler::SchedulerSettings::check)).
    ///
    /// # Errors
    /// The first window with too many evaluations.
    pub fn check(&self) -> Result<(), InvalidScale> {
        let longest_ms = self.evaluation_ms.saturating_mul(MAX_WINDOW);
        let windows = [
            ("up_window_ms", self.up_window_ms),
            ("down_window_ms", self.down_window_ms),
        ];
        for (field, window_ms) in windows {
            require(window_ms <= longest_ms, field, &window_ms, || {
                format!("at most {MAX_WINDOW} times evaluation_ms ({longest_ms})")
            })?;
        }
        Ok(())
    }

    /// Raises the evaluation interval so that no window has too many evaluations: a window of a week does not need a
    /// value each minute.
    #[must_use]
    pub fn with_fitting_interval(mut self) -> Self {
        let longest_ms = self.up_window_ms.max(self.down_window_ms);
        self.evaluation_ms = self.evaluation_ms.max(longest_ms.div_ceil(MAX_WINDOW));
        self
    }

    /// Shortest time between two evaluations: a tenth less than the interval, so that a timer that fires slightly early
    /// does not skip one.
    pub(super) fn pace_ms(&self) -> u64 {
        self.evaluation_ms - self.evaluation_ms / 10
    }

    /// Longest gap between two samples within a window: one evaluation may be late.
    pub(super) fn gap_ms(&self) -> u64 {
        self.evaluation_ms.saturating_mul(2)
    }

    pub(super) fn backoff_ms(&self) -> u64 {
        self.cooldown_ms
            .saturating_mul(u64::from(self.backoff_cooldowns))
    }
}

fn require(
    holds: bool,
    field: &'static str,
    found: &dyn std::fmt::Display,
    must: impl FnOnce() -> String,
) -> Result<(), InvalidScale> {
    if holds {
        return Ok(());
    }
    Err(InvalidScale {
        field,
        found: found.to_string(),
        must: must(),
    })
}
