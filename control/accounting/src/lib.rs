//! The books: what was used, by whom and when, and what an accounting system is told of it.
//!
//! Everything rests on the facts that the quorum writes down ([`lattice_quorum_types::fact`]). A [`ledger::Ledger`]
//! folds them and answers for any window of time; an [`accountant::Accountant`] has Waldur's monthly totals follow it,
//! and its events sent in order. Whatever either keeps can be made anew from the facts.
//!
//! The cluster itself is behind [`site::Site`]: this crate knows no quorum and no control.
//!
//! Begin with `README.md` for what an operator sees, then [`accountant`].
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
