//! The solver: which pending allocations start now, on which nodes, and why the others wait.
//!
//! It is a function of a [`ClusterView`], a [`Policy`] and a time. It knows no clock, no
//! randomness, no file and no network, and never learns what became of a plan except through the
//! next view; the quorum judges every placement again. The same solver runs live, in replay and
//! in tests.
//!
//! A view is one vCluster's: its nodes, its queue, what runs there, the limits above its projects, and
//! what is left of power and bandwidth. Jobs are served by score ([`Factors`], [`Policy`]). Each goes to
//! the fewest topology groups that hold it (the tightest, so that large gaps stay for large jobs), weighed
//! against one conformance group. The first blocked jobs get a [`Reservation`]; later ones start only
//! where they do not delay it, judged on the very nodes, and on power and bandwidth over time. Nodes that
//! administrators keep for some are kept clear for as long (`windows.rs`). Every job that waits gets an
//! [`Explanation`].
//!
//! Begin with [`Planner`], then `cycle.rs`, whose steps read as a list.
#![forbid(unsafe_code)]

mod ahead;
mod aheads;
mod bits;
mod choose;
mod cycle;
mod eligible;
mod explain;
pub mod factors;
mod floor;
mod fraction;
mod gpu_model;
mod headroom;
mod index;
mod machine;
pub mod movement;
mod open;
mod order;
mod paid;
mod plan;
mod planner;
mod policy;
mod pool;
mod possible;
mod power;
mod profile;
mod queue;
pub mod record;
mod rivals;
mod storage;
#[cfg(test)]
mod tests;
mod view;
mod waiting;
mod windows;

pub use explain::{Blocker, Constraint, Explanation, Step};
pub use factors::{Factors, Score, budget as budget_factor};
pub use floor::Floors;
pub use fraction::{Fraction, InvalidFraction};
pub use plan::{Layout, Placement, Plan, Reservation};
pub use planner::Planner;
pub use policy::{InvalidWeight, Policy, Profile, RawWeights, Reservations, Weights};
pub use possible::{Impossible, Within, check_possible, check_possible_within};
pub use queue::UNBOUNDED_WALLTIME_MS;
pub use view::{
    Budget, Charge, ClusterView, ConformanceKey, Delta, DomainView, Health, LevelView, Liveness,
    LoanView, NodeFacts, NodeView, Owner, PendingView, RunningView, StorageView, TenantView,
};
pub use waiting::Waiting;
