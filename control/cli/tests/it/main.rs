//! Integration tests of the `lattice` program.
#![expect(clippy::unwrap_used, reason = "tests")]

mod admin;
mod bad_input;
mod certificates;
mod common;
mod completions;
mod demo;
mod formats;
mod host;
mod no_view;
mod replay;
mod restore_plan;
mod waiting;
