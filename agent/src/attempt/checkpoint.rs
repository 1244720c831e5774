//! Checkpoint records of an attempt: the last request and its status.

use super::durable::{write_atomically, write_durably};
use super::{AttemptDir, RecordError};
use lattice_agent_rpc::{CheckpointOrder, CheckpointStatus};
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::checkpoint::{CheckpointFailure, CheckpointOutcome};
use serde::{Deserialize, Serialize};

const ORDER: &str = "checkpoint.json";
const STATE: &str = "checkpoint.state.json";

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

    /// Status of a requested checkpoint. A checkpoint that was incomplete when the job ended has failed, whichever
    /// process recorded the end.
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
