//! What nodes were, and when and why that changed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far around a line its surroundings reach, milliseconds: `10m` where nothing is written.
///
/// # Errors
/// What the text is not.
pub fn within(text: Option<&str>) -> Result<u64, String> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("10m");
    crate::text::length(text)
}

/// One key that changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct KeyChangeView {
    /// The key, e.g. `nic.0.firmware`.
    pub key: String,
    /// As it was, as shown; other states than a value stand in angle brackets.
    pub from: String,
    /// As it is.
    pub to: String,
}

/// Every kind of a line of a node's history, as filters name it.
pub const KINDS: [&str; 13] = [
    "change",
    "boot",
    "agent",
    "driver",
    "device",
    "xid",
    "health",
    "cleared",
    "drain",
    "lifecycle",
    "liveness",
    "audit",
    "bmc",
];

/// A line of a node's history: a change of one of its classes, or something else that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntryView {
    /// Rises with each line of the node that this control hears of. Lines are in order of time: one
    /// that was told late stands where it happened.
    pub number: u64,
    /// When, RFC 3339. Of something that happened several times, the last time.
    pub at: String,
    /// `change` of a class; `boot` of the host, start and end of the `agent`; kernel module (`driver`)
    /// or `device` that came or went; `xid`, or what AMD's driver tells instead; reason of the `health`
    /// checks that came or went, or was `cleared`; `drain`, `lifecycle` and `liveness` as this
    /// control saw them; what the `audit` says of the node, and what its `bmc` did (tasks that ended)
    /// and logged, for those who may read the audit. Newer agents may tell of more.
    pub kind: String,
    /// All of it in a line, for a person.
    pub what: String,
    /// Who told it: `agent`, from its journal; `bmc`, as this control read it; or `control`.
    #[serde(default)]
    pub source: String,
    /// Under which boot of the host an agent wrote it; empty for what others told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Of a change, what made the agent, or control, look: `first`, `boot`, `driver_load`,
    /// `device_event`, `operator`, `agent_start`, `periodic`. The occasion, not a proof.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The cause in words, with the module, the device or the person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub occasion: String,
    /// Of a change, the class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Of a change, what was published before: `<schema>:<digest>`, `incomplete`, `disabled`. None
    /// for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Of a change, what is published since.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// The keys that changed, sorted. None for a class that was read for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<KeyChangeView>,
    /// Keys that changed and are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// Of everything but a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<NodeEventView>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What happened, in parts. Which there are depends on the kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NodeEventView {
    /// What became of it: `began`, `changed`, `ended` of a reason; `set`, `changed`, `cleared` of a
    /// drain; `unreachable`, `alive`, or `suspect` of a time that is over; `stopped` of an agent; the
    /// lifecycle; the audit's action; how a BMC's task ended: `completed`, `exception`, `killed`,
    /// `cancelled`, `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The part: `gpu.3`, a kernel module, a device; the name of a BMC's task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// The PCI address of a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Stable code: `gpu.xid.79`, `gpu.amd.fatal`, a check's name; the id of a BMC's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The number of an XID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<u32>,
    /// What was read or said: evidence, a reason, a version, the boot before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Who told of an XID: `nvml`, `kernel_log`, `both`; which of a BMC's logs, or its `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told_by: Option<String>,
    /// `inform`, `degraded`, `faulty`; in a BMC's own words `ok`, `warning`, `critical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// What helps: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`, `update`,
    /// `inspect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// A reason that is only watched.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub observe_only: bool,
    /// Whose the drain is, who cleared, who did what is in the audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// For how many occurrences it stands, where that is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The first of them, RFC 3339; of a boot, when the kernel began to run; of a BMC's task, when it
    /// began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at: Option<String>,
    /// Events of this kind before it that are not written down: too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// It happened at this time or before: this control did not look.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// When a BMC did it by its own clock, RFC 3339. Where that clock cannot be right, the line
    /// stands at `read_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc_time: Option<String>,
    /// When this control read it from the BMC, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_at: Option<String>,
}

/// One change that one or more nodes made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetChangeView {
    /// The class.
    pub class: String,
    /// What changed.
    #[serde(flatten)]
    pub change: KeyChangeView,
    /// `differs`; `unknown` where it could not be read before, or cannot be since: nobody knows
    /// whether it changed.
    pub verdict: String,
    /// Who changed so, as a hostlist.
    pub nodes: String,
    /// How many.
    pub count: u32,
    /// What made their agents look, with how many each: `boot`, `periodic`, …
    pub causes: std::collections::BTreeMap<String, u32>,
    /// The first of them, RFC 3339.
    pub first: String,
    /// The last of them, RFC 3339.
    pub last: String,
}

/// What changed anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangesView {
    /// From when on, RFC 3339.
    pub since: String,
    /// What is known to differ first, then what most nodes did, then by class and key.
    pub changes: Vec<FleetChangeView>,
    /// Nodes that were read for the first time since, as a hostlist.
    pub new: String,
    /// Entries that list only some of their keys: ask the node itself.
    pub left_out: u32,
    /// Present where more happened since than one answer holds: what was before this moment, RFC 3339,
    /// was not looked at. Nodes' own histories have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_back_to: Option<String>,
}
