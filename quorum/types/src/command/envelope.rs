//! What a command comes in: who asks, when, and under which lease.

use super::Command;
use crate::{UnixMillis, id::LeaseName};
use serde::{Deserialize, Serialize};

/// Command schema that this version writes and reads. A command of any other schema is refused: its encoding
/// or its rules may differ.
pub const SCHEMA: u16 = 1;

/// How long an idempotency key is remembered, milliseconds (24 h).
pub const KEY_LIFETIME_MS: u64 = 24 * 3600 * 1000;

/// Who asks, as established at the edge (a token's principal, or a service's certificate).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Name: a user, or `service:control/c1`.
    pub name: String,
    /// What it may do.
    pub power: Power,
}

/// The strongest role a principal holds for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// May submit to projects and act on its own allocations.
    User,
    /// May act on all allocations and nodes.
    Operator,
    /// May do everything, tenants and limits included.
    Admin,
    /// One of our own services (control), acting by itself.
    Service,
    /// An accounting system outside, by a token of its own: sets limits and budgets of tenants.
    Accounting,
}

/// Proof that the proposer still holds its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Which lease.
    pub lease: LeaseName,
    /// The epoch it was granted with.
    pub epoch: u64,
}

/// A command with everything `apply` may look at. Nothing else reaches the state machine: no
/// clock, no randomness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of the command's encoding and of the rules by which it is judged: [`SCHEMA`].
    pub schema: u16,
    /// Who asks.
    pub principal: Principal,
    /// Repeating a command with the same key answers with the first outcome, for
    /// [`KEY_LIFETIME_MS`].
    pub key: Option<String>,
    /// Stamped by the proposer. State time = max(previous, stamped).
    pub at: UnixMillis,
    /// Required for what reconcilers do.
    pub fence: Option<Fence>,
    /// What to do.
    pub command: Command,
}
