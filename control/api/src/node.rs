//! Nodes as shown: what the quorum intends, what gossip tells, what pings found.

use crate::{certificate::CertificateView, claim::ClaimView};
use lattice_quorum_types::{AllocationId, Revision};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A drain reason with its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    /// Who set it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: String,
}

/// Why a node is to get no new work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// For people; shown with the node.
    #[schema(min_length = 1, pattern = "[^ ]")]
    pub reason: String,
    /// Take the node from its holder although nobody knows that its processes are gone. Who asks
    /// answers for that: the reason is kept in the audit.
    #[serde(default)]
    pub force_release: bool,
}

/// What a drain did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    /// The revision it made.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Whose work was given up by force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<HolderView>,
}

/// What an undrain did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Undrained {
    /// The revision it made, or the present one when nothing was cleared.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// The drain reasons that it cleared, each with its owner: `op: fan is loud`. Empty where the
    /// node had none; a repeat clears nothing more.
    pub cleared: Vec<String>,
}

/// The attempt that holds a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HolderView {
    /// The allocation.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Its attempt.
    pub attempt: u32,
}

/// What a node says of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassView {
    /// `complete`, `incomplete` (a required key is unknown) or `disabled`.
    pub state: String,
    /// The class digest, 64 hex digits; absent unless complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Of a class that is incomplete, its digest when it was complete last; only of a single node, where
    /// its history says so. It is not what the class is: that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_digest: Option<String>,
    /// When it ceased to be that, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_until: Option<String>,
}

/// A node's health verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthView {
    /// `healthy`, `degraded`, `faulty` or `unknown`.
    pub verdict: String,
    /// Stable reason codes.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// What placement may ask of a node; a field left out is unknown, which is never zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FactsView {
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
    /// Memory the kernel can use, bytes.
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
    /// What was seen to be there.
    #[serde(default)]
    pub features: Vec<String>,
}

/// A node as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Intent: `joining`, `ready`, `draining`, `drained`, `quarantined` or `retired`;
    /// `unregistered` for one that gossips but is not registered.
    pub lifecycle: String,
    /// Open drain reasons.
    pub drain: Vec<DrainView>,
    /// Who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderView>,
    /// Whose it is: a claimed node takes nothing but its user's sensitive work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimView>,
    /// The vCluster that uses it.
    pub vcluster: String,
    /// The vCluster it belongs to, where another one uses it for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_by: Option<String>,
    /// `alive`, `suspect`, `unreachable` or `unknown`.
    pub liveness: String,
    /// Why it is thought to be so, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_reason: Option<String>,
    /// When it last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<String>,
    /// What its checks say.
    pub health: HealthView,
    /// Its gossip cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Its topology (dragonfly) group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What placement may ask.
    pub facts: FactsView,
    /// The node fingerprint, 64 hex digits; absent while a class is incomplete or unseen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Each class's mark.
    pub classes: BTreeMap<String, ClassView>,
    /// Keys in which it differs from its baseline, or else from the majority of its cohort; left out
    /// where it was held against neither, or not yet, or nothing differs and a class is not known:
    /// that is not zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drifted_keys: Option<u32>,
    /// The host's boot id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The agent's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Why it gets no sensitive work: what its own signed claim said against what it gossips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_refused: Option<String>,
    /// What it draws and what limits it, by its BMC. Where control reads no BMC of it, what its agent
    /// measures in band, and that of a single node alone; else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerView>,
    /// Its certificate; only of a single node, for operators, while the quorum answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateView>,
    /// Last change of its replicated record; 0 for one that is not registered.
    #[schema(value_type = u64)]
    pub revision: Revision,
}

/// What a node is by a reading that was just made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reprobed {
    /// The node.
    pub node: String,
    /// The node fingerprint by this reading, with what its BMC told last, 64 hex digits: the one that
    /// it is grouped by once it announces this. None while a class is incomplete.
    pub fingerprint: Option<String>,
    /// Each class by this reading, with what its BMC told last.
    pub classes: BTreeMap<String, ClassView>,
    /// Classes that are other than the node announces. A change is announced once it was read
    /// twice.
    pub differs: Vec<String>,
    /// What came of looking at its BMC; none where control reads none of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcLooked>,
}

/// A BMC was looked at because somebody asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BmcLooked {
    /// Why it told nothing; none where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Classes that it tells otherwise than before. They count once read twice.
    pub differs: Vec<String>,
}

/// What a node draws and what limits it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerView {
    /// To the nearest watt; none where it is not known, which is not zero.
    pub draw_watts: Option<u64>,
    /// `present`, or why there is no draw: `absent`, `unsupported`, `denied`, `failed`, `timeout`,
    /// `disabled`.
    pub draw_state: String,
    /// Why the draw is not known, in words; none where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Watts; only with `limit_state` `set`.
    pub limit_watts: Option<u64>,
    /// `absent`: nothing could limit it; `uncapped`; `set`; `unknown`.
    pub limit_state: String,
    /// Lowest limit that may be set, watts.
    pub limit_min_watts: Option<u64>,
    /// Highest limit that may be set, watts.
    pub limit_max_watts: Option<u64>,
    /// What the BMC does when the limit cannot be kept, as it says.
    pub exception_action: Option<String>,
    /// Where the draw comes from: the resource of the BMC, or what the agent reads (`ipmi`,
    /// `hwmon/…`); empty where there is none.
    pub source: String,
    /// When its BMC last told anything of its power, RFC 3339; none where it never did, and of what
    /// the agent measures, which is of its last probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<String>,
}
