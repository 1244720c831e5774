//! Everything a node's probes read, as the node tells it: what `GET /nodes/{id}/inventory` answers. The
//! document is the agent's own, handed on as it came; these types say how it reads, so that a client in
//! any language can.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// What came of reading one value: `{"present": …}`, `"absent"`, `"unsupported"`, `{"denied": {"why": …}}`
/// and so on. `present`, `absent` and `unsupported` are knowledge; the others are unknown: never equal,
/// never zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ReadingView<T> {
    /// The value.
    Present(T),
    /// The bus, firmware or kernel says there is none.
    Absent,
    /// The device is there and says it cannot answer, or answers with a placeholder.
    Unsupported,
    /// It may not be read.
    Denied {
        /// What refused.
        why: String,
    },
    /// Reading went wrong.
    Failed {
        /// What went wrong.
        why: String,
    },
    /// No answer within the deadline.
    Timeout {
        /// The deadline, milliseconds.
        after_ms: u64,
    },
    /// Not asked, by policy or because no probe exists.
    Disabled {
        /// Who decided.
        why: String,
    },
}

/// The value of a key: yes or no, an integer in base units (bytes, milliwatts, hertz), text, or a list
/// whose order matters. Which it is, and its unit, is in `hwprobe/KEYS.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ValueView {
    /// Yes or no.
    Flag(bool),
    /// In base units.
    Number(i64),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<String>),
}

/// Everything of one class that should be equal between equal nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordView {
    /// The class.
    pub class: String,
    /// The schema of keys and values.
    pub schema: u16,
    /// Every key, such as `nic.0.firmware`, with what came of reading it.
    pub entries: BTreeMap<String, ReadingView<ValueView>>,
    /// Keys without which the class has no digest.
    pub required: BTreeSet<String>,
    /// Why the class is not probed; null where it is.
    pub disabled: Option<String>,
}

/// Everything one pass over a node learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryView {
    /// One record for each class.
    pub records: BTreeMap<String, RecordView>,
    /// Names, serials, addresses: never compared.
    pub identity: InventoryIdentity,
    /// What placement may ask.
    pub facts: InventoryFacts,
    /// How its devices hang together.
    pub topology: InventoryTopology,
    /// Live values, by key.
    pub vitals: BTreeMap<String, ReadingView<ValueView>>,
    /// What it draws, by the best source that was asked; null where nothing measures it.
    pub power: Option<InventoryPower>,
    /// Contradictions between sources.
    pub findings: Vec<FindingView>,
    /// How each probe went.
    pub probes: Vec<ProbeView>,
    /// Processes of earlier probes that could not be ended and are still there, by probe.
    pub stuck: BTreeMap<String, u32>,
}

/// Which node it is, and which parts are in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryIdentity {
    /// The host's name.
    pub hostname: ReadingView<String>,
    /// The boot.
    pub boot_id: ReadingView<String>,
    /// System vendor.
    pub vendor: ReadingView<String>,
    /// Product name.
    pub product: ReadingView<String>,
    /// The system's serial number.
    pub product_serial: ReadingView<String>,
    /// The system's UUID.
    pub product_uuid: ReadingView<String>,
    /// The board's serial number.
    pub board_serial: ReadingView<String>,
    /// The chassis' serial number.
    pub chassis_serial: ReadingView<String>,
    /// GPU model, if all GPUs share one.
    pub gpu_model: ReadingView<String>,
    /// Number of GPUs.
    pub gpu_count: ReadingView<u32>,
    /// Its GPUs.
    pub gpus: Vec<GpuPart>,
    /// Its NICs.
    pub nics: Vec<NicPart>,
    /// Serial numbers of its memory modules.
    pub dimm_serials: Vec<ReadingView<String>>,
    /// Its disks.
    pub disks: Vec<DiskPart>,
}

/// Which GPU is in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuPart {
    /// As in `gpu.<slot>` of keys.
    pub slot: u32,
    /// PCI address.
    pub address: ReadingView<String>,
    /// Model.
    pub model: ReadingView<String>,
    /// UUID.
    pub uuid: ReadingView<String>,
    /// Serial number.
    pub serial: ReadingView<String>,
}

/// Which NIC is in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NicPart {
    /// As in `nic.<slot>` of keys.
    pub slot: u32,
    /// PCI address.
    pub address: ReadingView<String>,
    /// RDMA devices.
    pub rdma: Vec<String>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
    /// MAC addresses, in the order of the interfaces.
    pub macs: Vec<ReadingView<String>>,
    /// Node GUID of an RDMA device.
    pub node_guid: ReadingView<String>,
    /// Serial number.
    pub serial: ReadingView<String>,
    /// Fabric address of a Slingshot NIC.
    pub nid: ReadingView<String>,
}

