//! Reading and checking the daemons' YAML configuration.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
