//! Allocation progress as shown: dependencies, array and DAG membership, job checkpoints.

use super::WorkloadAccess;
use crate::notation::{duration, text};
use lattice_quorum_types::{
    AllocationId, AllocationName, NameLookup,
    array::IndexSet,
    progress::{
        AfterCheckpoint, AllocationProgress, ArrayElement, CheckpointInProgress, DagMembership,
        MoveReason, SavedCheckpoint, Tally,
    },
    terms::{Dependency, WaitsFor},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Dependency on another allocation, as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DependencyView {
    /// Required end of the other allocation: `success`, `failure`, `any` or `corresponding`.
    pub condition: String,
    /// Allocation that must end first.
    #[schema(value_type = u64)]
    pub on: AllocationId,
    /// Array of which that allocation is an element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementView>,
}

/// Array elements by state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElementCountsView {
    /// All elements.
    pub elements: u32,
    /// Elements that wait for nodes.
    pub pending: u32,
    /// Elements that wait for the same index of another array.
    pub blocked: u32,
    /// Elements that have their own allocation, which has not ended.
    pub running: u32,
    /// Elements that completed.
    pub completed: u32,
    /// Elements that failed.
    pub failed: u32,
    /// Elements that were cancelled, before or after they held nodes.
    pub cancelled: u32,
}

/// Position of an allocation in a job array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElementView {
    /// Allocation number of the array.
    #[schema(value_type = u64)]
    pub array: AllocationId,
    /// Element index, as in `LATTICE_ARRAY_INDEX`.
    pub index: u32,
}

/// Position of an allocation in a DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagPlaceView {
    /// DAG number.
    pub dag: u64,
    /// Member name in the DAG.
    pub member: String,
}

/// Complete job checkpoint, from which the allocation can resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SavedCheckpointView {
    /// Checkpoint number.
    pub number: u32,
    /// Directory of the checkpoint.
    pub directory: String,
    /// Time of the request. Later progress is not in the checkpoint.
    pub requested_at: String,
    /// Time at which the checkpoint was complete.
    pub written_at: String,
    /// Duration from the request to completion.
    pub duration: String,
    /// Attempt that wrote the checkpoint.
    pub attempt: u32,
    /// Size, bytes; absent unless every rank reported its part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Run time that the checkpoint covers, over all attempts that led to it.
    pub progress: String,
}

/// Job checkpoint that is being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointInProgressView {
    /// Checkpoint number.
    pub number: u32,
    /// Target directory.
    pub directory: String,
    /// Time of the request.
    pub requested_at: String,
    /// Deadline, after which the checkpoint is abandoned.
    pub times_out_at: String,
    /// Whether the deadline was extended once.
    pub extended: bool,
    /// Ranks that have written their part.
    pub ranks_written: u32,
    /// Why the allocation releases its nodes after the checkpoint; absent if the allocation keeps running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_reason: Option<String>,
}

/// Job checkpoints of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointsView {
    /// Checkpoints requested.
    pub requested: u32,
    /// Checkpoints that failed.
    pub failed: u32,
    /// Why the last failed checkpoint failed; absent for callers without access to the workload, since the reason may
    /// quote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Newest complete checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<SavedCheckpointView>,
    /// Checkpoint that is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<CheckpointInProgressView>,
}

/// Dependencies and mutex holder that a blocked allocation waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitsForView {
    /// Dependencies that have not ended.
    #[schema(value_type = Vec<u64>)]
    pub allocations: Vec<AllocationId>,
    /// Allocation that holds the mutex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub mutex: Option<AllocationId>,
}

fn count(all: &IndexSet) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

impl From<&Tally> for ElementCountsView {
    fn from(tally: &Tally) -> Self {
        let (pending, blocked) = (count(&tally.pending), count(&tally.blocked));
        let cancelled = count(&tally.cancelled).saturating_add(tally.stopped);
        let (running, completed, failed) = (tally.alive, tally.completed, tally.failed);
        let all = [pending, blocked, running, completed, failed, cancelled];
        Self {
            elements: all.into_iter().fold(0, u32::saturating_add),
            pending,
            blocked,
            running,
            completed,
            failed,
            cancelled,
        }
    }
}

impl DependencyView {
    /// Returns the dependency as shown; `name`: the name of the other allocation.
    pub(super) fn new(dependency: &Dependency, name: NameLookup<'_>) -> Self {
        Self {
            condition: dependency.condition.to_string(),
            on: dependency.on,
            element: ElementView::of(name(dependency.on)),
        }
    }
}

impl ElementView {
    /// Place of a named allocation in a job array.
    pub fn of(name: AllocationName) -> Option<Self> {
        name.element().as_ref().map(Into::into)
    }
}

/// Returns the name of an allocation in texts: its number, or `12_7` for the element with index 7 of job array 12.
pub fn name_text(id: AllocationId, element: Option<&ElementView>) -> String {
    let element = element.map(|element| ArrayElement {
        array: element.array,
        index: element.index,
    });
    AllocationName::new(id, element).to_string()
}

impl From<&ArrayElement> for ElementView {
    fn from(element: &ArrayElement) -> Self {
        Self {
            array: element.array,
            index: element.index,
        }
    }
}

impl From<&DagMembership> for DagPlaceView {
    fn from(place: &DagMembership) -> Self {
        Self {
            dag: place.dag.0,
            member: place.member.clone(),
        }
    }
}

impl From<&SavedCheckpoint> for SavedCheckpointView {
    fn from(kept: &SavedCheckpoint) -> Self {
        Self {
            number: kept.number,
            directory: kept.directory.clone(),
            requested_at: text::time(kept.asked_at),
            written_at: text::time(kept.written_at),
            duration: duration::format(kept.took_ms),
            attempt: kept.attempt,
            bytes: kept.bytes,
            progress: duration::format(kept.progress_ms),
        }
    }
}

impl CheckpointInProgressView {
    fn new(writing: &CheckpointInProgress, name: NameLookup<'_>) -> Self {
        Self {
            number: writing.number,
            directory: writing.directory.clone(),
            requested_at: text::time(writing.asked_at),
            times_out_at: text::time(writing.until),
            extended: writing.extended,
            ranks_written: u32::try_from(writing.written.len()).unwrap_or(u32::MAX),
            release_reason: match &writing.then {
                AfterCheckpoint::GoOn => None,
                AfterCheckpoint::MakeRoom { reason } => Some(reason.text(name)),
                AfterCheckpoint::Suspend { by } => {
                    let by = by.clone();
                    Some(MoveReason::Asked { by }.to_string())
                }
            },
        }
    }
}

impl CheckpointsView {
    /// Returns `None` for an allocation for which no checkpoint was ever requested.
    pub(super) fn of(
        progress: &AllocationProgress,
        sight: WorkloadAccess,
        name: NameLookup<'_>,
    ) -> Option<Self> {
        (progress.checkpoints > 0).then(|| Self {
            requested: progress.checkpoints,
            failed: progress.failed_checkpoints,
            last_error: (progress.failed_because.clone()).filter(|_| sight == WorkloadAccess::Full),
            last: progress.kept.as_ref().map(Into::into),
            in_progress: progress
                .writing
                .as_deref()
                .map(|writing| CheckpointInProgressView::new(writing, name)),
        })
    }
}

impl From<&WaitsFor> for WaitsForView {
    fn from(waits: &WaitsFor) -> Self {
        Self {
            allocations: waits.allocations.iter().copied().collect(),
            mutex: waits.mutex,
        }
    }
}
