//! Eligibility: which nodes fit a request, and whether any node of a vCluster ever could.

pub(crate) mod feasibility;
mod funnel;
mod gpu_model;
pub(crate) mod sets;
pub(crate) mod span;
