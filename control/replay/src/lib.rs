//! Replay of workload traces against the product's own rules.
//!
//! The crate holds two parts. Readers turn a recorded workload into typed jobs. [`day`] runs the real state machine on
//! a virtual clock, on a cluster that is generated from a seed, and checks invariants that hold for every scheduler. No
//! module reads the wall clock or uses a network: readers take bytes and return records, and a simulated day has its
//! own time.
//!
//! Start with [`swf::Trace`], or with [`day::run`].
#![forbid(unsafe_code)]

pub mod check;
pub mod cluster;
pub mod compare;
pub mod day;
pub mod generate;
pub mod lines;
pub mod live;
pub mod metrics;
pub mod parallel;
pub mod policy;
pub mod report;
pub mod request;
pub mod run;
pub mod schedule;
pub mod sweep;
pub mod swf;
pub mod textbook;
pub mod trace;
pub mod verify;
pub mod workload;
