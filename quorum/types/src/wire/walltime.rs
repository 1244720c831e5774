//! Between control and agents: another walltime for what runs already.

use super::AttemptKey;
use crate::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Has a rank end at another time than its launch said. A repeat, and a lower number than was taken, change
/// nothing and are answered with what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetWalltime {
    /// Which attempt.
    pub key: AttemptKey,
    /// Fencing epoch of the dispatcher's lease, as of [`Launch`](super::Launch).
    pub epoch: u64,
    /// Which change of this attempt's walltime it is, from 1.
    pub number: u32,
    /// From the rank's start on, milliseconds.
    pub walltime_ms: u64,
}
impl Rpc for SetWalltime {
    const METHOD: &'static str = "agent.walltime";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<WalltimeStatus, WalltimeRefused>;
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WalltimeStatus {
    /// It is written down, and holds also when the agent is started anew.
    InForce {
        /// The last change that was taken.
        number: u32,
        /// From the rank's start on, milliseconds.
        walltime_ms: u64,
    },
    /// The rank has ended, or is not known here: nothing was changed.
    Gone,
}

/// Why an agent does not take another walltime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WalltimeRefused {
    /// A newer dispatcher has spoken.
    #[error("epoch {given} is over; {current} was seen")]
    StaleEpoch {
        /// As given.
        given: u64,
        /// Highest seen.
        current: u64,
    },
    /// It could not be recorded, or what is recorded cannot be read.
    #[error("the walltime could not be recorded: {reason}")]
    JournalFailed {
        /// Why.
        reason: String,
    },
}
