//! Scaling: the number of nodes of an allocation follows a metric.

use serde::{Deserialize, Serialize};

/// Scaling settings: bounds, metric and pace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScalingSpec {
    /// Smallest number of nodes, at least 1. The allocation starts with this number.
    pub min_nodes: u32,
    /// Largest number of nodes.
    pub max_nodes: u32,
    /// Metric that is measured.
    pub metric: Metric,
    /// Target value of the metric, in millionths of its unit; above 0. A value above the target leads to one more node.
    pub target_micro: u64,
    /// Pace of scaling decisions. A field that is `None` has the vCluster's value.
    pub pace: ScalingPace,
}

/// Metric that scaling follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean utilisation of the nodes' GPUs, 0 to 1.
    Gpu,
    /// Mean utilisation of the nodes' processors, 0 to 1.
    Cpu,
    /// The single value that a query returns from the site's Prometheus.
    Prometheus {
        /// Query in PromQL. `$allocation` is replaced by the number of the allocation.
        query: String,
    },
}

/// Pace of scaling decisions. Times are milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScalingPace {
    /// Time for which the metric must be above the target before a node is added.
    pub up_window_ms: Option<u64>,
    /// Time for which the metric must be below the lower threshold before a node is released.
    pub down_window_ms: Option<u64>,
    /// Time after a change during which no further change happens.
    pub cooldown_ms: Option<u64>,
    /// Lower threshold, millionths of the target; above 0 and below 1,000,000.
    pub down_threshold_ppm: Option<u32>,
}

/// Longest query, bytes.
pub const MAX_QUERY_BYTES: usize = 4096;
/// Longest window and cooldown, milliseconds (7 days).
pub const MAX_PACE_MS: u64 = 7 * 24 * 3_600_000;

/// Invalid scaling settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidScale {
    /// Name of the invalid setting without its unit: `target`, `up_window`.
    pub field: &'static str,
    /// Description of the error, with the remedy.
    pub reason: String,
}

impl ScalingSpec {
    /// Checks the ranges of all fields.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), InvalidScale> {
        let fail = |field, reason: String| Err(InvalidScale { field, reason });
        if self.min_nodes == 0 {
            return fail("min_nodes", "must be at least 1 node".to_owned());
        }
        if self.max_nodes < self.min_nodes {
            let reason = format!(
                "{} is less than min_nodes, {}",
                self.max_nodes, self.min_nodes
            );
            return fail("max_nodes", reason);
        }
        if self.target_micro == 0 {
            return fail("target", "give a target above 0".to_owned());
        }
        if let Metric::Prometheus { query } = &self.metric {
            if query.trim().is_empty() {
                return fail("metric", "give a query".to_owned());
            }
            if query.len() > MAX_QUERY_BYTES {
                let reason = format!("the query has more than {MAX_QUERY_BYTES} bytes");
                return fail("metric", reason);
            }
        }
        let ScalingPace {
            up_window_ms,
            down_window_ms,
            cooldown_ms,
            down_threshold_ppm,
        } = self.pace;
        for (field, given) in [("up_window", up_window_ms), ("down_window", down_window_ms)] {
            if given == Some(0) {
                return fail(field, "a window must be at least 1 ms".to_owned());
            }
        }
        for (field, given) in [
            ("up_window", up_window_ms),
            ("down_window", down_window_ms),
            ("cooldown", cooldown_ms),
        ] {
            if given.is_some_and(|ms| ms > MAX_PACE_MS) {
                return fail(field, "7 days at most".to_owned());
            }
        }
        if down_threshold_ppm.is_some_and(|ppm| ppm == 0 || ppm >= 1_000_000) {
            let reason = "the lower threshold must be between 0 and 1, a part of the target";
            return fail("down_threshold", reason.to_owned());
        }
        Ok(())
    }
}
