//! Cluster view for scheduling: the committed records, what the site's sources report, and the solver input derived
//! from both.
//!
//! `control` and `replay` build the same [`BaseView`] from the same events and derive solver input from it by the same
//! functions: [`whole`] for a new planner, [`Changes::delta`] for a running one. What is known of a node apart from its
//! record differs between the two, so the node type is a parameter ([`ViewNode`]).
//!
//! The crate reads no clock and no file, and knows neither gossip nor REST types. Begin with [`BaseView`], then
//! [`Changes`].
#![forbid(unsafe_code)]

mod apply;
mod base;
mod changes;
mod home;
pub mod inputs;
pub mod movement;
pub mod scheduler;
mod site;
mod solver;
pub mod standing;

pub use apply::Former;
pub use base::{BaseView, ViewNode};
pub use changes::Changes;
pub use home::{Home, is_least_of_service};
pub use inputs::Inputs;
pub use movement::{Movement, Rules};
pub use site::{Promised, left, pending};
pub use solver::{changes, delta, elements, waiting, whole};
pub use standing::{Hours, Standing, Standings, bursts, tenants};
