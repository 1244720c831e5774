//! Every endpoint's good and bad answers, over a real TLS socket.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod allocations;
mod bed;
mod edge;
mod events;
mod grpc;
mod nodes;
mod port;
mod projects;
mod store;
mod tenants;
mod tokens;
