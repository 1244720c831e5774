//! The pure solver.
//!
//! Under construction.
#![forbid(unsafe_code)]
