//! Selection of the node set of a job among the nodes that it may use.

pub(crate) mod choose;
pub(crate) mod contention;
mod power_fit;
