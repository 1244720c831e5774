//! On what terms work is done: after what, when, how often, and what may be done to it meanwhile. What it
//! needs is in its [`AllocationSpec`](crate::spec::AllocationSpec).

use crate::{
    AllocationId, AllocationState, UnixMillis, array::ArraySpec, checkpoint::CheckpointMode,
    id::ReservationName, scale::Scale,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

/// Allocations that one names as those it comes after.
pub const MAX_DEPENDENCIES: usize = 1000;
/// Longest name of a mutex, and of a directory for checkpoints, bytes.
pub const MAX_TERM_BYTES: usize = 1024;

/// Each is absent unless somebody asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// It waits for each of these.
    pub after: Vec<Dependency>,
    /// Of one user's work with the same mutex, one is eligible at a time, in the order of the submits.
    pub mutex: Option<String>,
    /// It is not placed before this moment.
    pub begin_at: Option<UnixMillis>,
    /// It must have ended by this moment.
    pub deadline_at: Option<UnixMillis>,
    /// It is many pieces of work that differ in their index alone.
    pub array: Option<ArraySpec>,
    /// It can write checkpoints.
    pub checkpoint: Option<CheckpointTerms>,
    /// Its number of nodes follows a metric.
    pub scale: Option<Scale>,
    /// It uses nodes that are reserved under this name, and no others.
    pub reservation: Option<ReservationName>,
}

impl Terms {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One allocation after another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// After which: one that was submitted before, an array as a whole, or one of its elements.
    pub on: AllocationId,
    /// How that one must have ended.
    pub condition: Condition,
}

/// How an allocation must have ended for another to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Completed.
    Success,
    /// Failed.
    Failure,
    /// Completed, failed or cancelled.
    Any,
    /// Of two arrays: the element of the same index completed. An index that the first has not waits for
    /// nothing. Of two that are no arrays: completed.
    Corresponding,
}

impl Condition {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Failure, Self::Any, Self::Corresponding];

    /// Lower-case name as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Any => "any",
            Self::Corresponding => "corresponding",
        }
    }

    /// Whether an end in `state` is what it asks for; `None` where that is no end.
    pub fn is_met(self, state: AllocationState) -> Option<bool> {
        if !state.is_terminal() {
            return None;
        }
        Some(match self {
            Self::Success | Self::Corresponding => state == AllocationState::Completed,
            Self::Failure => state == AllocationState::Failed,
            Self::Any => true,
        })
    }

    /// Whether no end of one allocation is what both ask for.
    pub const fn excludes(self, other: Self) -> bool {
        use Condition::{Corresponding, Failure, Success};
        matches!(
            (self, other),
            (Success | Corresponding, Failure) | (Failure, Success | Corresponding)
        )
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How work writes checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointTerms {
    /// How it is told to.
    pub mode: CheckpointMode,
    /// Who decides when.
    pub trigger: CheckpointTrigger,
    /// Where to, an absolute path or a URL; `None`: where the site says.
    pub directory: Option<String>,
}

/// Who decides when a checkpoint is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointTrigger {
    /// Control, when it pays, and whenever somebody asks.
    #[default]
    Automatic,
    /// Only people, and who needs the nodes.
    Manual,
}

/// Why an allocation waits for others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// Those it waits for that have not ended.
    pub allocations: BTreeSet<AllocationId>,
    /// The one that has its mutex.
    pub mutex: Option<AllocationId>,
}
