//! Node histories, and changes over the fleet.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reads the maximum distance in time between a history line and the lines of its context, and returns it in
/// milliseconds. An absent or empty text means `10m`.
///
/// # Errors
/// A text that is not a duration; the error describes the fault.
pub fn context_ms(text: Option<&str>) -> Result<u64, String> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("10m");
    crate::notation::text::length(text)
}

/// Change of one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct KeyChangeView {
    /// Key, e.g. `nic.0.firmware`.
    pub key: String,
    /// Value before, as shown; states other than a value are in angle brackets.
    pub from: String,
    /// Value after, as shown.
    pub to: String,
}

/// Kinds of history lines, as filters name them.
pub const LINE_KINDS: [&str; 13] = [
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

/// Line of a node's history: a change of one class, or another event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntryView {
    /// Line number; it increases with each line of the node that this control receives. Lines are sorted by time, so a
    /// line that arrives late is placed at the time of the event.
    pub number: u64,
    /// Time of the event, RFC 3339. For an event that occurred several times, the last time.
    pub at: String,
    /// Kind of the line; newer agents may report more kinds.
    /// - `change`: a class changed.
    /// - `boot`: the host booted.
    /// - `agent`: the agent started or ended.
    /// - `driver`, `device`: a kernel module or a device was added or removed.
    /// - `xid`: XID, or an event of AMD's GPU driver or of a NIC driver.
    /// - `health`: a reason of the checks began, changed or ended; `cleared`: an operator cleared a reason.
    /// - `drain`, `lifecycle`, `liveness`: changes that this control observed.
    /// - `audit`: audit entries about the node; `bmc`: ended tasks and log entries of its BMC. Both are shown only to
    ///   callers that may read the audit.
    pub kind: String,
    /// Description in one line.
    pub what: String,
    /// Source of the line: `agent` (its journal), `bmc` (read by this control) or `control`.
    #[serde(default)]
    pub source: String,
    /// Boot id of the host when the agent wrote the line; empty for other sources.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// For a change, the trigger of the reading by the agent or control: `first`, `boot`, `driver_load`,
    /// `device_event`, `operator`, `agent_start`, `periodic`. The trigger need not be the cause of the change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// Description of the trigger, with the module, the device or the operator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub occasion: String,
    /// For a change, the class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// For a change, the state published before: `<schema>:<digest>`, `incomplete`, `disabled`. Absent at the first
    /// reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// For a change, the state published after it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Changed keys, sorted. Empty for a class that was read for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<KeyChangeView>,
    /// Number of changed keys that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// Event; present for every kind except `change`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<NodeEventView>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Event fields. The kind of the line determines which of them are present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NodeEventView {
    /// New state, depending on the kind of the line.
    /// - Health reason: `began`, `changed` or `ended`.
    /// - Drain: `set`, `changed` or `cleared`.
    /// - Liveness: `unreachable`, `alive`, or `suspect` for a past period as suspect.
    /// - Agent: `stopped`.
    /// - Lifecycle: the new lifecycle.
    /// - Audit entry: the action.
    /// - BMC task: the result: `completed`, `exception`, `killed`, `cancelled` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Affected part: `gpu.3`, a kernel module, a device; the name of a BMC task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// PCI address of a GPU or NIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Stable code: `gpu.xid.79`, `gpu.amd.fatal`, the name of a check; the id of a BMC message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// XID number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<u32>,
    /// Detail: evidence, a reason, a version, the previous boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Source of an XID or another driver event: `nvml`, `kernel_log`, `both`; name of the BMC log, or `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `inform`, `degraded`, `faulty`; from a BMC, in Redfish terms: `ok`, `warning`, `critical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Recommended action: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`, `update`, `inspect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Whether the reason is only observed and does not count in the health verdict.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub observe_only: bool,
    /// Owner of the drain, user that cleared the reason, or principal of the audit entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Number of occurrences that the line stands for, if there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Time of the first occurrence, RFC 3339; for a boot, the start of the kernel; for a BMC task, its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at: Option<String>,
    /// Number of preceding events of this kind that were not recorded, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u32,
    /// Whether the event may be older than the line's time, because this control was not observing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Time of the event by the BMC's clock, RFC 3339. If that clock cannot be right, the line is placed at `read_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc_time: Option<String>,
    /// Time at which this control read the event from the BMC, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_at: Option<String>,
}

/// Change that is the same on one or more nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetChangeView {
    /// Conformance class.
    pub class: String,
    /// Key and its values before and after.
    #[serde(flatten)]
    pub change: KeyChangeView,
    /// `differs`; `unknown` if the value was unreadable before or after, so that a change is not certain.
    pub verdict: String,
    /// Nodes with this change, as a hostlist.
    pub nodes: String,
    /// Number of nodes.
    pub count: u32,
    /// Triggers of the agents' readings, with the number of nodes for each: `boot`, `periodic`, …
    pub causes: std::collections::BTreeMap<String, u32>,
    /// Time of the first change, RFC 3339.
    pub first: String,
    /// Time of the last change, RFC 3339.
    pub last: String,
}

/// Changes over the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangesView {
    /// Start of the range, RFC 3339.
    pub since: String,
    /// Changes: known differences first, then by number of nodes (most first), class and key.
    pub changes: Vec<FleetChangeView>,
    /// Nodes that were read for the first time in the range, as a hostlist.
    pub new: String,
    /// Number of entries that list only part of their keys; the history of the node has the rest.
    pub left_out: u32,
    /// Present if the range has more entries than one answer holds. Entries before this time, RFC 3339, were not
    /// searched; the nodes' own histories have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_back_to: Option<String>,
}
