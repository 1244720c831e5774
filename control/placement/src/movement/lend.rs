//! Node lending: which nodes vClusters lend to each other, and which are returned.
//!
//! [`decide`] considers all vClusters at once: jobs that wait for nodes, and nodes to spare. The decision has four
//! steps, in this order:
//!
//! 1. **Own nodes.** A job that would fit on its vCluster's own nodes without any loans gets own nodes. These are idle
//!    at home, lent and idle, or already reclaimed. Missing nodes are reclaimed from borrowers at the lowest cost. All
//!    such jobs are served before any node is lent.
//! 2. **Alternatives.** Such a job may be able to start at once on unused borrowed nodes of its vCluster, or on further
//!    borrowed nodes. Then no other job is stopped.
//! 3. **Loans.** A job that does not fit on its vCluster's own nodes uses the available ones and borrows the rest. The
//!    vCluster with the smallest backlog lends first, and either all missing nodes are lent or none.
//! 4. **Returns.** Borrowed nodes that are idle and of no use to the borrower are returned.
//!
//! Guarantee to the owner: a job that would start now if its vCluster had lent nothing has all its nodes by
//! [`loan_release_at`], or sooner. For that guarantee, a planner counts a lent node as free from then on, and no node
//! in a plan is lent. Jobs that cannot be stopped are kept off borrowed nodes ([`may_borrow`]): no node is lent for
//! such a job, and a planner places it on none ([`PendingView::home_only`]).

mod balance;
mod reclaim;
mod steps;
#[cfg(test)]
mod tests;

use super::preempt::{HolderFacts, Protection, by_job_properties};
use crate::{
    priority::policy::Policy as Solver,
    view::{ClusterView, PendingView},
};
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, VclusterName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Lending policy of a vCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether the vCluster lends nodes.
    pub allow_lending: bool,
    /// Maximum number of nodes lent at once; `None`: all idle nodes.
    pub lending_limit: Option<u32>,
    /// Whether the vCluster borrows nodes.
    pub allow_borrowing: bool,
    /// Maximum number of nodes borrowed at once; `None`: any number.
    pub borrowing_limit: Option<u32>,
    /// Grace before the job on a reclaimed node of this vCluster is stopped, milliseconds.
    pub return_grace_ms: u64,
}

impl Default for Policy {
    /// Lends all idle nodes, borrows any number, one minute of grace.
    fn default() -> Self {
        Self {
            allow_lending: true,
            lending_limit: None,
            allow_borrowing: true,
            borrowing_limit: None,
            return_grace_ms: 60_000,
        }
    }
}

/// Error of a lending limit above the number of owned nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "lending_limit {given} exceeds the {owned} nodes of the vCluster; \
     set at most {owned}, or remove the limit"
)]
pub struct InvalidLimit {
    /// Configured limit.
    pub given: u32,
    /// Number of owned nodes.
    pub owned: u32,
}

impl Policy {
    /// Checks the limits of a vCluster with `owned` nodes.
    ///
    /// # Errors
    /// The lending limit exceeds `owned`.
    pub fn check(&self, owned: u32) -> Result<(), InvalidLimit> {
        match self.lending_limit {
            Some(given) if given > owned => Err(InvalidLimit { given, owned }),
            _ => Ok(()),
        }
    }
}

/// Times shared by all vClusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// Longest time from a checkpoint request to its end, milliseconds. The time includes deferrals and extensions if
    /// jobs on reclaimed nodes are granted any.
    pub checkpoint_timeout_ms: u64,
    /// Remaining time of a job, milliseconds, below which the job is not stopped.
    pub near_completion_ms: u64,
    /// Shortest time that a lent node stays with the borrower although idle, milliseconds. The time equals the longest
    /// scheduling cycle, so that the borrower has planned with the node once. The owner may reclaim the node earlier. A
    /// reclaim that no job needs any more also stays in force for this time.
    pub settle_ms: u64,
}

impl Default for Timing {
    /// Checkpoint timeout 10 min, near completion 5 min, settling time 30 s.
    fn default() -> Self {
        Self {
            checkpoint_timeout_ms: 600_000,
            near_completion_ms: 300_000,
            settle_ms: 30_000,
        }
    }
}

