//! Nodes as shown: intent from the quorum, state from gossip, liveness from pings.

use super::claim::ClaimView;
use crate::{jobs::allocation::ElementView, trust::certificate::CertificateView};
use lattice_quorum_types::{AllocationId, Revision};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Drain reason with its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    /// Owner of the drain reason.
    pub owner: String,
    /// Reason text.
    pub reason: String,
    /// Time at which the reason was set.
    pub since: String,
}

/// Request to drain a node, so that it gets no new allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Free-text reason, shown with the node.
    #[schema(min_length = 1, pattern = "[^ ]")]
    pub reason: String,
    /// Release the node by force, although it is unconfirmed that the holder's processes have ended. The caller takes
    /// responsibility; the reason is kept in the audit.
    #[serde(default)]
    pub force_release: bool,
}

/// Result of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainResult {
    /// Revision of the change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Attempt from which the node was taken by force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_released_from: Option<HolderView>,
}

/// Result of an undrain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UndrainResult {
    /// Revision of the change, or the present revision if nothing was cleared.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Drain reasons that were cleared, each with its owner: `op: fan is loud`. Empty if the node had none; a repeated
    /// request clears nothing more.
    pub cleared: Vec<String>,
}

/// Attempt that holds a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HolderView {
    /// Allocation number.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Attempt number.
    pub attempt: u32,
    /// Array of which the allocation is an element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementView>,
}

/// State of one conformance class of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassView {
    /// `complete`, `incomplete` (a required key is unknown) or `disabled`.
    pub state: String,
    /// Class digest, 64 hex digits; absent unless complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// For an incomplete class, the digest when the class was last complete; only in the answer for a single node, if
    /// the history has it. The present digest is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_digest: Option<String>,
    /// Time at which the class ceased to be complete, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_until: Option<String>,
}

/// Health verdict of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthView {
    /// `healthy`, `degraded`, `faulty` or `unknown`.
    pub verdict: String,
    /// Stable reason codes.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// Properties that placement may require; a field left out is unknown, which is never zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourcesView {
    /// System vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// GPU model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Number of GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u32>,
    /// Memory of the smallest GPU, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
    /// Memory that the kernel can use, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processor packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Physical cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Hardware threads online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// NUMA nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<u32>,
    /// RDMA-capable network functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_count: Option<u32>,
    /// Features that were detected.
    #[serde(default)]
    pub features: Vec<String>,
}

/// Node as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Node name.
    pub name: String,
    /// Combined status, the worst of liveness, health, lifecycle, claim and use. From worst to best: `unreachable`,
    /// `suspect`, `faulty`, `quarantined`, `unclean`, `drained`, `draining`, `unregistered`, `joining`, `unknown`,
    /// `degraded`, `releasing`, `allocated`, `claimed`, `ready`; `retired` replaces all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Intent: `joining`, `ready`, `draining`, `drained`, `quarantined` or `retired`; `unregistered` for a node that
    /// gossips but is not registered.
    pub lifecycle: String,
    /// Open drain reasons.
    pub drain: Vec<DrainView>,
    /// Attempt that holds the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderView>,
    /// Node claim: a claimed node takes only sensitive allocations of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimView>,
    /// vCluster that uses the node.
    pub vcluster: String,
    /// vCluster that the node belongs to, while another one borrows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_by: Option<String>,
    /// `alive`, `suspect`, `unreachable` or `unknown`.
    pub liveness: String,
    /// Reason for the liveness, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_reason: Option<String>,
    /// Time of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// Health verdict of the checks.
    pub health: HealthView,
    /// Gossip cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Topology (dragonfly) group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Properties that placement may require.
    pub resources: ResourcesView,
    /// Node fingerprint, 64 hex digits; absent while a class is incomplete or missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// State of each class.
    pub classes: BTreeMap<String, ClassView>,
    /// Number of keys that differ from the baseline or, without a baseline, from the cohort's majority. Left out, not
    /// zero, if the node was not compared or has no reference, or if nothing differs and a class is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drifted_keys: Option<u32>,
    /// Boot id of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Why the node gets no sensitive allocation: its signed attestation contradicts its gossip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation_fault: Option<String>,
    /// Power draw and limit, read from the BMC. If control does not read the BMC, the agent's own measurement, only in
    /// the answer for a single node; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerView>,
    /// Certificate of the node; only in the answer for a single node, for operators, while the quorum answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateView>,
    /// Revision of the last change of the replicated record; 0 for a node that is not registered.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// Result of a new probe of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReprobeResult {
    /// Node name.
    pub node: String,
    /// Node fingerprint from this reading and the BMC's last values, 64 hex digits. The node joins the conformance
    /// group of this fingerprint when the node publishes the reading. Absent while a class is incomplete.
    pub fingerprint: Option<String>,
    /// State of each class, from this reading and the BMC's last values.
    pub classes: BTreeMap<String, ClassView>,
    /// Classes that differ from the published classes. A change is published after two equal readings.
    pub differs: Vec<String>,
    /// Result of reading the BMC; absent if control does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcReadResult>,
}

/// Result of reading a BMC on request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BmcReadResult {
    /// Why nothing was read; absent if the reading succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Classes with changed BMC values. A change counts after two equal readings.
    pub differs: Vec<String>,
}

/// Power draw and power limit of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerView {
    /// Power draw, rounded to watts; absent if unknown, which is not zero.
    pub draw_watts: Option<u64>,
    /// `present`, or why there is no draw: `absent`, `unsupported`, `denied`, `failed`, `timeout`, `disabled`.
    pub draw_state: String,
    /// Why the draw is unknown; absent if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Power limit, watts; only with `limit_state` `set`.
    pub limit_watts: Option<u64>,
    /// `absent`: nothing can limit the draw; `uncapped`; `set`; `unknown`.
    pub limit_state: String,
    /// Lowest limit that may be set, watts.
    pub limit_min_watts: Option<u64>,
    /// Highest limit that may be set, watts.
    pub limit_max_watts: Option<u64>,
    /// Action of the BMC when the limit cannot be kept, as the BMC reports it.
    pub exception_action: Option<String>,
    /// Source of the draw: the resource of the BMC, or the interface that the agent reads (`ipmi`, `hwmon/…`); empty if
    /// there is none.
    pub source: String,
    /// Time of the BMC's last power reading, RFC 3339. Absent if there was none, and for values of the agent, which
    /// come from its last probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<String>,
}
