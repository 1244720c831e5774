//! Allocation history: DAG or job array membership, preemptions, and checkpoints.

pub use super::name::ArrayElement;
use crate::{
    AllocationId, AllocationName, NameLookup, UnixMillis, VclusterName, array::IndexSet,
    checkpoint::CheckpointOutcome, id::DagId,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

/// Gap in the checkpoint numbers of each allocation after a restore. Checkpoint numbers name folders, and checkpoints
/// written after the backup are not in the restored state.
pub const CHECKPOINT_GAP: u32 = 1 << 16;

/// History of an allocation; empty if nothing has happened to the allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationProgress {
    /// DAG that the allocation is a member of.
    pub dag: Option<DagMembership>,
    /// Job array that the allocation is an element of. The array's record holds the workload.
    pub element: Option<ArrayElement>,
    /// Counts of the elements; `Some` for every job array.
    pub tally: Option<Box<Tally>>,
    /// Number of times that a preemption or a reclaim took the allocation's nodes.
    pub preempted: u32,
    /// Time of the last preemption or reclaim that took the nodes, or of the last resumption after the allocation left
    /// its nodes with a checkpoint.
    pub moved_at: Option<UnixMillis>,
    /// Number of requested checkpoints. Each checkpoint has the next number.
    pub checkpoints: u32,
    /// Number of failed checkpoints.
    pub failed_checkpoints: u32,
    /// Reason of the last failed checkpoint.
    pub failed_because: Option<String>,
    /// The last complete checkpoint.
    pub kept: Option<SavedCheckpoint>,
    /// Run time before the present attempt that is contained in the checkpoint which the attempt resumed from,
    /// milliseconds.
    pub resumed_ms: u64,
    /// The checkpoint in progress.
    pub writing: Option<Box<CheckpointInProgress>>,
    /// Number of walltime changes since the present attempt was assigned. If 0, the agents have the walltime from their
    /// launches. Otherwise control sends them the walltime with this number.
    pub walltime_changes: u32,
}

impl AllocationProgress {
    /// Checks whether the history is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Membership in a DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagMembership {
    /// Number of the DAG.
    pub dag: DagId,
    /// Name of the member within the DAG.
    pub member: String,
}

/// Counts of the elements of a job array. Elements that are in none of the sets have an allocation of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Elements that may be placed.
    pub pending: IndexSet,
    /// Elements that wait for a dependency: of the array, or on the element with the same index of another array.
    pub blocked: IndexSet,
    /// Elements that were cancelled before they had an allocation.
    pub cancelled: IndexSet,
    /// Number of elements with an allocation that has not ended.
    pub alive: u32,
    /// Number of elements that completed.
    pub completed: u32,
    /// Number of elements that failed.
    pub failed: u32,
    /// Number of elements with a cancelled allocation.
    pub stopped: u32,
}

/// A complete checkpoint, from which the allocation can resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCheckpoint {
    /// Number of the checkpoint.
    pub number: u32,
    /// Request time. Progress after this time is not in the checkpoint.
    pub asked_at: UnixMillis,
    /// State time of the report with which the last rank confirmed its part.
    pub written_at: UnixMillis,
    /// Duration from the request to completion, milliseconds.
    pub took_ms: u64,
    /// Attempt that wrote the checkpoint.
    pub attempt: u32,
    /// Directory of the checkpoint.
    pub directory: String,
    /// Size, bytes; `None` if a rank did not report its size.
    pub bytes: Option<u64>,
    /// Run time contained in the checkpoint, over all attempts that led to it, milliseconds. This much of the walltime
    /// is used.
    pub progress_ms: u64,
}

/// A checkpoint in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointInProgress {
    /// Number of the checkpoint.
    pub number: u32,
    /// Request time.
    pub asked_at: UnixMillis,
    /// Time at which the checkpoint is given up.
    pub until: UnixMillis,
    /// Whether the timeout was extended; it is extended at most once.
    pub extended: bool,
    /// Directory of the checkpoint.
    pub directory: String,
    /// Action after the checkpoint.
    pub then: AfterCheckpoint,
    /// Ranks that have written their parts.
    pub written: BTreeSet<u32>,
    /// Total size that these ranks reported, bytes; `None` if one of them reported no size.
    pub bytes: Option<u64>,
}

/// Action after a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterCheckpoint {
    /// The allocation continues.
    GoOn,
    /// The allocation releases its nodes. It resumes from the checkpoint when it gets nodes again.
    MakeRoom {
        /// Reason for the move.
        reason: MoveReason,
    },
    /// The allocation is suspended, even if the checkpoint fails.
    Suspend {
        /// Principal that requested the suspension.
        by: String,
    },
}

/// Reason why an allocation leaves its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveReason {
    /// An allocation of a higher class needs the nodes.
    Preempted {
        /// The preemptor.
        by: AllocationId,
    },
    /// The nodes were borrowed, and their home vCluster reclaims them.
    Reclaimed {
        /// vCluster that reclaims the nodes.
        home: VclusterName,
    },
    /// A principal requested the move.
    Asked {
        /// Requesting principal.
        by: String,
    },
}

impl MoveReason {
    /// Text with the preemptor's name.
    pub fn text(&self, name: NameLookup<'_>) -> String {
        match self {
            Self::Preempted { by } => format!("preempted by allocation {}", name(*by)),
            Self::Reclaimed { home } => format!("its nodes went back to vCluster {home}"),
            Self::Asked { by } => format!("suspended by {by}"),
        }
    }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&AllocationName::of_id))
    }
}

/// A rank's report about its part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCheckpoint {
    /// Number of the checkpoint.
    pub number: u32,
    /// Result of the rank's part.
    pub outcome: CheckpointOutcome,
}
