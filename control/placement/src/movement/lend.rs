//! Which nodes one vCluster lends another, and which come back.
//!
//! [`decide`] looks at all vClusters at once: who has jobs that wait for nodes, and who has nodes to spare. It
//! does four things in this order:
//!
//! 1. **What is one's own.** A job that would fit on its vCluster's own nodes, were its loans back, gets them:
//!    those that are idle at home, those that are lent and idle, those that come back already. What is missing
//!    still is taken back from borrowers, as cheaply as can be. All such jobs are served before anything is lent.
//! 2. **Sooner otherwise.** Where such a job can start at once with nodes that its vCluster has borrowed and does
//!    not use, or can borrow, nobody is stopped for it.
//! 3. **Loans.** A job that does not fit on its vCluster's own nodes gets what it has and borrows the rest: of
//!    whoever has the smallest backlog first, and all that is missing or nothing.
//! 4. **Home.** What is borrowed, idle and of no use to its borrower goes home.
//!
//! What that promises the owner: a job that would start now, had its vCluster lent nothing, has all its nodes by
//! [`loan_release_at`], or sooner. For that a planner counts a node that is lent as free from then on, nothing
//! is lent that a planner has planned with, and work that nobody may stop is kept off borrowed nodes
//! ([`may_borrow`]): here none are lent for it, and a planner places it on none
//! ([`PendingView::home_only`]).

mod ledger;
mod reclaim;
mod steps;
#[cfg(test)]
mod tests;

use super::preempt::{Protection, Work, by_nature};
use crate::{
    policy::Policy as Solver,
    view::{ClusterView, PendingView},
};
use lattice_quorum_types::{AllocationId, NodeId, UnixMillis, VclusterName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a vCluster lends and borrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether it lends.
    pub allow_lending: bool,
    /// Most of its nodes that are lent at once; `None`: all that are idle.
    pub lending_limit: Option<u32>,
    /// Whether it borrows.
    pub allow_borrowing: bool,
    /// Most nodes that it has borrowed at once; `None`: any number.
    pub borrowing_limit: Option<u32>,
    /// How long a borrower keeps a node that is asked back before its work is stopped, milliseconds.
    pub return_grace_ms: u64,
}

impl Default for Policy {
    /// All that is idle, any number, one minute.
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

/// A limit that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "lending_limit is {given}, and the vCluster has {owned} nodes; say at most {owned}, or nothing for all"
)]
pub struct InvalidLimit {
    /// As given.
    pub given: u32,
    /// Nodes of its own.
    pub owned: u32,
}

impl Policy {
    /// Checks the limits of a vCluster with so many nodes of its own.
    ///
    /// # Errors
    /// It would lend more than it has.
    pub fn check(&self, owned: u32) -> Result<(), InvalidLimit> {
        match self.lending_limit {
            Some(given) if given > owned => Err(InvalidLimit { given, owned }),
            _ => Ok(()),
        }
    }
}

/// Times that all vClusters share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// How long work may take at the longest from being asked for a checkpoint, milliseconds: with deferrals and
    /// extensions, where work whose node is asked back is granted any.
    pub checkpoint_timeout_ms: u64,
    /// Work so near its end is not stopped, milliseconds.
    pub near_completion_ms: u64,
    /// A node that was lent stays for so long though nothing runs on it, milliseconds: as long as the longest
    /// scheduling cycle, so that the borrower has planned with it once. Its owner may have it before. As long it
    /// stays asked back though nobody wants it any more.
    pub settle_ms: u64,
}

impl Default for Timing {
    /// 10 min, 5 min, 30 s.
    fn default() -> Self {
        Self {
            checkpoint_timeout_ms: 600_000,
            near_completion_ms: 300_000,
            settle_ms: 30_000,
        }
    }
}

/// Whose a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The vCluster it belongs to.
    pub home: VclusterName,
    /// The one that uses it now.
    pub current: VclusterName,
    /// The pending job of that one that it is promised to, or that its plan names it for: a placement, or a
    /// reservation.
    pub planned_for: Option<AllocationId>,
    /// It is promised to that job: others make room, there and on all nodes that it waits for.
    pub is_promised: bool,
    /// When it was last lent or returned.
    pub moved_at: UnixMillis,
    /// Since when it is asked back. Nothing else may speak against its use: it is counted on, though the view
    /// has it out of service.
    pub recalled_at: Option<UnixMillis>,
}

/// One vCluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What it lends and borrows.
    pub policy: Policy,
    /// What waits in its queue, in milliseconds of one GPU.
    pub backlog_gpu_ms: u128,
    /// Its jobs that wait for nodes and nothing else, in the order of its queue.
    pub wanting: Vec<Wanting>,
}

/// A job that waits for nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanting {
    /// Which; it is among the pending ones of the view.
    pub id: AllocationId,
    /// It has a checkpoint mode.
    pub saves: bool,
    /// It takes no borrowed nodes: a service, for the least that it runs on.
    pub home_only: bool,
}

