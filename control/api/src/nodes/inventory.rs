//! Inventory: all readings of a node's probes, the answer of `GET /nodes/{id}/inventory`. Control forwards the agent's
//! document unchanged; these types describe its format for clients in any language.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Result of reading one value: `{"present": …}`, `"absent"`, `"unsupported"`, `{"denied": {"why": …}}` and so on.
/// `present`, `absent` and `unsupported` are known states. The others are unknown: never equal, never zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ReadingView<T> {
    /// Value that was read.
    Present(T),
    /// The bus, firmware or kernel reports that the value does not exist.
    Absent,
    /// The device is present and reports that it does not support the value, or returns a placeholder.
    Unsupported,
    /// Access to the value is denied.
    Denied {
        /// Cause of the denial.
        why: String,
    },
    /// Reading failed.
    Failed {
        /// Cause of the failure.
        why: String,
    },
    /// There was no answer before the deadline.
    Timeout {
        /// Deadline, milliseconds.
        after_ms: u64,
    },
    /// The value was not requested, by policy or because no probe exists.
    Disabled {
        /// Policy that disables the reading, or the absence of a probe.
        why: String,
    },
}

/// Value of a key: boolean, integer in base units (bytes, milliwatts, hertz), text, or a list with significant order.
/// `hwprobe/conformance/KEYS.md` defines type and unit of each key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ValueView {
    /// Boolean.
    Flag(bool),
    /// Integer in base units.
    Number(i64),
    /// Text.
    Text(String),
    /// List with significant order.
    List(Vec<String>),
}

/// Record of one conformance class: all values that should be equal on equal nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordView {
    /// Conformance class.
    pub class: String,
    /// Schema version of keys and values.
    pub schema: u16,
    /// Every key, such as `nic.0.firmware`, with the result of reading it.
    pub entries: BTreeMap<String, ReadingView<ValueView>>,
    /// Keys without which the class has no digest.
    pub required: BTreeSet<String>,
    /// Why the class is not probed; null if it is probed.
    pub disabled: Option<String>,
}

/// Inventory: result of one pass over a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryView {
    /// One record for each class.
    pub records: BTreeMap<String, RecordView>,
    /// Names, serial numbers, addresses: never compared.
    pub identity: InventoryIdentity,
    /// Properties that placement may require.
    pub resources: InventoryResources,
    /// Topology of the node's devices.
    pub topology: InventoryTopology,
    /// Live values, by key.
    pub vitals: BTreeMap<String, ReadingView<ValueView>>,
    /// Power draw, from the best available source; null if nothing measures it.
    pub power: Option<InventoryPower>,
    /// Contradictions between sources.
    pub findings: Vec<FindingView>,
    /// Outcome of each probe.
    pub probes: Vec<ProbeView>,
    /// Number of processes of earlier probes that could not be killed and still exist, by probe.
    pub stuck: BTreeMap<String, u32>,
}

/// Identity of the node and of its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryIdentity {
    /// Host name.
    pub hostname: ReadingView<String>,
    /// Boot id.
    pub boot_id: ReadingView<String>,
    /// System vendor.
    pub vendor: ReadingView<String>,
    /// Product name.
    pub product: ReadingView<String>,
    /// Serial number of the system.
    pub product_serial: ReadingView<String>,
    /// UUID of the system.
    pub product_uuid: ReadingView<String>,
    /// Serial number of the board.
    pub board_serial: ReadingView<String>,
    /// Serial number of the chassis.
    pub chassis_serial: ReadingView<String>,
    /// GPU model, if all GPUs share one.
    pub gpu_model: ReadingView<String>,
    /// Number of GPUs.
    pub gpu_count: ReadingView<u32>,
    /// GPUs of the node.
    pub gpus: Vec<GpuPart>,
    /// NICs of the node.
    pub nics: Vec<NicPart>,
    /// Serial numbers of the memory modules.
    pub dimm_serials: Vec<ReadingView<String>>,
    /// Disks of the node.
    pub disks: Vec<DiskPart>,
}

/// Identity of the GPU in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuPart {
    /// Slot number, as in the keys `gpu.<slot>`.
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

/// Identity of the NIC in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NicPart {
    /// Slot number, as in the keys `nic.<slot>`.
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

