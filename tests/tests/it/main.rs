//! Whole-system tests: a cluster of real processes on loopback, or checks of the sources (`tidy`).
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod audit;
mod firmware;
mod full_log;
mod health_drain;
mod identity;
mod language;
mod many;
mod nested_limits;
mod node_loss;
mod outage;
mod ownership;
mod preemption_latency;
mod quota_wait;
mod resizing;
mod restart_matrix;
mod role_matrix;
mod schedulers;
mod silence;
mod submit_rate;
mod suspicion;
mod tidy;
mod upgrade;
