//! Tenancy: tenants with their projects, vClusters and reservations, and the accounting of their use.

pub mod accounting;
pub mod movement;
pub mod project;
pub mod reservation;
pub mod scheduler;
pub mod tenant;
pub mod usage;
pub mod vcluster;
