//! Storage: local disks, software RAID, and mounts of network file systems.
//!
//! The slot of a disk is its rank by PCI address, then by namespace, or by host, channel, target and LUN. Names
//! (`nvme3n1`, `sdb`) depend on the order in which drivers found the disks, and differ between equal nodes. Disks that
//! are not part of the node (USB, removable, network-attached) and devices built from others (loop, ram, zram, device
//! mapper) are omitted. The probe never accesses a mount: one that does not respond would hang the probe.

mod disks;
mod mounts;
mod nvme;
mod raid;

pub(crate) use mounts::without_identity as kept_mounts;
pub use mounts::{Mount, parse as parse_mounts};

use super::ProbeResult;
use crate::{Host, Root};
use lattice_conformance::{Class, Reading, Value, text};

/// Unit of disk sizes in `/sys`, in bytes, whatever the block size of the disk.
const SECTOR: u64 = 512;

/// Reads disks, RAID and mounts.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Storage);
    nvme::keys(&host.root, &mut probed);
    disks::keys(&host.root, &mut probed);
    raid::keys(&host.root, &mut probed);
    mounts::keys(&host.root, &mut probed);
    probed
}

/// Capacity in bytes of the block device in folder `dir`.
fn size(root: &Root, dir: &str) -> Reading<Value> {
    let sectors = root.line(format!("{dir}/size"));
    sectors
        .and_then(|size| text::unsigned(&size))
        .map(|sectors| Value::amount(sectors.saturating_mul(SECTOR)))
}

/// The active I/O scheduler.
fn scheduler(root: &Root, dir: &str) -> Reading<String> {
    root.line(format!("{dir}/queue/scheduler"))
        .and_then(|line| text::selected_word(&line))
}

/// Reads an unsigned number.
fn number(root: &Root, path: &str) -> Reading<Value> {
    root.line(path)
        .and_then(|line| text::unsigned(&line))
        .map(Value::amount)
}

/// Reads a flag: `0` or `1`.
fn flag(root: &Root, path: &str) -> Reading<Value> {
    root.line(path).and_then(|line| match line.as_str() {
        "0" => Reading::Present(Value::Flag(false)),
        "1" => Reading::Present(Value::Flag(true)),
        _ => Reading::failed(format!("{path}: neither 0 nor 1")),
    })
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
