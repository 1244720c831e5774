//! BMC readings: firmware, BIOS settings, power draw and limit, faults and logs of the nodes, read over the management
//! network, so that no compute node holds a BMC password.
//!
//! - `config` parses the BMC file, and `access` tries each BMC in it once.
//! - `worker` reads one BMC.
//! - `supervision` runs a worker for each BMC and restarts a failed one.
//! - `node` holds the published data of each node and its changes.
//! - `health` finds faults, and `node_match` checks that the BMC belongs to the node.
//! - `events` reads the tasks and logs of a BMC, and `flapping` limits the history entries of a flapping BMC.
//! - `reading_requests` handles requests for an immediate reading.
//! - [`Readings`] publishes the results to the rest of control.

mod access;
mod config;
mod events;
mod flapping;
mod health;
mod host;
mod node;
mod node_match;
mod parts;
mod reading_requests;
mod readings;
mod supervision;
#[cfg(test)]
mod tests;
mod worker;

pub use access::check_access;
pub use config::{BmcFileError, BmcPlan, BmcTarget};
pub use host::Host;
pub use parts::{Parts, SILENT};
pub use reading_requests::RequestedReading;
#[cfg(any(test, feature = "testing"))]
pub(crate) use reading_requests::WORKER_PANICKED;
pub use readings::Readings;
pub use supervision::run;
pub use worker::Edges;
