//! What an attempt's folder says of checkpoints.

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

/// How a rank is prepared for checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPlan {
    /// As control said.
    pub setup: CheckpointSetup,
    /// A folder that the rank's user may pass through and not change, for what the two sides share;
    /// there from before the job starts until after its end.
    pub place: PathBuf,
    /// Between two looks at what the job says, milliseconds.
    pub poll_ms: u64,
}

impl CheckpointPlan {
    /// The file that the job maps, in that mode.
    pub fn shared_file(&self) -> Option<PathBuf> {
        let is_it = self.setup.mode == CheckpointMode::SharedMemory;
        is_it.then(|| self.place.join("checkpoint.shm"))
    }

    /// The socket that the job connects to, in that mode.
    pub fn socket(&self) -> Option<PathBuf> {
        let is_it = self.setup.mode == CheckpointMode::Callback;
        is_it.then(|| self.place.join("checkpoint.sock"))
    }

    /// The file in which the job reads what is wanted, in that mode. Ranks may share the directory.
    pub fn request_file(&self, rank: u32) -> Option<PathBuf> {
        let is_it = self.setup.mode == CheckpointMode::Signal;
        let name = format!("request.rank-{rank}");
        is_it.then(|| PathBuf::from(&self.setup.directory).join(name))
    }

    /// Removes the place with what is in it.
    pub fn remove_place(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The last checkpoint that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRecord {
    /// What is wanted.
    pub order: CheckpointOrder,
    /// When the agent took it.
    pub asked_at: UnixMillis,
}

/// What the supervisor knows of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointState {
    /// Which.
    pub number: u32,
    /// Where it stands.
    pub status: CheckpointStatus,
}

impl AttemptDir {
    /// The last checkpoint that was asked for.
    pub fn checkpoint_order(&self) -> Result<Option<OrderRecord>, RecordError> {
        self.read(ORDER)
    }

    /// What the supervisor last wrote of a checkpoint, of that one or of one before it.
    pub fn checkpoint_state(&self) -> Result<Option<CheckpointState>, RecordError> {
        self.read(STATE)
    }

    /// Records that one is wanted, durably.
    pub fn write_checkpoint_order(&self, order: &OrderRecord) -> Result<(), RecordError> {
        self.write(ORDER, order, write_durably)
    }

    /// Records where one stands: an end durably, all else so that readers never see half of it.
    pub fn write_checkpoint_state(&self, state: &CheckpointState) -> Result<(), RecordError> {
        let how = match state.status {
            CheckpointStatus::Ended(_) => write_durably,
            _ => write_atomically,
        };
        self.write(STATE, state, how)
    }

    /// Where a checkpoint stands that was asked for. One that was not whole when the job ended never
    /// is, whoever wrote that end.
    pub fn checkpoint_status(&self, of: &OrderRecord) -> Result<CheckpointStatus, RecordError> {
        // Before the state: a supervisor writes that first.
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

/// What becomes of a checkpoint that is not whole when its job ends.
pub fn job_ended(at: UnixMillis) -> CheckpointOutcome {
    CheckpointOutcome::Failed {
        at,
        cause: CheckpointFailure::JobEnded,
        reason: "the job ended before its checkpoint was complete".to_owned(),
    }
}