/// Owner and present user of a node, with its part in plans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOwnership {
    /// vCluster that owns the node.
    pub home: VclusterName,
    /// vCluster that uses the node now.
    pub current: VclusterName,
    /// Pending job of the current vCluster for which the node is promised or planned, by a placement or a reservation.
    pub planned_for: Option<AllocationId>,
    /// Whether the node is promised to the job `planned_for`: victims are being preempted on this node, or on other
    /// nodes that the job waits for.
    pub is_promised: bool,
    /// Time of the last loan or return.
    pub moved_at: UnixMillis,
    /// Time of the reclaim, if the node is reclaimed. A reclaimed node counts as usable although the view has it out of
    /// service, so there must be no other reason against its use.
    pub reclaimed_at: Option<UnixMillis>,
}

/// Lending policy and waiting jobs of one vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VclusterLending {
    /// Lending policy.
    pub policy: Policy,
    /// GPU time requested by the queue of the vCluster, in milliseconds of one GPU.
    pub backlog_gpu_ms: u128,
    /// Jobs that wait only for nodes, in queue order.
    pub wanting: Vec<WaitingJob>,
}

/// A job that waits for nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingJob {
    /// Id of the job, which is among the pending jobs of the view.
    pub id: AllocationId,
    /// Whether the job has a checkpoint mode.
    pub saves: bool,
    /// Whether the job must not use borrowed nodes: a service, for its minimum of nodes.
    pub home_only: bool,
}

/// Input of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Nodes of all vClusters, jobs that wait for nodes, and running jobs.
    pub view: &'a ClusterView,
    /// Settings for choosing node sets and for the weight of waiting.
    pub solver: &'a Solver,
    /// Owner and present user of each node. A node without an entry is not moved.
    pub places: &'a BTreeMap<NodeId, NodeOwnership>,
    /// All vClusters that lend or borrow.
    pub vclusters: &'a BTreeMap<VclusterName, VclusterLending>,
    /// Jobs that hold nodes. A job without an entry is not stopped.
    pub work: &'a BTreeMap<AllocationId, HolderFacts>,
    /// Times shared by all vClusters.
    pub timing: &'a Timing,
    /// Present time.
    pub now: UnixMillis,
}

/// Result of a decision.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LendingMoves {
    /// Idle nodes to lend.
    pub loans: Vec<Loan>,
    /// Idle nodes to return.
    pub returns: Vec<NodeReturn>,
    /// Nodes in use to reclaim.
    pub reclaims: Vec<Reclaim>,
    /// Reclaimed nodes that are still in use and that no job needs any more.
    pub withdrawn: Vec<NodeId>,
    /// Jobs for which nothing was borrowed, with the reason.
    pub refused: BTreeMap<AllocationId, BorrowRefusal>,
}

impl LendingMoves {
    /// Whether no node moves.
    pub fn is_empty(&self) -> bool {
        let none_come = self.returns.is_empty() && self.reclaims.is_empty();
        self.loans.is_empty() && none_come && self.withdrawn.is_empty()
    }
}

/// A node to lend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    /// Node to lend.
    pub node: NodeId,
    /// vCluster that owns the node.
    pub owner: VclusterName,
    /// vCluster that gets the node.
    pub borrower: VclusterName,
    /// Job for which the node is lent.
    pub job: AllocationId,
}

/// An idle node to return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReturn {
    /// Node to return.
    pub node: NodeId,
    /// vCluster that owns the node.
    pub owner: VclusterName,
    /// vCluster that had borrowed the node.
    pub borrower: VclusterName,
    /// Job of the owner that needs the node; `None`: the borrower has no use for it.
    pub job: Option<AllocationId>,
}

