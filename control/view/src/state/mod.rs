//! State of a view: committed records, values from the site's sources, and the application of committed events.
//!
//! The state contains neither resulting settings of vClusters nor solver input: both are derived from it.

mod apply;
mod array_names;
mod bandwidth;
pub mod hours;
pub mod inputs;
mod records;

pub use apply::FormerValue;
pub use array_names::ArrayNames;
pub use bandwidth::Promised;
pub use hours::{Hours, UsedTime};
pub use inputs::Inputs;
pub use records::{BaseView, ViewNode};
