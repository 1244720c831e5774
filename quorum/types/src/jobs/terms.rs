//! Terms of an allocation: dependencies, mutex, times, job array, checkpoints, scaling, reservation. The requested
//! resources are in [`AllocationSpec`](crate::spec::AllocationSpec).

use super::state::AllocationState;
use crate::{
    AllocationId, UnixMillis, array::ArraySpec, checkpoint::CheckpointMode, id::ReservationName,
    scale::ScalingSpec,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

/// Largest number of dependencies of one allocation.
pub const MAX_DEPENDENCIES: usize = 1000;
/// Longest name of a mutex, bytes.
pub const MAX_TERM_BYTES: usize = 1024;

/// Terms of an allocation. Each field is empty or `None` unless the user requests it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// Dependencies; the allocation waits for all of them.
    pub after: Vec<Dependency>,
    /// Mutex name. Of one user's allocations with the same mutex, at most one is eligible or runs at a time. The next
    /// is the earliest submitted one that waits for nothing else.
    pub mutex: Option<String>,
    /// Earliest start: the allocation is not placed before this time.
    pub begin_at: Option<UnixMillis>,
    /// Deadline: the time at which the allocation must have ended.
    pub deadline_at: Option<UnixMillis>,
    /// Job array: the allocation consists of many elements that differ only in their index.
    pub array: Option<ArraySpec>,
    /// Checkpoint settings; `None`: the allocation cannot write checkpoints.
    pub checkpoint: Option<CheckpointTerms>,
    /// Scaling: the number of nodes follows a metric.
    pub scale: Option<ScalingSpec>,
    /// Name of a reservation. The allocation uses only nodes of this reservation.
    pub reservation: Option<ReservationName>,
}

impl Terms {
    /// Checks whether no terms are requested.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Dependency of an allocation on another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// The other allocation: an earlier submitted allocation, a whole job array, or an element of an array.
    pub on: AllocationId,
    /// Condition on the end of the other allocation.
    pub condition: Condition,
}

/// Condition of a dependency on the end of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The allocation completed.
    Success,
    /// The allocation failed.
    Failure,
    /// The allocation completed, failed or was cancelled.
    Any,
    /// Between two job arrays: the element with the same index completed. An index that the other array lacks has no
    /// dependency. Between two allocations that are not arrays: completed.
    Corresponding,
}

impl Condition {
    /// All conditions.
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

    /// Checks whether an end in `state` meets the condition; `None` if `state` is not terminal.
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

    /// Checks whether no end of an allocation can meet both conditions.
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

/// Checkpoint settings of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointTerms {
    /// Mode in which the processes receive checkpoint requests.
    pub mode: CheckpointMode,
    /// Trigger of checkpoints.
    pub trigger: CheckpointTrigger,
    /// Directory of checkpoints, an absolute path or a URL; `None`: the site's default.
    pub directory: Option<String>,
}

/// Trigger of checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointTrigger {
    /// Control triggers checkpoints when they are worth their cost, on request, and before a preemption or reclaim.
    #[default]
    Automatic,
    /// Only on request of a user or operator, or before a preemption or reclaim.
    Manual,
}

/// Reasons why an allocation is blocked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// Dependencies that have not ended.
    pub allocations: BTreeSet<AllocationId>,
    /// Allocation that holds the mutex.
    pub mutex: Option<AllocationId>,
}
