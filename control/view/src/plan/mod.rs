//! Plans of vClusters: the last plan of each scheduler, and a plan computed from a view alone.

mod cycle;
mod last_plan;

pub use cycle::plan_of;
pub use last_plan::{LastPlan, NotAssigned, Planned};
