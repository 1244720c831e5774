//! Projects: the tree of tenants and projects, their limits and budgets.

pub mod budget;
pub mod limit;
pub mod limit_policy;
pub mod project;
