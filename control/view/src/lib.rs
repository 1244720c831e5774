//! View of a cluster by one control: committed records, the site's sources, gossip, pings and BMC readings, with the
//! conformance of each node, the drift from baselines, and the solver input derived from them.
//!
//! All of it is pure: no clock, no file, no network, and no type of gossip or REST. Two levels:
//! * [`BaseView`] has the inputs of scheduling. `control` and `replay` build it from the same events, and derive solver
//!   input from it by the same functions: [`full_input`] for a new planner, [`Changes::delta`] for a running one. What
//!   else is known of a node differs between the two, so the node type is a parameter ([`ViewNode`]).
//! * [`View`] is that of control. Its nodes are [`NodeEntry`]s; [`View::settle`] derives their conformance, and
//!   [`compare`] compares them with baselines and cohorts.
#![forbid(unsafe_code)]

pub mod baselines;
mod cluster;
mod comparison;
pub mod drift;
pub mod node;
pub mod plan;
mod planning;
pub mod settings;
mod solver;
pub mod standing;
pub mod state;
#[cfg(test)]
mod testing;

pub use cluster::{PingOutcome, View};
pub use comparison::compare;
pub use node::{GossipedNode, NodeEntry};
pub use plan::{LastPlan, NotAssigned, Planned};
pub use planning::plan_of;
pub use settings::movement::{Movement, PreemptionRules};
pub use solver::{
    Changes, HomeRule, affects_plan, delta, elements, full_input, is_service_minimum, pending,
    remaining_bandwidth, waiting,
};
pub use standing::{TenantStanding, TenantStandings, excess_allocations, tenants};
pub use state::{ArrayNames, BaseView, FormerValue, Hours, Inputs, Promised, UsedTime, ViewNode};
