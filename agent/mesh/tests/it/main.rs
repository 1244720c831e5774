//! Integration tests of the mesh.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod enrolment;
mod log_lines;
mod office;
mod outdated;
mod refusals;
mod renewal;
mod renewal_on_the_wire;
mod resumption;
mod rotation;
mod trust;
