//! Checkpoint records of an attempt: the last request and its status.

use super::durable::{write_atomically, write_durably};
use super::{AttemptDir, RecordError};
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::checkpoint::{
    CheckpointFailure, CheckpointMode, CheckpointOrder, CheckpointOutcome, CheckpointSetup,
    CheckpointStatus,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

const ORDER: &str = "checkpoint.json";
const STATE: &str = "checkpoint.state.json";

/// Checkpoint preparation of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPlan {
    /// Setup as control sent it.
    pub setup: CheckpointSetup,
    /// Folder that the supervisor and the job share; the rank's user may pass through it and not change it. It exists
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
    pub fn remove_place(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The last requested checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRecord {
    /// Requested checkpoint.
    pub order: CheckpointOrder,
    /// Time at which the agent accepted the request.
    pub asked_at: UnixMillis,
}

/// Checkpoint status as the supervisor wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointState {
    /// Number of the checkpoint.
    pub number: u32,
    /// Status of that checkpoint.
    pub status: CheckpointStatus,
}

impl AttemptDir {
    /// The last requested checkpoint; `None` if there was no request.
    pub fn checkpoint_order(&self) -> Result<Option<OrderRecord>, RecordError> {
        self.read(ORDER)
    }

    /// The status that the supervisor wrote last, of the requested checkpoint or of an earlier one.
    pub fn checkpoint_state(&self) -> Result<Option<CheckpointState>, RecordError> {
        self.read(STATE)
    }

    /// Records a checkpoint request, durably.
    pub fn write_checkpoint_order(&self, order: &OrderRecord) -> Result<(), RecordError> {
        self.write(ORDER, order, write_durably)
    }

    /// Records the status of a checkpoint: an end durably, any other status atomically.
    pub fn write_checkpoint_state(&self, state: &CheckpointState) -> Result<(), RecordError> {
        let how = match state.status {
            CheckpointStatus::Ended(_) => write_durably,
            _ => write_atomically,
        };
        self.write(STATE, state, how)
    }

    /// Status of a requested checkpoint. A checkpoint that was incomplete when the job ended stays incomplete,
    /// whichever process recorded the end.
    pub fn checkpoint_status(&self, of: &OrderRecord) -> Result<CheckpointStatus, RecordError> {
        // The end is read before the status: a supervisor writes the status first.
        let end = match self.exit()? {
            Some(exit) => Some(exit),
            None => self.job_end()?,
        };
        let state = self.checkpoint_state()?;
        let state = state.filter(|state| state.number == of.order.number);
        let status = state.map_or(CheckpointStatus::Asked { at: of.asked_at }, |s| s.status);
        Ok(match (status, end) {
            (CheckpointStatus::Ended(outcome), _) => CheckpointStatus::Ended(outcome),
            (_, Some(end)) => CheckpointStatus::Ended(job_ended(end.at)),
            (status, None) => status,
        })
    }
}

/// Outcome of a checkpoint that is incomplete when its job ends.
pub fn job_ended(at: UnixMillis) -> CheckpointOutcome {
    CheckpointOutcome::Failed {
        at,
        cause: CheckpointFailure::JobEnded,
        reason: "the job ended before its checkpoint was complete".to_owned(),
    }
}
