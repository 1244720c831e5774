//! What the node is, as it tells others.
//!
//! [`Publication`] is the rule (what is announced after a read), [`Prober`] the loop that reads,
//! [`NodeView`] what the mesh's handlers may ask.

mod prober;
mod publication;
mod view;

pub use prober::{ProbeSettings, Prober};
pub use publication::{Announcement, Publication, Step};
pub use view::{InventoryUnavailable, NodeView};
