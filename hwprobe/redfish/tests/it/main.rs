//! Integration tests of the Redfish reader and its HTTP client.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod bmc_events;
mod digests;
mod field_chassis;
mod field_content;
mod field_redirects;
mod field_settings;
mod field_transport;
mod fuzz;
mod http_faults;
mod http_limit;
mod http_session;
mod http_support;
mod http_trees;
mod inventory;
mod keys;
mod malformed;
mod power;
mod power_sources;
mod select;
#[path = "../support/mod.rs"]
mod support;
mod trees;
