//! Checkpoint preparation of a rank, as its launch record holds it.

use lattice_agent_rpc::CheckpointSetup;
use lattice_quorum_types::checkpoint::CheckpointMode;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// Checkpoint preparation of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPlan {
    /// Setup as control sent it.
    pub setup: CheckpointSetup,
    /// Folder that the supervisor and the job share; the rank's user may enter it, but not change it. The folder exists
    /// from before the start of the job until after its end.
    pub place: PathBuf,
    /// Time between two reads of the job's status, milliseconds.
    pub poll_ms: u64,
}

impl CheckpointPlan {
    /// File that the job maps, in shared-memory mode.
    pub fn shared_file(&self) -> Option<PathBuf> {
        let is_it = self.setup.mode == CheckpointMode::SharedMemory;
        is_it.then(|| self.place.join("checkpoint.shm"))
    }

    /// Socket that the job connects to, in callback mode.
    pub fn socket(&self) -> Option<PathBuf> {
        let is_it = self.setup.mode == CheckpointMode::Callback;
        is_it.then(|| self.place.join("checkpoint.sock"))
    }

    /// File from which the job reads the request, in signal mode. Ranks may share the directory.
    pub fn request_file(&self, rank: u32) -> Option<PathBuf> {
        let is_it = self.setup.mode == CheckpointMode::Signal;
        let name = format!("request.rank-{rank}");
        is_it.then(|| PathBuf::from(&self.setup.directory).join(name))
    }

    /// Removes the shared folder and its files.
    pub fn remove_shared_folder(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
