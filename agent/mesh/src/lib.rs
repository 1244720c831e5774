//! QUIC with mutual TLS between our processes.
//!
//! Under construction.
#![forbid(unsafe_code)]
