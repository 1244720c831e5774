//! Integration tests of `lattice-quorum`: members as separate processes.
//!
//! Separate from `it`: these tests kill and pause members and measure elections. An in-process cluster at
//! the same time would disturb them.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
#[path = "../common/mod.rs"]
mod common;
mod handover;
mod kill_leader;
mod restore;
mod secrets;
