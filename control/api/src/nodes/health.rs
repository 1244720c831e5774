//! Health: hardware faults of a node.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Health reason: one fault of one part of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReasonView {
    /// Source of the reason: `agent`, `bmc` (read by this control), or `control` itself.
    #[serde(default)]
    pub source: String,
    /// Stable code: the name of a check or of an event: `gpu.xid.<number>`, `gpu.amd.<event>`.
    pub code: String,
    /// Affected part: `gpu.3`, `nic.0.port.1`.
    pub entity: String,
    /// Value that was read.
    pub evidence: String,
    /// `inform`, `degraded` or `faulty`; `unknown` if something cannot be read.
    pub severity: String,
    /// Recommended action: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`, `update`, `inspect`.
    pub action: String,
    /// Whether the reason is only observed and does not count in the health verdict.
    pub observe_only: bool,
    /// Time of the first observation, RFC 3339.
    pub first_seen: String,
    /// Time of the last observation, RFC 3339.
    pub last_seen: String,
    /// Number of observations.
    pub count: u32,
}

/// Health of a node: results of its checks, read during this request, and of its BMC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHealthView {
    /// Node name.
    pub node: String,
    /// Name of the check table that applies to the node, with a trailing `+` if the site changed it. Empty if the agent
    /// does not answer.
    pub table: String,
    /// Health reasons, worst first.
    pub reasons: Vec<ReasonView>,
    /// Number of reasons that this request cleared.
    pub cleared: u32,
    /// Why the agent returned nothing. The reasons are then those of the BMC and, if the node does not answer, those of
    /// the last pass that this control received (`as_of`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_error: Option<String>,
    /// Time at which the BMC was last read, RFC 3339; absent if this control does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_read_at: Option<String>,
    /// Time at which the node was last present, RFC 3339. Set only if the agent does not answer and the reasons come
    /// from the last pass that this control received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
}

/// Request to clear health reasons after a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClearRequest {
    /// Code of the reasons to clear.
    pub code: String,
    /// Affected part; left out: all parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
}
