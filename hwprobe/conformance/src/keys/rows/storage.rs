//! Rows of class `storage`: disks and file-system clients.

use super::PCI;
use crate::keys::{KeyRow, row};

const BLOCK: &str = "sysfs (block)";
const NVME: &str = "sysfs (nvme)";
const MOUNTS: &str = "/proc/1/mountinfo";

pub(super) const ROWS: &[KeyRow] = &[
    row("storage.nvme.count", "local NVMe controllers", "", NVME).required(),
    row("storage.nvme.<slot>.model", "model", "", NVME).required(),
    row("storage.nvme.<slot>.firmware", "firmware", "", NVME).required(),
    row(
        "storage.nvme.<slot>.transport",
        "how it is attached",
        "",
        NVME,
    ),
    row(
        "storage.nvme.<slot>.numa_node",
        "NUMA node it is attached to",
        "",
        NVME,
    ),
    row(
        "storage.nvme.<slot>.max_link_speed",
        "highest PCIe speed",
        "transfers/s",
        PCI,
    ),
    row("storage.nvme.<slot>.max_link_width", "PCIe lanes", "", PCI),
    row(
        "storage.nvme.<slot>.namespace.count",
        "namespaces",
        "",
        NVME,
    ),
    row(
        "storage.nvme.<slot>.namespace.<slot>.size",
        "namespace's size",
        "bytes",
        BLOCK,
    ),
    row(
        "storage.nvme.<slot>.namespace.<slot>.block_size",
        "logical block",
        "bytes",
        BLOCK,
    ),
    row(
        "storage.nvme.<slot>.namespace.<slot>.scheduler",
        "I/O scheduler",
        "",
        BLOCK,
    ),
    row("storage.disk.count", "other disks", "", BLOCK).required(),
    row("storage.disk.<slot>.size", "size", "bytes", BLOCK),
    row(
        "storage.disk.<slot>.block_size",
        "logical block",
        "bytes",
        BLOCK,
    ),
    row(
        "storage.disk.<slot>.<name>",
        "vendor, model, firmware, transport, scheduler",
        "",
        BLOCK,
    ),
    row("storage.raid.count", "software RAID arrays", "", BLOCK),
    row(
        "storage.raid.<slot>.<name>",
        "an array's level, members, chunk and metadata",
        "",
        BLOCK,
    )
    .needs_hardware(),
    row(
        "storage.automount",
        "automounters' mount points",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.names",
        "mount points of network file systems",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.<name>.type",
        "file system mounted there",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.<name>.export",
        "what is mounted, without its server",
        "",
        MOUNTS,
    ),
    row(
        "storage.mount.<name>.options",
        "options in force, addresses masked",
        "",
        MOUNTS,
    ),
    row(
        "storage.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
];
