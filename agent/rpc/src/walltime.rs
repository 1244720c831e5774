//! Walltime changes of running ranks.

use crate::AttemptKey;
use lattice_quorum_types::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Changes the walltime of a rank. A repeat, or a lower number than the last accepted one, changes nothing and returns
/// the walltime in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetWalltime {
    /// Attempt of the rank.
    pub key: AttemptKey,
    /// Fencing epoch of the dispatcher's lease, as in [`Launch`](crate::Launch).
    pub epoch: u64,
    /// Number of the change for this attempt, from 1.
    pub number: u32,
    /// New walltime from the rank's start on, milliseconds.
    pub walltime_ms: u64,
}
impl Rpc for SetWalltime {
    const METHOD: &'static str = "agent.walltime";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<WalltimeStatus, WalltimeRefused>;
}

/// Result of a walltime change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WalltimeStatus {
    /// The walltime is on disk and stays in force when the agent restarts.
    InForce {
        /// Number of the last accepted change.
        number: u32,
        /// Walltime from the rank's start on, milliseconds.
        walltime_ms: u64,
    },
    /// The rank has ended, or is unknown here. Nothing was changed.
    Gone,
}

/// Reasons why an agent refuses a walltime change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WalltimeRefused {
    /// A dispatcher with a newer epoch has already called the agent.
    #[error("stale lease epoch {given}; current is {current}")]
    StaleEpoch {
        /// Epoch of the request.
        given: u64,
        /// Highest epoch that the agent has received.
        current: u64,
    },
    /// The change could not be recorded, or a record of the rank could not be read.
    #[error("the walltime could not be recorded: {reason}")]
    JournalFailed {
        /// Description of the error.
        reason: String,
    },
}
