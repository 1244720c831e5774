//! Health of a node: the site's health gate and the results of the health checks.

use bytes::Bytes;
use lattice_quorum_types::rpc::{Role, Rpc};
use serde::{Deserialize, Serialize};

/// Runs the site's health gate before a node returns to service. Succeeds if the site has none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckHealth;
impl Rpc for CheckHealth {
    const METHOD: &'static str = "agent.gate";
    const CALLERS: &'static [Role] = &[Role::Control];
    type Reply = Result<(), GateFailed>;
}

/// The site's health gate failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the health gate failed: {reason}")]
pub struct GateFailed {
    /// Exit code, signal or timeout, and the last line of output.
    pub reason: String,
}

/// Requests the results of the node's health checks: JSON of `lattice-conformance`'s `health::Report` with some
/// additional fields, bounded in size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetHealth {
    /// Whether to run the checks again instead of returning the last result.
    pub fresh: bool,
    /// Health reasons to clear first, after a repair. The next check reports persisting problems again.
    pub clear: Option<ClearReason>,
    /// Requesting person or program. Required with `clear`.
    pub by: Option<String>,
}
impl Rpc for GetHealth {
    const METHOD: &'static str = "agent.health";
    const CALLERS: &'static [Role] = &[Role::Control];
    /// The report, or the reason why there is none.
    type Reply = Result<Bytes, String>;
}

/// Health reasons of a node to clear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearReason {
    /// Stable code of the health reason.
    pub code: String,
    /// Part of the node; `None`: all parts.
    pub entity: Option<String>,
}
