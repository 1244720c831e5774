//! What the nodes' BMCs say: firmware, BIOS settings, draw and limit, read over the management
//! network, so that no compute node holds a BMC's password.
//!
//! [`config`] is the file that names the BMCs, [`worker`] reads one of them for as long as control
//! runs, [`kept`] begins that anew where it broke down, [`node`] keeps what is published of each node
//! and what changed, [`ask`] is how somebody has it looked at now, [`Readings`] is what everybody else
//! looks at.

mod ask;
mod config;
mod deeds;
mod health;
mod kept;
mod node;
mod readings;
#[cfg(test)]
mod tests;
mod turns;
mod whose;
mod worker;

#[cfg(test)]
pub(crate) use ask::BROKE_DOWN;
pub(crate) use ask::Looked;
pub use config::{BmcFileError, BmcPlan, BmcTarget};
pub(crate) use health::SILENT;
pub(crate) use readings::{Parts, Readings};
pub(crate) use worker::{Edges, Host, run};
