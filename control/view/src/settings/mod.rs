//! Settings of vClusters as the planner takes them: of the scheduler, and of movement.

pub mod movement;
pub mod scheduler;
