//! Integration tests of an agent and its node: probes, health, gossip, history and the program.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod agent;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../daemon/mod.rs"]
mod daemon;
mod disk;
mod fleet;
mod gpus;
#[path = "../hanging/mod.rs"]
mod hanging;
mod health;
mod history;
mod hung;
mod membership;
mod probe;
mod program;
#[path = "../support/mod.rs"]
mod support;
