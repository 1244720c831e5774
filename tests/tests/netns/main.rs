//! Tests of the whole with faults of network and disk. A program beside `it`, because a process has one
//! network of namespaces ([`lattice_tests::netns`]) and elections during a fault are timed: they share the
//! machine with one another, not with the clusters of `it`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod door;
mod partition;
mod quorum_faults;
mod split;
