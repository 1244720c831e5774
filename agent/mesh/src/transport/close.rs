//! Application close codes of connections.

pub(crate) const CLOSE_SHUTDOWN: u32 = 0;
pub(crate) const CLOSE_NO_CERTIFICATE: u32 = 1;
pub(crate) const CLOSE_EXPIRED: u32 = 2;
pub(crate) const CLOSE_NOT_TRUSTED: u32 = 3;
pub(crate) const CLOSE_UNEXPECTED: u32 = 4;
pub(crate) const CLOSE_RATE_LIMITED: u32 = 5;
pub(crate) const CLOSE_DONE: u32 = 6;
pub(crate) const CLOSE_REVOKED: u32 = 7;
pub(crate) const CLOSE_RENEWED: u32 = 8;
