//! Replays workload traces against the product's own rules.
//!
//! At present it holds the readers that turn a recorded workload into typed jobs; the simulator
//! that drives the state machine and the solver on a virtual clock builds on them. Nothing here
//! knows a cluster, a clock or a network: readers take bytes and return records.
//!
//! Begin with [`swf::Trace`].
#![forbid(unsafe_code)]

pub mod swf;
