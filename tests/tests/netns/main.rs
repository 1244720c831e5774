//! Tests of the whole with faults of network and disk.
//!
//! Separate from `it`: a process has one network of namespaces ([`lattice_tests::netns`]), and these tests
//! measure elections during a fault. The clusters of `it` at the same time would disturb them.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod door;
mod partition;
mod quorum_faults;
mod split;
