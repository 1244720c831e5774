//! Rows of class `gpu`: accelerators.

use super::{PCI, SWITCH, SYSFS};
use crate::keys::{KeyRow, row};

const NVML: &str = "NVML";
const AMD: &str = "sysfs (amdgpu)";
const DRIVER: &str = "/proc/driver/nvidia";

pub(super) const ROWS: &[KeyRow] = &[
    row(
        "gpu.count",
        "GPUs the driver can use; absent where there is none",
        "",
        NVML,
    )
    .required(),
    row("gpu.driver", "kernel driver's version", "", NVML).required(),
    row("gpu.nvml", "management library's version", "", NVML),
    row(
        "gpu.cuda",
        "highest CUDA version the driver supports",
        "",
        NVML,
    ),
    row(
        "gpu.driver_flavour",
        "open or proprietary kernel module",
        "",
        DRIVER,
    ),
    row(
        "gpu.module_version",
        "version of the loaded kernel module",
        "",
        SYSFS,
    ),
    row(
        "gpu.bus_count",
        "NVIDIA GPUs on the bus, driven or not",
        "",
        PCI,
    ),
    row(
        "gpu.parameter.<name>",
        "driver parameter in force",
        "",
        DRIVER,
    ),
    row(
        "gpu.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
    row("gpu.<slot>.model", "product name", "", NVML).required(),
    row("gpu.<slot>.memory", "memory", "bytes", NVML).required(),
    row("gpu.<slot>.vbios", "VBIOS version", "", NVML).required(),
    row("gpu.<slot>.architecture", "chip family", "", NVML),
    row(
        "gpu.<slot>.compute_capability",
        "CUDA compute capability",
        "",
        NVML,
    ),
    row("gpu.<slot>.part_number", "board part number", "", NVML),
    row("gpu.<slot>.pci_id", "PCI vendor and device", "", NVML),
    row(
        "gpu.<slot>.subsystem",
        "PCI subsystem vendor and device",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        PCI,
    ),
    row("gpu.<slot>.pci_switch", SWITCH, "", PCI).since_schema(2),
    row(
        "gpu.<slot>.max_link_generation",
        "highest PCIe generation of GPU and slot",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.own_link_generation",
        "highest PCIe generation of the GPU alone",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.max_link_width",
        "PCIe lanes of GPU and slot",
        "",
        NVML,
    ),
    row("gpu.<slot>.ecc", "memory error correction is on", "", NVML),
    row("gpu.<slot>.mig", "MIG mode is on", "", NVML),
    row(
        "gpu.<slot>.persistence",
        "the driver stays loaded without users",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.accounting",
        "accounting of processes is on",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.compute_mode",
        "compute mode: processes that may create contexts",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.confidential_compute",
        "confidential computing mode",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.gsp.enabled",
        "GSP firmware is enabled",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.gsp.default",
        "GSP firmware is used by default",
        "",
        NVML,
    ),
    row("gpu.<slot>.gsp.firmware", "GSP firmware version", "", NVML),
    row(
        "gpu.<slot>.inforom.<name>",
        "InfoROM object's version",
        "",
        NVML,
    ),
    row(
        "gpu.<slot>.clock.<name>.max",
        "highest clock of that domain",
        "Hz",
        NVML,
    ),
    row(
        "gpu.<slot>.power.default",
        "power limit the board comes with",
        "mW",
        NVML,
    ),
    row(
        "gpu.<slot>.power.min",
        "lowest power limit that may be set",
        "mW",
        NVML,
    ),
    row(
        "gpu.<slot>.power.max",
        "highest power limit that may be set",
        "mW",
        NVML,
    ),
    row("gpu.<slot>.nvlink.links", "NVLinks of the part", "", NVML),
    row("gpu.<slot>.nvlink.version", "NVLink version", "", NVML),
    row(
        "gpu.<slot>.nvlink.capabilities",
        "capabilities of the NVLinks",
        "",
        NVML,
    ),
    row(
        "gpu.amd.count",
        "AMD GPUs on the bus; unknown while one that needs a driver has none",
        "",
        PCI,
    )
    .required(),
    row(
        "gpu.amd.module_version",
        "version of the loaded kernel module",
        "",
        AMD,
    )
    .needs_hardware(),
    row("gpu.amd.<slot>.pci_id", "PCI vendor and device", "", PCI)
        .required()
        .needs_hardware(),
    row("gpu.amd.<slot>.vbios", "VBIOS version", "", AMD)
        .required()
        .needs_hardware(),
    row("gpu.amd.<slot>.memory", "memory", "bytes", AMD)
        .required()
        .needs_hardware(),
    row(
        "gpu.amd.<slot>.subsystem",
        "PCI subsystem vendor and device",
        "",
        PCI,
    )
    .needs_hardware(),
    row(
        "gpu.amd.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        PCI,
    )
    .needs_hardware(),
    row("gpu.amd.<slot>.pci_switch", SWITCH, "", PCI)
        .since_schema(2)
        .needs_hardware(),
    row(
        "gpu.amd.<slot>.max_link_speed",
        "highest PCIe speed",
        "transfers/s",
        PCI,
    )
    .needs_hardware(),
    row("gpu.amd.<slot>.max_link_width", "PCIe lanes", "", PCI).needs_hardware(),
    row(
        "gpu.amd.<slot>.compute_partition",
        "how computing is split (SPX, CPX)",
        "",
        AMD,
    )
    .needs_hardware(),
    row(
        "gpu.amd.<slot>.memory_partition",
        "how memory is split (NPS1, NPS4)",
        "",
        AMD,
    )
    .needs_hardware(),
    row(
        "gpu.amd.<slot>.firmware.<name>",
        "firmware of that block",
        "",
        AMD,
    )
    .needs_hardware(),
];
