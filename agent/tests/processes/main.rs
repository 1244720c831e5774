//! Integration tests of the jobs that an agent runs. They are a binary of their own: these tests start and kill many
//! processes and wait for them, while those of `it` compute.
#![expect(clippy::unwrap_used, reason = "tests")]

mod checkpoints;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../daemon/mod.rs"]
mod daemon;
#[path = "../hanging/mod.rs"]
mod hanging;
mod hooks;
mod isolation;
mod orphans;
mod ranks;
mod restarts;
mod starts;
mod steps;
#[path = "../support/mod.rs"]
mod support;
mod upgrade;
mod users;
mod walltimes;
mod wipe;
