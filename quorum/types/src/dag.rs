//! Graphs of work: members that begin when others have ended.

use crate::{
    AllocationId, ProjectPath, Revision, UnixMillis, id::DagId, spec::AllocationSpec,
    terms::Condition,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most members of one graph, unless the site says fewer.
pub const MAX_MEMBERS: usize = 1000;
/// Longest name of a graph or a member, bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Edges of one graph.
pub const MAX_EDGES: usize = 100_000;

/// A graph as somebody asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DagSpec {
    /// A name for people; may be empty.
    pub name: String,
    /// At least one.
    pub members: Vec<MemberSpec>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSpec {
    /// Its name, unique in the graph.
    pub name: String,
    /// What runs. Its own dependencies may name allocations outside the graph.
    pub spec: AllocationSpec,
    /// The members that it comes after.
    pub after: Vec<Edge>,
}

/// One member after another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The member that comes before.
    pub member: String,
    /// How it must have ended.
    pub condition: Condition,
}

/// A graph as it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dag {
    /// Its number. Members that are no arrays have those right behind it.
    pub id: DagId,
    /// As asked for.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// The project of its first member.
    pub project: ProjectPath,
    /// In the order in which they were submitted.
    pub members: Vec<Member>,
    /// Where it stands.
    pub state: DagState,
    /// When it was submitted.
    pub submitted_at: UnixMillis,
    /// When its last member ended.
    pub ended_at: Option<UnixMillis>,
    /// Members that have not ended.
    pub unfinished: u32,
    /// Who cancelled it.
    pub cancelled_by: Option<String>,
    /// The first member that failed without another that comes after its failure.
    pub failed: Option<String>,
    /// Last change.
    pub revision: Revision,
}

/// What changes of a graph while it runs. Its members do not, and are many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Members that have not ended.
    pub unfinished: u32,
    /// Who cancelled it.
    pub cancelled_by: Option<String>,
    /// The first member that failed without another that comes after its failure.
    pub failed: Option<String>,
}

impl Dag {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            unfinished: self.unfinished,
            cancelled_by: self.cancelled_by.clone(),
            failed: self.failed.clone(),
        }
    }

    /// It is so far now.
    pub fn advance(&mut self, progress: Progress, revision: Revision) {
        let Progress {
            unfinished,
            cancelled_by,
            failed,
        } = progress;
        (self.unfinished, self.cancelled_by, self.failed) = (unfinished, cancelled_by, failed);
        self.revision = revision;
    }
}

/// A member as it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What it is called.
    pub name: String,
    /// Its allocation.
    pub allocation: AllocationId,
    /// The members that it comes after: their places in the list.
    pub after: Vec<(u32, Condition)>,
}

/// Where a graph stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DagState {
    /// A member has not ended.
    Running,
    /// All have ended, and what failed was expected by another member.
    Completed,
    /// All have ended, and one failed that nobody expected.
    Failed,
    /// All have ended, and somebody cancelled it, or one of them.
    Cancelled,
}

impl DagState {
    /// All of them.
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
