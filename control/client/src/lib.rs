//! The Rust SDK.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
