//! The books: what was used, by whom and when, and what an accounting system is told of it.
//!
//! Everything rests on the facts that the quorum writes down ([`lattice_quorum_types::fact`]): a [`ledger::Ledger`]
//! folds them, answers for any window of time, and can always be made anew. It knows no clock and no network.
#![forbid(unsafe_code)]

pub mod ledger;
