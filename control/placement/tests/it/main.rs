//! Integration tests of the planner: many random systems, and a month of arrivals.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod small_systems;
mod starvation;
