//! Integration tests of the state machine: every file in one program.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod accounting_months;
mod arrays;
mod audit;
mod baselines;
mod checkpoints;
mod common;
mod dags;
mod demand;
mod dependencies;
mod element_names;
mod force;
mod lending;
mod life;
mod never_started;
mod node_claim;
mod overcommit;
mod preemption;
mod properties;
mod quota_cases;
mod reservations;
mod resize;
mod schedulers;
mod segments;
mod sensitive;
mod sensitive_audit;
mod services;
mod trust;
mod usage_records;
mod wait_for_limit;
