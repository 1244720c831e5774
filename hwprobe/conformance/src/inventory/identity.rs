//! Identity of a node: names, serials and addresses. Never part of a digest.

use crate::Reading;
use serde::{Deserialize, Serialize};

/// Names, serial numbers and addresses of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Host name, as reported by the kernel.
    pub hostname: Reading<String>,
    /// Boot id of the kernel; changes with every boot.
    pub boot_id: Reading<String>,
    /// System vendor.
    pub vendor: Reading<String>,
    /// Product name.
    pub product: Reading<String>,
    /// Product serial number (root only).
    pub product_serial: Reading<String>,
    /// Product UUID, lower-case (root only).
    pub product_uuid: Reading<String>,
    /// Board serial number (root only).
    pub board_serial: Reading<String>,
    /// Chassis serial number (root only).
    pub chassis_serial: Reading<String>,
    /// GPU model, if all GPUs share one; otherwise the sorted models joined by ` + `.
    pub gpu_model: Reading<String>,
    /// Number of GPUs.
    pub gpu_count: Reading<u32>,
    /// GPUs by slot.
    pub gpus: Vec<GpuIdentity>,
    /// Network functions by slot.
    pub nics: Vec<NicIdentity>,
    /// DIMM serial numbers by slot (root only).
    pub dimm_serials: Vec<Reading<String>>,
    /// Disks by slot.
    #[serde(default)]
    pub disks: Vec<DiskIdentity>,
}

/// Identity of one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskIdentity {
    /// `nvme.<slot>` or `disk.<slot>`, as in conformance keys.
    pub slot: String,
    /// PCI address of the controller; absent if sysfs links the device to none.
    pub address: Reading<String>,
    /// Kernel name of the disk.
    pub name: String,
    /// Serial number.
    pub serial: Reading<String>,
    /// World-wide name, or the NVMe subsystem's qualified name.
    pub wwid: Reading<String>,
}

/// Identity of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuIdentity {
    /// Rank by PCI address, as in conformance keys.
    pub slot: u32,
    /// PCI address, `domain:bus:device.function`.
    pub address: Reading<String>,
    /// Model name.
    pub model: Reading<String>,
    /// UUID reported by NVIDIA's driver, or the unique id of an AMD GPU.
    pub uuid: Reading<String>,
    /// Board serial number.
    pub serial: Reading<String>,
}

/// Identity of one network function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicIdentity {
    /// Rank by PCI address, as in conformance keys.
    pub slot: u32,
    /// PCI address; absent if sysfs links the device to none.
    pub address: Reading<String>,
    /// RDMA device names (`mlx5_0`), sorted.
    pub rdma: Vec<String>,
    /// Network interface names, sorted.
    pub interfaces: Vec<String>,
    /// Hardware addresses of `interfaces`, in the same order; for a Slingshot NIC without interfaces, the address that
    /// `cxi_stat` reports.
    pub macs: Vec<Reading<String>>,
    /// RDMA node GUID of the first RDMA device.
    pub node_guid: Reading<String>,
    /// Serial number of the card, if its driver reports one.
    #[serde(default)]
    pub serial: Reading<String>,
    /// Slingshot fabric address, decimal.
    #[serde(default)]
    pub nid: Reading<String>,
}

impl Identity {
    /// Merges the identity found by another probe.
    pub(crate) fn absorb(&mut self, other: Self) {
        let mut old = std::mem::take(self);
        old.gpus.extend(other.gpus);
        old.nics.extend(other.nics);
        old.dimm_serials.extend(other.dimm_serials);
        old.disks.extend(other.disks);
        *self = Self {
            hostname: old.hostname.or_if_disabled(other.hostname),
            boot_id: old.boot_id.or_if_disabled(other.boot_id),
            vendor: old.vendor.or_if_disabled(other.vendor),
            product: old.product.or_if_disabled(other.product),
            product_serial: old.product_serial.or_if_disabled(other.product_serial),
            product_uuid: old.product_uuid.or_if_disabled(other.product_uuid),
            board_serial: old.board_serial.or_if_disabled(other.board_serial),
            chassis_serial: old.chassis_serial.or_if_disabled(other.chassis_serial),
            gpu_model: old.gpu_model.or_if_disabled(other.gpu_model),
            gpu_count: old.gpu_count.or_if_disabled(other.gpu_count),
            gpus: old.gpus,
            nics: old.nics,
            dimm_serials: old.dimm_serials,
            disks: old.disks,
        };
    }
}
