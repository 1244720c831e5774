//! A service's settings of scaling.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

const MINUTE: u64 = 60_000;
/// Evaluations that a window has at most: a day of minutes. It bounds what is remembered.
const MAX_WINDOW: u64 = 1440;

/// How far a service scales, and by what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalePolicy {
    /// Nodes that it must have, all of its own vCluster. It starts with them.
    pub min_nodes: u32,
    /// Nodes that it may have.
    pub max_nodes: u32,
    /// What its metric should be, in the metric's unit; above 0.
    pub target: f64,
    /// How quickly it follows.
    #[serde(default)]
    pub damping: Damping,
}

/// How quickly a service follows its metric. Times in milliseconds. The defaults are those of the autoscaling
/// document, as collected in the semantics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Damping {
    /// Below this part of the target it shrinks; above 0 and below 1: 0.5.
    pub threshold: f64,
    /// How often the metric is read: 60 s.
    pub evaluation_ms: u64,
    /// How long it must be above the target: 2 min.
    pub up_window_ms: u64,
    /// How long it must be below the threshold: 5 min.
    pub down_window_ms: u64,
    /// How long it stays as it is after any change: 3 min.
    pub cooldown_ms: u64,
    /// Evaluations without a metric, in a row, until somebody is told: 3.
    pub missing_alert: u32,
    /// How often a proposal that was refused is made again: 3.
    pub retries: u32,
    /// For how many cooldowns nothing is proposed then: 2.
    pub backoff_cooldowns: u32,
    /// Turns from growing to shrinking or back, in a row, until somebody is told: 5.
    pub oscillation_alert: u32,
    /// How long it must have been calm for a change to be no turn: 1 h. Ours: a service that grows in the
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

/// A setting with which a service would not scale as meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}; it must be {must}")]
pub struct InvalidScale {
    /// Which.
    pub field: &'static str,
    /// As given.
    pub found: String,
    /// What would do.
    pub must: String,
}

impl ScalePolicy {
    /// Checks the settings. What it refuses is still defined for [`super::decide`].
    ///
    /// # Errors
    /// The first setting that is of no use.
    pub fn check(&self) -> Result<(), InvalidScale> {
        let some = self.min_nodes >= 1;
        demand(some, "min_nodes", &self.min_nodes, || {
            "at least 1".to_owned()
        })?;
        let enough = self.max_nodes >= self.min_nodes;
        demand(enough, "max_nodes", &self.max_nodes, || {
            format!("at least min_nodes ({})", self.min_nodes)
        })?;
        let positive = self.target.is_finite() && self.target > 0.0;
        demand(positive, "target", &self.target, || {
            "a number above 0".to_owned()
        })?;
        self.damping.check()
    }
}

impl Damping {
    /// Checks the windows against the time between two evaluations. The range of each setting is checked before it is
    /// stored ([`SchedulerSettings::check`](lattice_quorum_types::scheduler::SchedulerSettings::check)).
    ///
    /// # Errors
    /// The first window that has too many evaluations.
    pub fn check(&self) -> Result<(), InvalidScale> {
        let longest_ms = self.evaluation_ms.saturating_mul(MAX_WINDOW);
        let windows = [
            ("up_window_ms", self.up_window_ms),
            ("down_window_ms", self.down_window_ms),
        ];
        for (field, window_ms) in windows {
            demand(window_ms <= longest_ms, field, &window_ms, || {
                format!("at most {MAX_WINDOW} times evaluation_ms ({longest_ms})")
            })?;
        }
        Ok(())
    }

    /// With so long a time between two evaluations that no window has more of them than it may: who asks for a
    /// week's mean needs no value each minute.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        let longest_ms = self.up_window_ms.max(self.down_window_ms);
        self.evaluation_ms = self.evaluation_ms.max(longest_ms.div_ceil(MAX_WINDOW));
        self
    }

    /// How long after one evaluation the next may be. A tenth less than it should be, so that a timer that
    /// is a little early does not leave one out.
    pub(super) fn pace_ms(&self) -> u64 {
        self.evaluation_ms - self.evaluation_ms / 10
    }

    /// How far two samples may be apart, so that what was between them is taken for known: one evaluation that
    /// came late.
    pub(super) fn gap_ms(&self) -> u64 {
        self.evaluation_ms.saturating_mul(2)
    }

    pub(super) fn backoff_ms(&self) -> u64 {
        self.cooldown_ms
            .saturating_mul(u64::from(self.backoff_cooldowns))
    }
}

fn demand(
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
