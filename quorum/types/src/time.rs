//! Replicated time. A proposer stamps each command with a time. This module reads no clock.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Milliseconds since 1970-01-01 UTC.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// `self + millis`, saturating.
    pub fn after(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
    /// Milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn since(self, earlier: UnixMillis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
