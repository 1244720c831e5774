//! Work whose number of nodes follows a metric.

use serde::{Deserialize, Serialize};

/// Between how many nodes, by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Fewest nodes; it starts with these. At least 1.
    pub min_nodes: u32,
    /// Most nodes.
    pub max_nodes: u32,
    /// What is measured.
    pub metric: Metric,
    /// More of it than this asks for a node more, millionths of the metric's unit; above 0.
    pub target_micro: u64,
    /// How decisions are paced; a part that is `None` is as the vCluster says.
    pub pace: Pace,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean use of the GPUs of its nodes, 0 to 1.
    Gpu,
    /// Mean use of the processors of its nodes, 0 to 1.
    Cpu,
    /// The one value that this query gives in the site's Prometheus.
    Prometheus {
        /// In PromQL. `$allocation` stands for the allocation's number.
        query: String,
    },
}

/// How decisions are paced, milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// The metric is above the target for so long before a node is added.
    pub up_window_ms: Option<u64>,
    /// The metric is below the lower threshold for so long before one is given back.
    pub down_window_ms: Option<u64>,
    /// Nothing changes for so long after a change.
    pub cooldown_ms: Option<u64>,
    /// The lower threshold, millionths of the target; below 1,000,000.
    pub down_threshold_ppm: Option<u32>,
}

/// Longest query, bytes.
pub const MAX_QUERY_BYTES: usize = 4096;
/// Longest window and cooldown, milliseconds (7 days).
pub const MAX_PACE_MS: u64 = 7 * 24 * 3_600_000;

/// What of a [`Scale`] cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidScale {
    /// The field of [`Scale`].
    pub field: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl Scale {
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<(), InvalidScale> {
        let fail = |field, reason: String| Err(InvalidScale { field, reason });
        if self.min_nodes == 0 {
            return fail("min_nodes", "it runs on at least 1 node".to_owned());
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
        let Pace {
            up_window_ms,
            down_window_ms,
            cooldown_ms,
            down_threshold_ppm,
        } = self.pace;
        for (field, given) in [("up_window", up_window_ms), ("down_window", down_window_ms)] {
            if given == Some(0) {
                return fail(field, "a window lasts at least 1 ms".to_owned());
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
            let reason = "the lower threshold lies between 0 and 1, a part of the target";
            return fail("down_threshold", reason.to_owned());
        }
        Ok(())
    }
}
