//! Recorded workloads.
//!
//! Under construction.
#![forbid(unsafe_code)]
