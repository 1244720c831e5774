//! Cluster view for scheduling: committed records, values from the site's sources, and the solver input derived from
//! both.
//!
//! `control` and `replay` build the same [`BaseView`] from the same events, and derive solver input from the view by
//! the same functions: [`whole`] for a new planner, [`Changes::delta`] for a running one. The two have different facts
//! about a node apart from its record, so the node type is a parameter ([`ViewNode`]).
//!
//! The crate reads no clock and no file, and uses neither gossip nor REST types. Begin with [`BaseView`], then
//! [`Changes`].
#![forbid(unsafe_code)]

pub mod settings;
mod solver;
pub mod standing;
pub mod state;

pub use settings::movement::{Movement, Rules};
pub use solver::{
    Changes, HomeRule, changes, delta, elements, is_least_of_service, left, pending, waiting, whole,
};
pub use standing::{TenantStanding, TenantStandings, bursts, tenants};
pub use state::{BaseView, FormerValue, Hours, Inputs, Promised, UsedTime, ViewNode};
