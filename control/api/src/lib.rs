//! Protobuf, REST types and conversions.
//!
//! Reserved: nothing is built here yet.
#![forbid(unsafe_code)]
