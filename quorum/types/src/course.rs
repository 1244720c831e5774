//! How an allocation has fared: to what it belongs, what was done to it, and what of its work is kept.

use crate::{
    AllocationId, UnixMillis, VclusterName, array::IndexSet, checkpoint::CheckpointOutcome,
    id::DagId,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

/// What a restored cluster skips of the numbers of an allocation's checkpoints, which name their folders: more were
/// written since the backup than anybody knows.
pub const CHECKPOINT_GAP: u32 = 1 << 16;

/// Empty for work to which nothing was done yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Course {
    /// The graph it is a member of.
    pub dag: Option<DagPlace>,
    /// The array it is an element of. Its workload is the array's.
    pub element: Option<Element>,
    /// What became of the elements; `Some` for every array.
    pub tally: Option<Box<Tally>>,
    /// How often others took its nodes.
    pub preempted: u32,
    /// When they last did, or when it last began again after that.
    pub moved_at: Option<UnixMillis>,
    /// Checkpoints that were asked for; each has the next number.
    pub checkpoints: u32,
    /// How many of them came to nothing.
    pub failed_checkpoints: u32,
    /// Why the last of these did, in words.
    pub failed_because: Option<String>,
    /// The last one that is whole.
    pub kept: Option<Kept>,
    /// Time that the work had run before the present attempt, as the checkpoint that this one went on from
    /// has it, milliseconds.
    pub resumed_ms: u64,
    /// The one that is being written.
    pub writing: Option<Box<Writing>>,
    /// How often the walltime was changed since the present attempt was assigned. 0: its agents know it
    /// from their launches; else they are told, with this number.
    pub walltime_changes: u32,
}

impl Course {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A member of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagPlace {
    /// Which graph.
    pub dag: DagId,
    /// What it is called there.
    pub member: String,
}

/// An element of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// Which array.
    pub array: AllocationId,
    /// Its index.
    pub index: u32,
}

/// What became of the elements of an array. Those that are not here have allocations of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Elements that may be placed.
    pub pending: IndexSet,
    /// Elements that wait for the same index of another array.
    pub blocked: IndexSet,
    /// Elements that were cancelled before they had an allocation.
    pub cancelled: IndexSet,
    /// Elements that have an allocation that has not ended.
    pub alive: u32,
    /// Elements that completed.
    pub completed: u32,
    /// Elements that failed.
    pub failed: u32,
    /// Elements whose allocation was cancelled.
    pub stopped: u32,
}

/// A checkpoint that is whole: work can go on from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its number.
    pub number: u32,
    /// When it was asked for: what was done since is not in it.
    pub asked_at: UnixMillis,
    /// When its last rank had written it.
    pub written_at: UnixMillis,
    /// How long it took, milliseconds, from being asked for.
    pub took_ms: u64,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// Where it is.
    pub directory: String,
    /// Bytes, where every rank said.
    pub bytes: Option<u64>,
    /// Time that its work had run when it was asked for, in all attempts that it holds, milliseconds. So
    /// much of the walltime is used.
    pub progress_ms: u64,
}

/// A checkpoint that is being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writing {
    /// Its number.
    pub number: u32,
    /// Since when.
    pub asked_at: UnixMillis,
    /// When it is given up.
    pub until: UnixMillis,
    /// It was given more time once.
    pub extended: bool,
    /// Where it goes.
    pub directory: String,
    /// What comes then.
    pub then: AfterCheckpoint,
    /// Ranks that have written theirs.
    pub written: BTreeSet<u32>,
    /// Bytes that these said; `None` where one has not.
    pub bytes: Option<u64>,
}

/// What comes after a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterCheckpoint {
    /// The work goes on.
    GoOn,
    /// It makes room, and goes on from the checkpoint when it gets nodes again.
    MakeRoom {
        /// For whom.
        reason: MoveReason,
    },
    /// It is suspended, also where the checkpoint comes to nothing.
    Suspend {
        /// Who asked.
        by: String,
    },
}

/// Why work makes room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveReason {
    /// Work of a higher class needs its nodes.
    Preempted {
        /// Which.
        by: AllocationId,
    },
    /// Its nodes were lent, and their vCluster needs them.
    Reclaimed {
        /// Which.
        home: VclusterName,
    },
    /// Somebody asked.
    Asked {
        /// Who.
        by: String,
    },
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preempted { by } => write!(f, "preempted by allocation {by}"),
            Self::Reclaimed { home } => write!(f, "its nodes went back to vCluster {home}"),
            Self::Asked { by } => write!(f, "suspended by {by}"),
        }
    }
}

/// What a rank says of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCheckpoint {
    /// Of which.
    pub number: u32,
    /// What became of it.
    pub outcome: CheckpointOutcome,
}