/// Identity of the disk in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskPart {
    /// Slot name, as in the keys `storage.<slot>`.
    pub slot: String,
    /// PCI address.
    pub address: ReadingView<String>,
    /// Device name in the kernel.
    pub name: String,
    /// Serial number.
    pub serial: ReadingView<String>,
    /// World-wide id.
    pub wwid: ReadingView<String>,
}

/// Properties that placement may require. An unknown value is never zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryResources {
    /// GPU model, if all GPUs share one.
    pub gpu_model: ReadingView<String>,
    /// Number of GPUs that the driver can use; absent on a node without any.
    pub gpu_count: ReadingView<u32>,
    /// Memory of the smallest GPU, bytes.
    pub gpu_memory_bytes: ReadingView<u64>,
    /// Memory that the kernel can use, bytes.
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
    /// Features that were detected. A feature that is not listed may be absent or unknown.
    pub features: BTreeSet<String>,
}

/// Topology of the devices, as read from the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryTopology {
    /// NVLinks by peer.
    pub nvlinks: Vec<NvlinkView>,
    /// Distances between devices.
    pub pairs: Vec<PairView>,
    /// NVLink fabric that the node belongs to.
    pub fabric: ReadingView<String>,
    /// Physical position of each GPU.
    pub places: Vec<GpuPlaceView>,
}

/// NVLinks of a GPU to one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NvlinkView {
    /// Slot number of the GPU.
    pub gpu: u32,
    /// Peer device.
    pub to: ReadingView<String>,
    /// Number of links.
    pub links: u32,
}

/// Distance between two devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PairView {
    /// First device, such as `gpu.0`.
    pub a: String,
    /// Second device, such as `nic.1`.
    pub b: String,
    /// `PIX`, `PXB`, `PHB`, `NODE` or `SYS`, as in `nvidia-smi topo`.
    pub distance: ReadingView<String>,
}

/// Physical position of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuPlaceView {
    /// Slot number of the GPU.
    pub gpu: u32,
    /// Module number on the board.
    pub module: ReadingView<u32>,
    /// Serial number of the chassis.
    pub chassis_serial: ReadingView<String>,
    /// Slot number in the chassis.
    pub slot: ReadingView<u32>,
    /// Tray number.
    pub tray: ReadingView<u32>,
    /// Host number in the tray.
    pub host: ReadingView<u32>,
}

/// Power draw and power limit of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventoryPower {
    /// Power draw, milliwatts.
    pub draw: ReadingView<u64>,
    /// Power limit, milliwatts.
    pub limit: ReadingView<u64>,
    /// `absent`, `uncapped`, `set` or `unknown`.
    pub limit_state: String,
    /// Lowest limit that may be set, milliwatts.
    pub limit_min: ReadingView<u64>,
    /// Highest limit that may be set, milliwatts.
    pub limit_max: ReadingView<u64>,
    /// Action of the BMC when the limit cannot be kept.
    pub exception_action: ReadingView<String>,
    /// Source of the power draw.
    pub source: String,
}

/// Contradiction between two sources that should agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindingView {
    /// Conformance class of the finding.
    pub class: String,
    /// Stable code, such as `gpu_count_mismatch`.
    pub code: String,
    /// Free-text description.
    pub detail: String,
}

/// Outcome of one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeView {
    /// Probe name.
    pub name: String,
    /// Conformance class that the probe reads.
    pub class: String,
    /// Wall time, microseconds.
    pub duration_us: u64,
    /// `complete`, `incomplete`, `hung`, `failed` or `disabled`.
    pub outcome: String,
    /// Number of keys in the record.
    pub keys: u32,
    /// Number of keys that are unknown.
    pub unknown: u32,
    /// Reason that the probe returned no result; null if it returned one.
    pub loss: Option<LossView>,
    /// Free-text description of `loss`.
    pub why: Option<String>,
}

/// Reason that a probe returned no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum LossView {
    /// There was no answer before the deadline.
    Hung {
        /// Deadline, milliseconds.
        after_ms: u64,
    },
    /// The probe was not started: too many of its earlier processes cannot be killed.
    Stuck {
        /// Number of these processes.
        processes: u32,
        /// Deadline that each of them missed, milliseconds.
        after_ms: u64,
    },
    /// The probe's process ended without an answer, or with an invalid one.
    Failed {
        /// Cause of the failure of the process.
        why: String,
    },
}
