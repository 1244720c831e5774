//! Command envelope: the requesting principal, the time, and the lease of a command.

use super::{Command, Principal};
use crate::{UnixMillis, id::LeaseName};
use serde::{Deserialize, Serialize};

/// Command schema that this version writes and reads. A command of any other schema is refused, since its encoding or
/// its rules may differ.
pub const SCHEMA: u16 = 1;

/// Retention of an idempotency key, milliseconds (24 h).
pub const KEY_LIFETIME_MS: u64 = 24 * 3600 * 1000;

/// Proof that the proposer still holds its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Name of the lease.
    pub lease: LeaseName,
    /// Epoch with which the lease was granted.
    pub epoch: u64,
}

/// A command with everything that `apply` may read. Nothing else reaches the state machine: no clock, no randomness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of the command's encoding and rules: [`SCHEMA`].
    pub schema: u16,
    /// The requesting principal.
    pub principal: Principal,
    /// Idempotency key. A repeated command with the same key returns the first outcome, for [`KEY_LIFETIME_MS`].
    pub key: Option<String>,
    /// Time stamp of the proposer. State time advances to this time, but never decreases; large steps are capped.
    pub at: UnixMillis,
    /// Lease of the proposer. Services must give one for commands that are marked "Fenced" in [`Command`].
    pub fence: Option<Fence>,
    /// The command.
    pub command: Command,
}
