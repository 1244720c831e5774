//! Replays workload traces against the product's own rules.
//!
//! It holds the readers that turn a recorded workload into typed jobs, and a day on a virtual clock: the real
//! state machine, a cluster that is made of a seed, and what must hold of both whoever decides. Nothing here
//! knows a real clock or a network: readers take bytes and return records, and the day's time is its own.
//!
//! Begin with [`swf::Trace`], or with [`day::run`].
#![forbid(unsafe_code)]

pub mod check;
pub mod cluster;
pub mod compare;
pub mod day;
pub mod generate;
pub mod live;
pub mod metrics;
pub mod parallel;
pub mod policy;
pub mod report;
pub mod run;
pub mod schedule;
pub mod sweep;
pub mod swf;
pub mod textbook;
pub mod trace;
pub mod verify;
pub mod workload;
