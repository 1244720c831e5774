//! Solver input of one vCluster, derived from state, settings and tenant standing: [`full_input`] for a new planner,
//! [`Changes::delta`] for a running one.

mod changes;
mod delta;
mod full;
mod home;
mod loans;
mod pending;
mod sensitive_pool;
mod site;

pub use changes::Changes;
pub use delta::{affects_plan, delta};
pub use full::full_input;
pub use home::{HomeRule, is_service_minimum};
pub use pending::{elements, pending, waiting};
pub use site::remaining_bandwidth;
