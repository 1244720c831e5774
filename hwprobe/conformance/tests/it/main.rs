//! Integration tests of records, digests, comparison and the key table.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod digests;
mod drift;
mod keys;
mod name_space;
mod roll;
