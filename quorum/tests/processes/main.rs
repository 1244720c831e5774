//! Integration tests of `lattice-quorum`: members as processes of their own. A program beside `it`, so that
//! killed and paused members, whose elections are timed, share the machine with no in-process cluster.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
#[path = "../common/mod.rs"]
mod common;
mod handover;
mod kill_leader;
mod restore;
mod secrets;
