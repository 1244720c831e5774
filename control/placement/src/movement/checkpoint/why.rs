//! Why no checkpoint is written now.

use super::{Cost, Value};
use lattice_quorum_types::{AllocationState, UnixMillis};
use serde::Serialize;
use std::fmt;

/// Why no checkpoint is written now. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The work cannot write one.
    CannotWrite,
    /// It writes one when it is asked, and not by cost.
    OnRequestOnly,
    /// It does not run, or is writing one.
    NotRunning {
        /// What it does.
        state: AllocationState,
    },
    /// It holds no node.
    NoNodes,
    /// It runs, and its start is not known.
    NotStarted,
    /// It has not run for long.
    NotLongEnough {
        /// Since its start.
        ran_ms: u64,
        /// How long it must.
        least_ms: u64,
    },
    /// The last one is not long ago.
    TooSoon {
        /// Since then.
        since_ms: u64,
        /// How long it must be.
        least_ms: u64,
    },
    /// The last tries went wrong.
    Failed {
        /// How many, one after the other.
        times: u32,
        /// When it may be tried again.
        again_at: UnixMillis,
    },
    /// Storage is paused, or writes nothing: a checkpoint would cost without end.
    StorageUnavailable,
    /// Its walltime is over before it would be written.
    EndsFirst {
        /// When.
        ends_at: UnixMillis,
        /// How long a checkpoint takes.
        takes_ms: u64,
    },
    /// It would be given up before it is written.
    TakesTooLong {
        /// How long a checkpoint takes.
        takes_ms: u64,
        /// How long one may, extension included.
        allowed_ms: u64,
    },
    /// It is not worth what it costs.
    CostsMore {
        /// What it is worth.
        value: Value,
        /// What it costs.
        cost: Cost,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |ms: &u64| *ms as f64 / 1000.0;
        match self {
            Self::CannotWrite => write!(f, "it cannot write checkpoints"),
            Self::OnRequestOnly => write!(f, "it writes checkpoints when it is asked, not by cost"),
            Self::NotRunning { state } => write!(f, "it is {}", state.as_str()),
            Self::NoNodes => write!(f, "it holds no node"),
            Self::NotStarted => write!(f, "it has not started"),
            Self::NotLongEnough { ran_ms, least_ms } => {
                write!(f, "it runs since {} s, of {} s", s(ran_ms), s(least_ms))
            }
            Self::TooSoon { since_ms, least_ms } => {
                let (since, least) = (s(since_ms), s(least_ms));
                write!(f, "its last checkpoint is {since} s ago, of {least} s")
            }
            Self::Failed { times, again_at } => {
                write!(f, "{times} failed in a row; again at {again_at}")
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
                "a checkpoint takes {} s, and is given up after {} s: say checkpoint_ms, or allow more",
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
