//! Tests of the whole solver on small machines.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod arbitrary;
mod basics;
mod build;
mod claims;
mod earliest;
mod explanations;
mod extremes;
mod kept;
mod layout;
mod loans;
mod oracle;
mod power;
mod properties;
mod rationed;
mod reserved;
mod scores;
mod unbounded;
mod windows;
