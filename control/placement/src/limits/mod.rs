//! Limits of projects and of the cluster during a plan.

pub(crate) mod headroom;
pub(crate) mod sensitive_pool;
