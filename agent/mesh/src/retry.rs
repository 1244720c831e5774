//! Retries: waits between attempts, and attempts on addresses and folders that are still in use.
//!
//! Imports nothing else of this crate.

pub(crate) mod backoff;
pub(crate) mod in_use;
