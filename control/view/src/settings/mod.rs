//! Settings of vClusters in the form that the solver uses: scheduler settings and movement settings.

pub mod movement;
pub mod scheduler;
