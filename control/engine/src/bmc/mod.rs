//! BMC readings: firmware, BIOS settings, power draw and limit of the nodes, read over the management network, so that
//! no compute node holds a BMC password.
//!
//! - [`config`] parses the BMC file.
//! - [`worker`] reads one BMC.
//! - [`kept`] restarts a failed worker.
//! - [`node`] holds the published data of each node and its changes.
//! - [`ask`] handles requests for an immediate reading.
//! - [`Readings`] publishes the results to the rest of control.

mod ask;
mod config;
mod events;
mod flapping;
mod health;
mod node;
mod node_match;
mod readings;
mod supervision;
#[cfg(test)]
mod tests;
mod worker;

#[cfg(any(test, feature = "testing"))]
pub(crate) use ask::BROKE_DOWN;
pub use ask::Looked;
pub use config::{BmcFileError, BmcPlan, BmcTarget};
pub use health::SILENT;
pub use readings::{Parts, Readings};
pub use worker::{Edges, Host, run};
