//! What a BMC says over Redfish: firmware, BIOS settings, draw and limit of one node.
//!
//! Two halves. *Reading* is pure: [`documents`] holds the resources at hand, and [`interpret`]
//! finds its way among them by links and types and says which further ones it wants. *Fetching*
//! (`http`) owns the one session and the one request in flight. So the agent, control's BMC worker
//! and a recorded tree run the same code.
//!
//! This crate must not know about gossip, the quorum or who holds a node.
//!
//! Begin at [`interpret`], then [`BmcReport`]; for readings of power alone at [`read_by_route`]; for
//! what a BMC did at [`read_deeds`].

#![forbid(unsafe_code)]

mod bios;
mod deeds;
pub mod documents;
mod firmware;
pub mod http;
mod interpret;
mod own;
mod power;
pub mod recorded;
mod report;
mod systems;
mod versions;
mod vitals;
mod walk;

pub use deeds::{
    Deed, DeedOf, DeedRoute, DeedSeverity, DeedsFound, DeedsRead, DeedsSeen, find_deeds, read_deeds,
};
pub use documents::{Documents, ResourcePath};
pub use interpret::interpret;
pub use power::{Route, RoutedPower, Shape, Source, read_by_route};
pub use report::{
    BmcReport, Breadth, Interpretation, NodeReport, Scope, Selector, SystemName, Unselected, unread,
};
pub use versions::contradictions;
