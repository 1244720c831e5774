//! Tests of every endpoint over a real TLS socket, with valid and invalid requests.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod allocations;
mod audit;
mod authorities;
mod baselines;
mod bmc;
mod certificates;
mod class_merge;
mod compared;
mod dags;
pub(super) mod documented;
mod edge;
mod events;
mod fixture;
mod grpc;
mod history;
mod inputs;
mod inventory;
mod issuer;
mod last_known;
mod limits;
mod moved;
mod no_view;
mod nodes;
mod oidc;
mod parity;
mod port;
mod projects;
mod rbac;
mod reservations;
mod restored;
mod roles;
mod run_condition;
mod silent_agent;
mod submission;
mod tenants;
mod terms;
mod tokens;
mod unsettled;
mod usage;
mod vclusters;
