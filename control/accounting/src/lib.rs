//! Usage ledger and accounting: usage by project, user and time, and its reports to an accounting system.
//!
//! All data derives from the usage records that the quorum stores ([`lattice_quorum_types::fact`]). A
//! [`ledger::Ledger`] aggregates the records and answers queries for any time window. An [`accountant::Accountant`]
//! reports monthly totals and events to Waldur. All state of both can be rebuilt from the usage records.
//!
//! The cluster is accessed through [`site::Site`]: this crate depends on neither quorum nor control.
//!
//! Begin with `README.md` for the operator's view, then [`accountant`].
#![forbid(unsafe_code)]

pub mod accountant;
pub mod config;
pub mod event;
pub mod journal;
pub mod ledger;
pub mod month;
pub mod secret;
pub mod site;
pub mod status;
pub mod waldur;
