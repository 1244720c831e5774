//! How an allocation has fared, as shown: to what it belongs, what was done to it, and what of its work is
//! kept.

use super::Sight;
use crate::{duration, text};
use lattice_quorum_types::{
    AllocationId,
    array::IndexSet,
    course::{AfterCheckpoint, Course, DagPlace, Element, Kept, MoveReason, Tally, Writing},
    terms::{Dependency, WaitsFor},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One allocation after another, as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DependencyView {
    /// How that one must have ended: `success`, `failure`, `any` or `corresponding`.
    pub condition: String,
    /// Which one.
    #[schema(value_type = u64)]
    pub on: AllocationId,
}

/// How many elements of an array are where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TallyView {
    /// All of them.
    pub elements: u32,
    /// Wait for nodes.
    pub pending: u32,
    /// Wait for the same index of another array.
    pub blocked: u32,
    /// Have an allocation of their own that has not ended.
    pub running: u32,
    /// Completed.
    pub completed: u32,
    /// Failed.
    pub failed: u32,
    /// Were cancelled, before they had nodes or later.
    pub cancelled: u32,
}

/// An element of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElementView {
    /// Which array.
    #[schema(value_type = u64)]
    pub array: AllocationId,
    /// Its index, as in `LATTICE_ARRAY_INDEX`.
    pub index: u32,
}

/// A member of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DagPlaceView {
    /// Which graph.
    pub dag: u64,
    /// What it is called there.
    pub member: String,
}

/// A checkpoint that work can go on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptView {
    /// Its number.
    pub number: u32,
    /// Where it is.
    pub directory: String,
    /// When it was asked for: what was done since is not in it.
    pub asked_at: String,
    /// When it was whole.
    pub written_at: String,
    /// How long that took.
    pub took: String,
    /// The attempt that wrote it.
    pub attempt: u32,
    /// Bytes, where every rank said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long the work had run then, in all attempts that are in it.
    pub progress: String,
}

/// A checkpoint that is being written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WritingView {
    /// Its number.
    pub number: u32,
    /// Where it goes.
    pub directory: String,
    /// Since when.
    pub asked_at: String,
    /// When it is given up.
    pub until: String,
    /// It was given more time once.
    pub extended: bool,
    /// Ranks that have written theirs.
    pub ranks_written: u32,
    /// Why it makes room then; absent: it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub makes_room: Option<String>,
}

/// The checkpoints of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointsView {
    /// How many were asked for.
    pub asked: u32,
    /// How many of them came to nothing.
    pub failed: u32,
    /// Why the last of these did; absent for who may not see what runs, whose words it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_because: Option<String>,
    /// The last one that is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptView>,
    /// The one that is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writing: Option<WritingView>,
}

/// For whom it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitsForView {
    /// Those it comes after that have not ended.
    #[schema(value_type = Vec<u64>)]
    pub allocations: Vec<AllocationId>,
    /// The one that has its mutex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub mutex: Option<AllocationId>,
}

fn count(all: &IndexSet) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

impl From<&Tally> for TallyView {
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

impl From<&Dependency> for DependencyView {
    fn from(dependency: &Dependency) -> Self {
        Self {
            condition: dependency.condition.to_string(),
            on: dependency.on,
        }
    }
}

impl From<&Element> for ElementView {
    fn from(element: &Element) -> Self {
        Self {
            array: element.array,
            index: element.index,
        }
    }
}

impl From<&DagPlace> for DagPlaceView {
    fn from(place: &DagPlace) -> Self {
        Self {
            dag: place.dag.0,
            member: place.member.clone(),
        }
    }
}

impl From<&Kept> for KeptView {
    fn from(kept: &Kept) -> Self {
        Self {
            number: kept.number,
            directory: kept.directory.clone(),
            asked_at: text::time(kept.asked_at),
            written_at: text::time(kept.written_at),
            took: duration::format(kept.took_ms),
            attempt: kept.attempt,
            bytes: kept.bytes,
            progress: duration::format(kept.progress_ms),
        }
    }
}

impl From<&Writing> for WritingView {
    fn from(writing: &Writing) -> Self {
        Self {
            number: writing.number,
            directory: writing.directory.clone(),
            asked_at: text::time(writing.asked_at),
            until: text::time(writing.until),
            extended: writing.extended,
            ranks_written: u32::try_from(writing.written.len()).unwrap_or(u32::MAX),
            makes_room: match &writing.then {
                AfterCheckpoint::GoOn => None,
                AfterCheckpoint::MakeRoom { reason } => Some(reason.to_string()),
                AfterCheckpoint::Suspend { by } => {
                    let by = by.clone();
                    Some(MoveReason::Asked { by }.to_string())
                }
            },
        }
    }
}

impl CheckpointsView {
    /// `None` of work that was never asked for one.
    pub(super) fn of(course: &Course, sight: Sight) -> Option<Self> {
        (course.checkpoints > 0).then(|| Self {
            asked: course.checkpoints,
            failed: course.failed_checkpoints,
            failed_because: (course.failed_because.clone()).filter(|_| sight == Sight::Full),
            kept: course.kept.as_ref().map(Into::into),
            writing: course.writing.as_deref().map(Into::into),
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
