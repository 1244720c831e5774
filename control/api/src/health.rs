//! What is wrong with a node's hardware.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One thing that is wrong with one part of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonView {
    /// Who says so: `agent`, `bmc`, as this control read it, or `control` itself.
    #[serde(default)]
    pub source: String,
    /// Stable code: a check's name, or an event's: `gpu.xid.<number>`, `gpu.amd.<event>`.
    pub code: String,
    /// The part: `gpu.3`, `nic.0.port.1`.
    pub entity: String,
    /// What was read.
    pub evidence: String,
    /// `inform`, `degraded` or `faulty`; `unknown` where something cannot be read.
    pub severity: String,
    /// What helps: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`, `update`,
    /// `inspect`.
    pub action: String,
    /// Only watched: it counts in no verdict.
    pub observe_only: bool,
    /// RFC 3339.
    pub first_seen: String,
    /// RFC 3339.
    pub last_seen: String,
    /// How often it was seen.
    pub count: u32,
}

/// What a node's checks say, asked of it now, and what its BMC says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHealthView {
    /// The node.
    pub node: String,
    /// The table of checks it is judged by; with `+` where the site changed it. Empty where its agent
    /// does not answer.
    pub table: String,
    /// Worst first.
    pub reasons: Vec<ReasonView>,
    /// Reasons that this request ended.
    pub cleared: u32,
    /// Why its agent said nothing: the reasons are its BMC's, and of a node that does not answer those of
    /// the last pass that was heard of (`as_of`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_error: Option<String>,
    /// When its BMC was last looked at, RFC 3339; none where this control reads none of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_read_at: Option<String>,
    /// Set where its agent does not answer and its reasons are of the last pass that this control heard
    /// of: when the node was there last, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

/// Somebody repaired it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClearRequest {
    /// The code of the reasons that are over.
    pub code: String,
    /// Of this part alone; of all of them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
}