/// What a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The nodes of all vClusters, their jobs that want nodes, and what runs.
    pub view: &'a ClusterView,
    /// How node sets are chosen, and what waiting counts.
    pub solver: &'a Solver,
    /// Whose each node is. What is not here stays where it is.
    pub places: &'a BTreeMap<NodeId, Place>,
    /// All that lend or borrow.
    pub vclusters: &'a BTreeMap<VclusterName, Member>,
    /// Work that holds nodes. Who is not here is not stopped.
    pub work: &'a BTreeMap<AllocationId, Work>,
    /// Times that all share.
    pub timing: &'a Timing,
    /// The time.
    pub now: UnixMillis,
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    /// Idle nodes that change hands.
    pub loans: Vec<Loan>,
    /// Idle nodes that go home.
    pub returns: Vec<Return>,
    /// Nodes in use that are asked back.
    pub reclaims: Vec<Reclaim>,
    /// Nodes that were asked back, are in use still, and nobody wants any more.
    pub withdrawn: Vec<NodeId>,
    /// Jobs for which nothing was borrowed, and why.
    pub refused: BTreeMap<AllocationId, NotLent>,
}

impl Moves {
    /// Whether no node moves.
    pub fn is_empty(&self) -> bool {
        let none_come = self.returns.is_empty() && self.reclaims.is_empty();
        self.loans.is_empty() && none_come && self.withdrawn.is_empty()
    }
}

/// A node that is lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    /// Which.
    pub node: NodeId,
    /// Whose it is.
    pub owner: VclusterName,
    /// Who gets it.
    pub borrower: VclusterName,
    /// The job that it is for.
    pub job: AllocationId,
}

/// An idle node that goes home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Return {
    /// Which.
    pub node: NodeId,
    /// Whose it is.
    pub owner: VclusterName,
    /// Who had it.
    pub borrower: VclusterName,
    /// The owner's job that wants it; `None`: its borrower has no use for it.
    pub job: Option<AllocationId>,
}

/// Nodes that work of a borrower is asked to give back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reclaim {
    /// The work.
    pub from: AllocationId,
    /// Whose the nodes are.
    pub owner: VclusterName,
    /// Who has them.
    pub borrower: VclusterName,
    /// No more than are needed, though the work gives up all it has.
    pub nodes: Vec<NodeId>,
    /// The owner's jobs that want them.
    pub jobs: BTreeSet<AllocationId>,
    /// How they come free.
    pub how: How,
    /// What that costs, GPU-seconds.
    pub cost: f64,
    /// When they are back at the latest.
    pub back_by: UnixMillis,
}

/// How nodes in use come free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The work is over by then anyway: nobody stops it.
    LetEnd,
    /// After the grace it writes a checkpoint, if it can, and is stopped.
    Stop,
}

/// Why nothing is borrowed for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NotLent {
    /// It could not be stopped when the owner wants its node back.
    #[error("the job could not be stopped for the owner ({})", .0.as_str())]
    Unstoppable(Protection),
    /// It is so short that it would be near its end all the time.
    #[error(
        "the job is as short as what is left alone near its end ({walltime_ms} of {least_ms} ms)"
    )]
    Short {
        /// Its walltime.
        walltime_ms: u64,
        /// It must be longer.
        least_ms: u64,
    },
    /// It takes only nodes of its vCluster's own.
    #[error("the job takes only nodes of its vCluster's own")]
    HomeOnly,
    /// Its vCluster does not borrow.
    #[error("its vCluster does not borrow")]
    NotAllowed,
    /// Its vCluster would have borrowed too much.
    #[error(
        "its vCluster has borrowed {borrowed} nodes, needs {missing} more and may have {limit}"
    )]
    Limit {
        /// Nodes it would need.
        missing: u32,
        /// Nodes it has.
        borrowed: u32,
        /// Nodes it may have.
        limit: u32,
    },
    /// Too few are to spare that fit it: then none is lent.
    #[error("the job needs {missing} nodes more, and {offered} that fit are to spare")]
    TooFew {
        /// Nodes it would need.
        missing: u32,
        /// Nodes it could have.
        offered: u32,
    },
}

/// When a planner of the owner may count a node that is lent as free, were it asked back at `now`: its borrower
/// has the grace, then so long for a checkpoint at the longest ([`Timing::checkpoint_timeout_ms`]), and nothing
/// beyond. Both in milliseconds.
pub fn loan_release_at(now: UnixMillis, grace_ms: u64, checkpoint_timeout_ms: u64) -> UnixMillis {
    now.after(grace_ms).after(checkpoint_timeout_ms)
}

/// Whether a job may be placed on borrowed nodes: not if nobody could stop it for the owner.
///
/// # Errors
/// Why not.
pub fn may_borrow(job: &PendingView, saves: bool, near_completion_ms: u64) -> Result<(), NotLent> {
    let nature = (job.class, job.sensitive, saves);
    may_run_borrowed(nature, job.walltime_ms, near_completion_ms)
}

/// The same of work that is not submitted yet: its class, whether it is sensitive, whether it writes
/// checkpoints, and its walltime in milliseconds.
///
/// # Errors
/// Why not.
pub fn may_run_borrowed(
    (class, sensitive, saves): (u8, bool, bool),
    walltime_ms: Option<u64>,
    near_completion_ms: u64,
) -> Result<(), NotLent> {
    if let Some(protection) = by_nature(class, sensitive, saves) {
        return Err(NotLent::Unstoppable(protection));
    }
    match walltime_ms {
        Some(walltime_ms) if walltime_ms <= near_completion_ms => Err(NotLent::Short {
            walltime_ms,
            least_ms: near_completion_ms,
        }),
        _ => Ok(()),
    }
}

/// Who lends whom what. See the module.
pub fn decide(input: Input<'_>) -> Moves {
    steps::decide(input)
}
