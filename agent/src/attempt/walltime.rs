//! What an attempt's folder says of a walltime that was changed after its launch.

use super::durable::write_durably;
use super::{AttemptDir, RecordError};
use lattice_quorum_types::UnixMillis;
use serde::{Deserialize, Serialize};

pub(super) const FILE: &str = "walltime.json";

/// The walltime that is in force in place of the launch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalltimeRecord {
    /// Which change of this attempt's walltime it was, from 1.
    pub number: u32,
    /// From the job's start on, milliseconds.
    pub walltime_ms: u64,
    /// When the agent took it.
    pub taken_at: UnixMillis,
}

impl AttemptDir {
    /// The last walltime that was said after the launch, if any was.
    pub fn walltime(&self) -> Result<Option<WalltimeRecord>, RecordError> {
        self.read(FILE)
    }

    /// Records another walltime, durably.
    pub fn write_walltime(&self, walltime: &WalltimeRecord) -> Result<(), RecordError> {
        self.write(FILE, walltime, write_durably)
    }
}
