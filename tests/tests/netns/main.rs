//! Whole-system tests with faults of network and disk.
//!
//! These tests are separate from `it`: a process has one network of namespaces ([`lattice_tests::netns`]), and the
//! tests measure elections during a fault. The clusters of `it` would disturb them at the same time.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod enrolment_limits;
mod partition;
mod quorum_faults;
mod split;
