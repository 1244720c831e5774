//! Limits: token buckets by key, the admission control of enrolment, and log lines that strangers cause.
//!
//! Imports nothing else of this crate.

pub(crate) mod admission;
pub(crate) mod log_limiter;
pub(crate) mod source_limiter;
pub(crate) mod token_bucket;
