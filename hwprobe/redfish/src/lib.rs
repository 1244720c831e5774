//! Redfish access to a BMC: firmware, BIOS settings, health, power draw, power limit and recorded events of its nodes.
//!
//! The crate has two halves. *Reading* is pure: [`documents`] holds the available resources, and [`interpret`] follows
//! their links and types and lists the further documents it needs. *Fetching* ([`http`]) owns the sessions and the
//! single request in flight. So the agent, control's BMC worker and a recorded tree use the same code.
//!
//! This crate must not depend on gossip, the quorum or the ownership of nodes.
//!
//! Start at [`interpret`], then [`BmcReport`]; for power readings alone at [`read_by_route`]; for events recorded by a
//! BMC at [`read_events`].

#![forbid(unsafe_code)]

mod bios;
mod bmc_events;
mod body;
mod chassis_managers;
pub mod documents;
mod firmware;
pub mod http;
mod interpret;
mod power;
mod precedence;
pub mod recorded;
mod report;
mod selection;
mod systems;
mod versions;
mod vitals;
mod walk;

pub use bmc_events::{
    BmcEvent, BmcEventKind, BmcEventSeverity, BmcEventsRead, EventListRoute, EventListSearch,
    FetchedEventDocuments, find_event_lists, read_events,
};
pub use documents::{Documents, ResourcePath};
pub use interpret::interpret;
pub use power::{PowerForm, Route, RoutedPower, Source, read_by_route};
pub use report::{BmcReport, Breadth, Interpretation, NodeReport, Scope, unread_records};
pub use selection::{NoSystemReason, Selector, SystemName};
pub use versions::contradictions;
