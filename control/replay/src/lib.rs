//! Replay of workload traces with the product's own solver and state machine, and simulated days.
//!
//! [`trace`] and [`swf`] read recorded workloads. [`run`] replays a workload with the product ([`live`]) or with a
//! scheduler of the literature ([`textbook`]). [`compare`], [`sweep`] and [`report`] evaluate several replays.
//! [`verify`] repeats the recorded plans of a control. [`day`] runs the real state machine on a virtual clock, on a
//! cluster that is generated from a seed, and checks invariants. No module reads the wall clock or uses a network.
//!
//! Start with [`trace::open`] and [`run::run`], or with [`day::run`].
#![forbid(unsafe_code)]

pub mod check;
pub mod cluster;
pub mod compare;
pub mod day;
mod description;
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