/// Which disk is in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskPart {
    /// As in `storage.<slot>` of keys.
    pub slot: String,
    /// PCI address.
    pub address: ReadingView<String>,
    /// The kernel's name.
    pub name: String,
    /// Serial number.
    pub serial: ReadingView<String>,
    /// World-wide id.
    pub wwid: ReadingView<String>,
}

/// The node as a resource. What is not known is never zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryFacts {
    /// GPU model, if all GPUs share one.
    pub gpu_model: ReadingView<String>,
    /// Number of GPUs the driver can use; absent on a node without any.
    pub gpu_count: ReadingView<u32>,
    /// Memory of the smallest GPU, bytes.
    pub gpu_memory_bytes: ReadingView<u64>,
    /// Memory the kernel can use, bytes.
    pub memory_bytes: ReadingView<u64>,
    /// Processor packages.
    pub sockets: ReadingView<u32>,
    /// Physical cores.
    pub cores: ReadingView<u32>,
    /// Hardware threads online.
    pub threads: ReadingView<u32>,
    /// NUMA nodes.
    pub numa_nodes: ReadingView<u32>,
    /// RDMA-capable network functions.
    pub rdma_count: ReadingView<u32>,
    /// What was seen to be there; what is not named may be missing or unknown.
    pub features: BTreeSet<String>,
}

/// How devices hang together, read from the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryTopology {
    /// NVLinks by peer.
    pub nvlinks: Vec<NvlinkView>,
    /// Distances between devices.
    pub pairs: Vec<PairView>,
    /// The NVLink fabric it belongs to.
    pub fabric: ReadingView<String>,
    /// Where its GPUs sit.
    pub places: Vec<GpuPlaceView>,
}

/// Links of a GPU to one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NvlinkView {
    /// The GPU's slot.
    pub gpu: u32,
    /// The peer.
    pub to: ReadingView<String>,
    /// How many links.
    pub links: u32,
}

/// How far two devices are from each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PairView {
    /// One, such as `gpu.0`.
    pub a: String,
    /// The other, such as `nic.1`.
    pub b: String,
    /// `PIX`, `PXB`, `PHB`, `NODE` or `SYS`, as `nvidia-smi topo` says it.
    pub distance: ReadingView<String>,
}

/// Where a GPU sits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuPlaceView {
    /// The GPU's slot.
    pub gpu: u32,
    /// The module on its board.
    pub module: ReadingView<u32>,
    /// The chassis' serial number.
    pub chassis_serial: ReadingView<String>,
    /// The slot in the chassis.
    pub slot: ReadingView<u32>,
    /// The tray.
    pub tray: ReadingView<u32>,
    /// The host in the tray.
    pub host: ReadingView<u32>,
}

/// What the node draws and what limits it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryPower {
    /// Milliwatts.
    pub draw: ReadingView<u64>,
    /// Milliwatts.
    pub limit: ReadingView<u64>,
    /// `absent`, `uncapped`, `set` or `unknown`.
    pub limit_state: String,
    /// Lowest limit that may be set, milliwatts.
    pub limit_min: ReadingView<u64>,
    /// Highest limit that may be set, milliwatts.
    pub limit_max: ReadingView<u64>,
    /// What happens when the limit cannot be kept.
    pub exception_action: ReadingView<String>,
    /// Where the draw comes from.
    pub source: String,
}

/// Two sources that should agree do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindingView {
    /// The class it was found in.
    pub class: String,
    /// Stable code, such as `gpu_count_mismatch`.
    pub code: String,
    /// What was seen, for a person.
    pub detail: String,
}

/// How one probe went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeView {
    /// Its name.
    pub name: String,
    /// The class it fills.
    pub class: String,
    /// Wall time, microseconds.
    pub duration_us: u64,
    /// `complete`, `incomplete`, `hung`, `failed` or `disabled`.
    pub outcome: String,
    /// Keys in the record.
    pub keys: u32,
    /// Keys that are unknown.
    pub unknown: u32,
    /// What went wrong, where the probe as a whole gave nothing.
    pub loss: Option<LossView>,
    /// The same for a person.
    pub why: Option<String>,
}

/// Why a probe as a whole gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum LossView {
    /// It said nothing within its deadline.
    Hung {
        /// The deadline, milliseconds.
        after_ms: u64,
    },
    /// It was not started: too many of its earlier processes cannot be ended.
    Stuck {
        /// How many there are.
        processes: u32,
        /// The deadline each of them missed, milliseconds.
        after_ms: u64,
    },
    /// Its process ended without an answer, or answered nonsense.
    Failed {
        /// How.
        why: String,
    },
}
