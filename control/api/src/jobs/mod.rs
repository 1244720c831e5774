//! Jobs: allocations and DAGs, their dependencies, and why they wait.

pub mod allocation;
pub mod dag;
pub mod dependency;
pub mod explanation;
pub mod outlook;
