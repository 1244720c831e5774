//! Reasons against writing a checkpoint now.

use super::{Cost, Value};
use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::Serialize;
use std::fmt;

/// Reason against writing a checkpoint now. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointObstacle {
    /// The job cannot write checkpoints.
    CannotWrite,
    /// The job writes checkpoints on request only.
    OnRequestOnly,
    /// The job is not running, or is already writing a checkpoint.
    NotRunning {
        /// State of the allocation.
        state: AllocationState,
    },
    /// The allocation holds no node.
    NoNodes,
    /// The job runs, but its start is unknown.
    NotStarted,
    /// The job has not run long enough.
    NotLongEnough {
        /// Time since the start of the present run.
        ran_ms: u64,
        /// Required time.
        least_ms: u64,
    },
    /// The last checkpoint is too recent.
    TooSoon {
        /// Time since the last checkpoint.
        since_ms: u64,
        /// Required time.
        least_ms: u64,
    },
    /// The last attempts failed.
    Failed {
        /// Number of consecutive failures.
        times: u32,
        /// Time of the next permitted attempt.
        again_at: UnixMillis,
    },
    /// Storage is paused or has no bandwidth: a checkpoint would never end.
    StorageUnavailable,
    /// The walltime ends before the checkpoint would be complete.
    EndsFirst {
        /// End of the walltime.
        ends_at: UnixMillis,
        /// Duration of a checkpoint.
        takes_ms: u64,
    },
    /// The checkpoint would time out before it is complete.
    TakesTooLong {
        /// Duration of a checkpoint.
        takes_ms: u64,
        /// Timeout with its extension.
        allowed_ms: u64,
    },
    /// The checkpoint costs at least as much as it is worth.
    CostsMore {
        /// Value of the checkpoint.
        value: Value,
        /// Cost of the checkpoint.
        cost: Cost,
    },
}

impl fmt::Display for CheckpointObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |ms: &u64| *ms as f64 / 1000.0;
        match self {
            Self::CannotWrite => write!(f, "it cannot write checkpoints"),
            Self::OnRequestOnly => write!(f, "it writes checkpoints on request only, not by cost"),
            Self::NotRunning { state } => write!(f, "it is {}", state.as_str()),
            Self::NoNodes => write!(f, "it holds no node"),
            Self::NotStarted => write!(f, "it has not started"),
            Self::NotLongEnough { ran_ms, least_ms } => {
                write!(
                    f,
                    "it has run for {} s of the required {} s",
                    s(ran_ms),
                    s(least_ms)
                )
            }
            Self::TooSoon { since_ms, least_ms } => {
                let (since, least) = (s(since_ms), s(least_ms));
                write!(
                    f,
                    "the last checkpoint is {since} s old; the minimum interval is {least} s"
                )
            }
            Self::Failed { times, again_at } => {
                write!(
                    f,
                    "{times} checkpoints failed in a row; next attempt at {again_at}"
                )
            }
            Self::StorageUnavailable => write!(f, "checkpoint storage is not available"),
            Self::EndsFirst { ends_at, takes_ms } => {
                let takes = s(takes_ms);
                write!(f, "it ends at {ends_at}, and a checkpoint takes {takes} s")
            }
            Self::TakesTooLong {
                takes_ms,
                allowed_ms,
            } => write!(
                f,
                "a checkpoint takes {} s, but times out after {} s; set checkpoint_time, or increase the timeout",
                s(takes_ms),
                s(allowed_ms)
            ),
            Self::CostsMore { value, cost } => write!(
                f,
                "a checkpoint is worth {:.1} GPU-seconds and costs {:.1}",
                value.total(),
                cost.total()
            ),
        }
    }
}
