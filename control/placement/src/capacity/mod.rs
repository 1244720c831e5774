//! Shared capacity over time: power of domains, bandwidth of storage systems.

pub(crate) mod power;
mod profile;
pub(crate) mod storage;
