//! Rate limits: token buckets by key, and the admission control of enrolment.
//!
//! Imports nothing else of this crate.

pub(crate) mod admission;
pub(crate) mod source_limiter;
pub(crate) mod token_bucket;
