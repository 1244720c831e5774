//! Processes of attempts on this machine: found, ended and waited for.

pub(super) mod clearing;
pub(super) mod search;
