//! The pure replicated state machine.
//!
//! Under construction.
#![forbid(unsafe_code)]
