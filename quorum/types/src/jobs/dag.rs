//! DAGs: sets of allocations (members) that depend on the ends of other members.

use crate::{
    AllocationId, ProjectPath, Revision, UnixMillis, id::DagId, spec::AllocationSpec,
    terms::Condition,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest number of members of one DAG. A site may configure fewer.
pub const MAX_MEMBERS: usize = 1000;
/// Longest name of a DAG or a member, bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Largest number of edges of one DAG.
pub const MAX_EDGES: usize = 100_000;

/// A DAG as submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagSpec {
    /// Name for display; may be empty.
    pub name: String,
    /// Members; at least one.
    pub members: Vec<MemberSpec>,
}

/// One member of a submitted DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSpec {
    /// Name of the member, unique in the DAG.
    pub name: String,
    /// Allocation request of the member. Its own dependencies may name allocations outside the DAG.
    pub spec: AllocationSpec,
    /// Dependencies on other members.
    pub after: Vec<Edge>,
}

/// A dependency of one member on another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The earlier member.
    pub member: String,
    /// Condition on the end of the earlier member.
    pub condition: Condition,
}

/// A committed DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dag {
    /// Number of the DAG. The numbers of its members, and of the elements of member arrays, follow this number.
    pub id: DagId,
    /// Name as submitted; may be empty.
    pub name: String,
    /// User that submitted the DAG.
    pub user: String,
    /// Project of the first member.
    pub project: ProjectPath,
    /// Members in the order of submission.
    pub members: Vec<DagMember>,
    /// State of the DAG.
    pub state: DagState,
    /// Time of submission.
    pub submitted_at: UnixMillis,
    /// Time at which the last member ended.
    pub ended_at: Option<UnixMillis>,
    /// Number of members that have not ended.
    pub unfinished: u32,
    /// Principal that cancelled the DAG or one of its members.
    pub cancelled_by: Option<String>,
    /// Name of the first member that counts as a failure of the DAG; see [`DagState::Failed`].
    pub failed: Option<String>,
    /// Revision of the last change.
    pub revision: Revision,
}

/// The part of a DAG that changes while it runs. The members, which are many, do not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagProgress {
    /// Number of members that have not ended.
    pub unfinished: u32,
    /// Principal that cancelled the DAG or one of its members.
    pub cancelled_by: Option<String>,
    /// Name of the first member that counts as a failure of the DAG; see [`DagState::Failed`].
    pub failed: Option<String>,
}

impl Dag {
    /// Returns the present progress.
    pub fn progress(&self) -> DagProgress {
        DagProgress {
            unfinished: self.unfinished,
            cancelled_by: self.cancelled_by.clone(),
            failed: self.failed.clone(),
        }
    }

    /// Replaces the progress and the revision.
    pub fn advance(&mut self, progress: DagProgress, revision: Revision) {
        let DagProgress {
            unfinished,
            cancelled_by,
            failed,
        } = progress;
        (self.unfinished, self.cancelled_by, self.failed) = (unfinished, cancelled_by, failed);
        self.revision = revision;
    }
}

/// A committed member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagMember {
    /// Name of the member.
    pub name: String,
    /// Allocation of the member.
    pub allocation: AllocationId,
    /// Dependencies: the positions in [`Dag::members`] of the members that this one waits for, with the conditions on
    /// their ends.
    pub after: Vec<(u32, Condition)>,
}

/// State of a DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DagState {
    /// At least one member has not ended.
    Running,
    /// All members have ended. Each member that failed had a dependent member that ran on its failure.
    Completed,
    /// All members have ended, and one of them counts as a failure. That member missed its deadline, had an unmet
    /// dependency outside the DAG, or failed and no dependent member ran on the failure.
    Failed,
    /// All members have ended, none counts as a failure, and the DAG or one of its members was cancelled.
    Cancelled,
}

impl DagState {
    /// All states.
    pub const ALL: [Self; 4] = [
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Lower-case name as printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for DagState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
