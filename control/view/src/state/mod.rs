//! State of a view: committed records, what the site's sources report, and the application of committed events.
//!
//! It knows neither the settings of vClusters as a planner takes them nor solver input: both are derived from it.

mod apply;
mod bandwidth;
pub mod hours;
pub mod inputs;
mod records;

pub use apply::FormerValue;
pub use bandwidth::Promised;
pub use hours::{Hours, UsedTime};
pub use inputs::Inputs;
pub use records::{BaseView, ViewNode};
