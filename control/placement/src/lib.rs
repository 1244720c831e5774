//! Placement solver: decides which pending allocations start now, on which nodes, and why the others wait.
//!
//! The solver is a function of a [`ClusterView`], a [`Policy`] and a time. It uses no clock, randomness, files or
//! network. The outcome of a plan reaches the solver only through the next view; the quorum checks every placement
//! again. The same solver runs live, in replay and in tests.
//!
//! A view covers one vCluster: its nodes, its queue, the running allocations, the limits of its projects, the shares
//! and budgets of tenants, the reservations of operators, and the remaining power and bandwidth. Jobs are served by
//! score ([`Factors`], [`Policy`]). Each job gets the fewest topology groups that hold it (the tightest fit, so that
//! large gaps stay for large jobs), weighed against one conformance group. The first blocked jobs get a
//! [`PlannedReservation`]. Later jobs start only if they do not delay these reservations; the check uses the exact
//! nodes, and power and bandwidth over time. Nodes that operators reserve stay free of other jobs for the time of the
//! reservation (`machine/windows.rs`). Every waiting job gets an [`Explanation`], except in a plan of starts only
//! ([`Planner::plan_starts`]).
//!
//! Start with [`Planner`], then read `cycle.rs`, in which the steps form a list.
#![forbid(unsafe_code)]

mod backfill;
mod bits;
mod capacity;
mod cycle;
mod eligibility;
mod explain;
mod fraction;
mod input;
mod limits;
mod machine;
pub mod movement;
mod plan;
mod planner;
mod priority;
mod queue;
mod queue_order;
pub mod record;
mod selection;
#[cfg(test)]
mod tests;
mod view;
mod walltime;

pub use backfill::earliest_start::StartBounds;
pub use eligibility::feasibility::{
    Infeasible, RequestedReservation, check_possible, check_possible_within,
};
pub use explain::{Blocker, Constraint, Explanation, Step};
pub use fraction::{Fraction, InvalidFraction};
pub use plan::{
    Plan,
    placement::{Layout, Placement, PlannedReservation},
    waiting::WaitingJobs,
};
pub use planner::Planner;
pub use priority::{
    factors::{self, Factors, Score, TenantFactors, budget as budget_factor},
    policy::{InvalidWeight, PlannedReservations, Policy, Profile, RawWeights, Weights},
};
pub use view::{
    Budget, Charge, ClusterView, ConformanceKey, Delta, DomainView, Health, LevelView, Liveness,
    LoanView, NodeFacts, NodeView, Owner, PendingView, RunningView, StorageView, TenantView,
};
pub use walltime::UNBOUNDED_WALLTIME_MS;
