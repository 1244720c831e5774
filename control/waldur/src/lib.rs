//! Accounting with Waldur: reports of usage, and the limits, pauses and credits that Waldur sets.
//!
//! [`sync::AccountingSync`] reports monthly totals and events to Waldur. All its state can be rebuilt from the usage
//! records of the quorum ([`lattice_quorum_types::usage_record`]) and from Waldur. Usage comes from a
//! [`lattice_ledger::Ledger`].
//!
//! The cluster is accessed through [`cluster::AccountedCluster`]: this crate depends neither on the client of the
//! quorum nor on control.
//!
//! Begin with `README.md` for the operator's view, then [`sync`].
#![forbid(unsafe_code)]

pub mod client;
pub mod cluster;
pub mod config;
mod decimal;
pub mod event;
pub mod journal;
pub mod missing_rights;
pub mod secret;
pub mod status;
pub mod step;
pub mod sync;
