//! The solver: which pending allocations start now, on which nodes, and why the others wait.
//!
//! It is a function of a [`ClusterView`], a [`Policy`] and a time. It knows no clock, no
//! randomness, no file and no network, and never learns what became of a plan except through the
//! next view; the quorum judges every placement again. The same solver runs live, in replay and
//! in tests.
//!
//! A view is one vCluster's: its nodes, its queue, what runs there, and the limits above its
//! projects. Jobs are served by class, then by age. Each goes to the fewest topology groups that
//! hold it (the tightest, so that large gaps stay for large jobs), weighed against one conformance
//! group. The first blocked job gets a [`Reservation`]; later ones start only where they do not
//! delay it, judged on the very nodes. Every job that waits gets an [`Explanation`].
//!
//! Begin with [`Planner`], then `cycle.rs`, whose steps read as a list.
#![forbid(unsafe_code)]

mod bits;
mod choose;
mod cycle;
mod eligible;
mod explain;
mod headroom;
mod index;
mod plan;
mod planner;
mod policy;
mod rank;
#[cfg(test)]
mod tests;
mod timeline;
mod view;

pub use explain::{Blocker, Constraint, Explanation, Step};
pub use plan::{Layout, Placement, Plan, Reservation};
pub use planner::Planner;
pub use policy::{InvalidWeight, Policy, Rank, RawWeights, Weights};
pub use view::{
    ClusterView, ConformanceKey, Delta, Health, LevelView, Liveness, NodeFacts, NodeView, Owner,
    PendingView, RunningView,
};
