//! Reads of the replicated state.

use crate::{
    Allocation, AllocationId, AllocationState, Envelope, Event, ProjectPath, Refusal, Revision,
    UnixMillis, VoterId, node::Node, project::Project,
};
use serde::{Deserialize, Serialize};

/// A linearizable question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// The hot state: tree, nodes, allocations that are not terminal.
    Hot,
    /// One allocation, terminal ones included.
    Allocation {
        /// Which.
        id: AllocationId,
    },
    /// Allocations in id order.
    Allocations {
        /// Only ids above this one.
        after: AllocationId,
        /// At most so many.
        limit: u32,
        /// Only in these states; empty means all.
        states: Vec<AllocationState>,
        /// Only within this project.
        within: Option<ProjectPath>,
    },
    /// How many allocations are in each state.
    Counts,
    /// Only the revision.
    Revision,
    /// Would this command be applied now? Judged as `apply` does; changes nothing.
    Check {
        /// The command.
        envelope: Box<Envelope>,
    },
}

/// Everything a control service folds events onto.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// The revision it shows.
    pub revision: Revision,
    /// State time at that revision.
    pub at: UnixMillis,
    /// All projects, parents before children.
    pub projects: Vec<Project>,
    /// All nodes by name.
    pub nodes: Vec<Node>,
    /// Allocations that are not terminal, by id.
    pub allocations: Vec<Allocation>,
}

/// The answer to a [`Query`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Query::Hot`].
    Hot(Box<Hot>),
    /// To [`Query::Allocation`].
    Allocation(Option<Box<Allocation>>),
    /// To [`Query::Allocations`].
    Allocations(Vec<Allocation>),
    /// To [`Query::Counts`].
    Counts(Vec<(AllocationState, u64)>),
    /// To [`Query::Revision`].
    Revision(Revision),
    /// To [`Query::Check`]: the revision it was judged at, or the refusal.
    Check(Result<Revision, Refusal>),
}

/// One step of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchItem {
    /// Events in order, whole revisions at a time.
    Events(Vec<Event>),
    /// Nothing happened up to this revision; sent now and then so that a silent watch is seen alive.
    Idle(Revision),
    /// The revision asked for is no longer kept: read [`Query::Hot`] and watch from there.
    Compacted {
        /// Oldest revision that can still be watched from.
        oldest: Revision,
    },
}

/// A member's own, not linearizable, account of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its number.
    pub id: VoterId,
    /// Who it believes leads.
    pub leader: Option<VoterId>,
    /// Raft term.
    pub term: u64,
    /// Last applied log index.
    pub applied_index: u64,
    /// Revision of its state.
    pub revision: Revision,
    /// All members with their mesh addresses.
    pub members: Vec<(VoterId, String)>,
}
