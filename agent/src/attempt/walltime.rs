//! Walltime records: changes of an attempt's walltime after its launch.

use super::RecordError;
use super::durable::write_durably;
use super::folder::{AttemptDir, WALLTIME};
use lattice_quorum_types::UnixMillis;
use serde::{Deserialize, Serialize};

/// Walltime that replaces the one of the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalltimeRecord {
    /// Sequence number of the change within the attempt, from 1.
    pub number: u32,
    /// Walltime, milliseconds from the start of the job.
    pub walltime_ms: u64,
    /// Time at which the agent accepted the change.
    pub taken_at: UnixMillis,
}

impl AttemptDir {
    /// The last walltime change after the launch, if there was one.
    pub fn walltime(&self) -> Result<Option<WalltimeRecord>, RecordError> {
        self.read(WALLTIME)
    }

    /// Records a walltime change, durably.
    pub fn write_walltime(&self, walltime: &WalltimeRecord) -> Result<(), RecordError> {
        self.write(WALLTIME, walltime, write_durably)
    }
}
