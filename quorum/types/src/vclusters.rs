//! vClusters: their definitions and scheduler settings.

pub mod scheduler;
pub mod vcluster;
