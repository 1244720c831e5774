//! Integration tests of the quorum: members inside the test process, on loopback.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod audit;
#[path = "../common/mod.rs"]
mod common;
mod enrolment;
mod members;
mod membership;
mod node_claim;
mod one_way_partition;
mod scrub;
mod segments;
mod trust;