/// Nodes to reclaim from a job of a borrower.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reclaim {
    /// Job that holds the nodes.
    pub from: AllocationId,
    /// vCluster that owns the nodes.
    pub owner: VclusterName,
    /// vCluster that has borrowed the nodes.
    pub borrower: VclusterName,
    /// Nodes that are needed, although the job releases all its nodes.
    pub nodes: Vec<NodeId>,
    /// Jobs of the owner that need the nodes.
    pub jobs: BTreeSet<AllocationId>,
    /// Manner in which the nodes become free.
    pub how: ReleaseManner,
    /// Cost of the reclaim, GPU-seconds.
    pub cost: f64,
    /// Latest time at which the nodes are back.
    pub back_by: UnixMillis,
}

/// Manner in which nodes in use become free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseManner {
    /// The job is not stopped: it ends before the nodes must be back, or is already being stopped.
    LetEnd,
    /// After the grace, the job writes a checkpoint, if it can, and is stopped.
    Stop,
}

/// Reason for which nothing is borrowed for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum BorrowRefusal {
    /// The job could not be stopped when the owner reclaims its node.
    #[error("the job could not be stopped when the owner reclaims its node ({})", .0.as_str())]
    Unstoppable(Protection),
    /// The walltime of the job is so short that it would always be near its end.
    #[error(
        "the walltime of the job is too short for a borrowed node ({walltime_ms} of {least_ms} ms)"
    )]
    Short {
        /// Walltime of the job.
        walltime_ms: u64,
        /// Walltime that the job must exceed.
        least_ms: u64,
    },
    /// The job must run on nodes of its own vCluster.
    #[error("the job runs only on nodes of its own vCluster")]
    HomeOnly,
    /// The vCluster of the job does not borrow.
    #[error("its vCluster does not borrow")]
    NotAllowed,
    /// The vCluster of the job would exceed its borrowing limit.
    #[error(
        "the vCluster would exceed its borrowing_limit (current: {borrowed}, requested: {missing}, \
         limit: {limit})"
    )]
    Limit {
        /// Nodes missing.
        missing: u32,
        /// Nodes borrowed already.
        borrowed: u32,
        /// Borrowing limit.
        limit: u32,
    },
    /// Too few spare nodes fit the job, so none is lent.
    #[error("the job needs {missing} more nodes, and {offered} spare nodes fit")]
    TooFew {
        /// Nodes missing.
        missing: u32,
        /// Spare nodes that fit, within the lending limits of their owners.
        offered: u32,
    },
}

/// Time from which a planner of the owner may count a lent node as free if it were reclaimed at `now`. This time is
/// `now` plus the owner's grace ([`Policy::return_grace_ms`]) plus the longest time for a checkpoint
/// ([`Timing::checkpoint_timeout_ms`]), both in milliseconds.
pub fn loan_release_at(now: UnixMillis, grace_ms: u64, checkpoint_timeout_ms: u64) -> UnixMillis {
    now.after(grace_ms).after(checkpoint_timeout_ms)
}

/// Checks whether a job may be placed on borrowed nodes: not if it could not be stopped for the owner.
///
/// # Errors
/// [`BorrowRefusal`] with the reason.
pub fn may_borrow(
    job: &PendingView,
    saves: bool,
    near_completion_ms: u64,
) -> Result<(), BorrowRefusal> {
    let nature = (job.class, job.sensitive, saves);
    may_borrow_before_submission(nature, job.walltime_ms, near_completion_ms)
}

/// Like [`may_borrow`], for a job that is not submitted yet: class, whether it is sensitive, whether it writes
/// checkpoints, and its walltime in milliseconds.
///
/// # Errors
/// [`BorrowRefusal`] with the reason.
pub fn may_borrow_before_submission(
    (class, sensitive, saves): (u8, bool, bool),
    walltime_ms: Option<u64>,
    near_completion_ms: u64,
) -> Result<(), BorrowRefusal> {
    if let Some(protection) = by_job_properties(class, sensitive, saves) {
        return Err(BorrowRefusal::Unstoppable(protection));
    }
    match walltime_ms {
        Some(walltime_ms) if walltime_ms <= near_completion_ms => Err(BorrowRefusal::Short {
            walltime_ms,
            least_ms: near_completion_ms,
        }),
        _ => Ok(()),
    }
}

/// Decides which nodes to lend, return and reclaim; see the module documentation.
pub fn decide(input: Input<'_>) -> LendingMoves {
    steps::decide(input)
}
