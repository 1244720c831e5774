//! Usage ledger: node-hours and GPU-hours by project, user, vCluster and time.
//!
//! All data derives from the usage records that the quorum stores ([`lattice_quorum_types::usage_record`]). A
//! [`Ledger`] aggregates the records and answers queries for any time window. [`Month`] is a calendar month, and
//! [`hours`] rounds usage for reports.
//!
//! The crate reads no clock and no file, and depends on no accounting system. Every control therefore computes the same
//! usage from the same records. Begin with [`Ledger`].
#![forbid(unsafe_code)]

mod curve;
pub mod hours;
mod ledger;
mod month;
mod usage;

pub use ledger::{Ledger, UNKNOWN_GPUS, UsageScope};
pub use month::Month;
pub use usage::{Usage, UsageByKind};
