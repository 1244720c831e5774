//! Scenarios that span crates.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
