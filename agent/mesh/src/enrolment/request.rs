//! Enrolment request on the wire.

use crate::Role;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest duration of the exchange after the dial.
pub(super) const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Enrolment request on the wire.
#[derive(Serialize, Deserialize)]
pub(super) struct WireRequest {
    pub(super) secret: String,
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) replace: bool,
    pub(super) csr: Vec<u8>,
}
