//! Solver input of one vCluster, derived from state, settings and tenant standing: [`whole`] for a new planner,
//! [`Changes::delta`] for a running one.

mod changes;
mod delta;
mod home;
mod loans;
mod pending;
mod sensitive_pool;
mod site;
mod whole;

pub use changes::Changes;
pub use delta::{changes, delta};
pub use home::{HomeRule, is_least_of_service};
pub use pending::{elements, pending, waiting};
pub use site::left;
pub use whole::whole;
