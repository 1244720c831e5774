//! Integration tests of the hardware probe that run in this process.
#![expect(clippy::unwrap_used, reason = "tests")]

mod archive;
mod bounds;
mod capture;
mod captured_sys;
mod child;
mod firmware;
mod fuzz;
mod host_arguments;
mod ipmi;
mod nic;
mod nic_live;
mod nic_shuffle;
mod optics;
mod parsers;
mod power;
mod probes;
mod software;
mod storage;
#[path = "../support/mod.rs"]
mod support;
mod text_forms;
