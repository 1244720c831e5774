//! Integration tests of gossip cells.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cell;
mod common;
mod hostile;
