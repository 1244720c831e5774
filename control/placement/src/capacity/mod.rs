//! Shared capacity over time: power of domains, bandwidth of storage systems.

pub(crate) mod power;
mod resource_curve;
pub(crate) mod storage;
