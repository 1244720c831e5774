//! Eligibility: which nodes fit a request, and whether a vCluster could ever satisfy the request.

pub(crate) mod feasibility;
mod funnel;
mod gpu_model;
pub(crate) mod sets;
pub(crate) mod span;
