//! Rows of class `memory`: DIMMs and NUMA topology.

use crate::keys::{KeyRow, row};

const SMBIOS: &str = "SMBIOS";
const EDAC: &str = "sysfs (EDAC)";
const NUMA: &str = "sysfs (node)";
const CXL: &str = "sysfs (CXL)";

pub(super) const ROWS: &[KeyRow] = &[
    row("memory.numa.count", "NUMA nodes", "", NUMA).required(),
    row("memory.numa.<slot>.cpus", "threads of that node", "", NUMA),
    row(
        "memory.numa.<slot>.distance",
        "distances from that node",
        "",
        NUMA,
    ),
    row("memory.installed", "memory in all slots", "bytes", SMBIOS),
    row("memory.ecc", "error correction of the arrays", "", SMBIOS),
    row("memory.dimm.count", "slots for modules", "", SMBIOS),
    row(
        "memory.dimm.<slot>.size",
        "module's size; absent in an empty slot",
        "bytes",
        SMBIOS,
    ),
    row(
        "memory.dimm.<slot>.speed",
        "configured speed",
        "transfers/s",
        SMBIOS,
    ),
    row(
        "memory.dimm.<slot>.<name>",
        "locator, manufacturer, part number, rank, type, technology",
        "",
        SMBIOS,
    ),
    row("memory.controller.count", "memory controllers", "", EDAC),
    row(
        "memory.edac.count",
        "modules that the kernel's error detection reports",
        "",
        EDAC,
    ),
    row(
        "memory.edac.<slot>.size",
        "size of a module reported by EDAC",
        "bytes",
        EDAC,
    ),
    row(
        "memory.edac.<slot>.<name>",
        "type, location and error correction of a module reported by EDAC",
        "",
        EDAC,
    ),
    row("memory.cxl.count", "CXL memory devices", "", CXL),
    row("memory.cxl.region.count", "CXL regions", "", CXL),
    row(
        "memory.cxl.region.<slot>.<name>",
        "a region's mode, size and interleaving",
        "",
        CXL,
    )
    .needs_hardware(),
    row(
        "memory.cxl.<slot>.<name>",
        "a device's firmware and capacities",
        "",
        CXL,
    )
    .needs_hardware(),
    row(
        "memory.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .required()
    .needs_hardware(),
];
