//! Rows of class `cpu`: processors.

use super::{CPU, CPUINFO};
use crate::keys::{KeyRow, row};

pub(super) const ROWS: &[KeyRow] = &[
    row("cpu.vendor", "vendor", "", CPUINFO).required(),
    row("cpu.family", "family", "", CPUINFO).required(),
    row("cpu.model", "model number", "", CPUINFO).required(),
    row("cpu.model_name", "model name", "", CPUINFO).required(),
    row("cpu.stepping", "stepping", "", CPUINFO).required(),
    row("cpu.variant", "variant (Arm)", "", CPUINFO),
    row("cpu.flags", "features", "", CPUINFO),
    row("cpu.address_sizes", "address widths", "", CPUINFO),
    row("cpu.sockets", "packages", "", CPU).required(),
    row("cpu.cores", "cores", "", CPU).required(),
    row("cpu.threads", "hardware threads", "", CPU).required(),
    row("cpu.dies", "dies", "", CPU),
    row("cpu.online", "threads that are online", "", CPU),
    row(
        "cpu.cache.<name>.threads",
        "threads that share that cache",
        "",
        CPU,
    ),
    row("cpu.cache.<name>", "size of that cache", "bytes", CPU),
    row(
        "cpu.probe.<name>",
        "in the record only while the probe gives no result; always unknown",
        "",
        "the agent",
    )
    .needs_hardware(),
];
