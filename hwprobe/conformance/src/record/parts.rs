//! Digest of the devices of a class record, regardless of their places.

use super::ClassRecord;
use super::encode::{put_length, put_reading, put_text};
use crate::Digest;
use std::collections::BTreeMap;

impl ClassRecord {
    /// Digest of the known keys regardless of the slot, NUMA node, PCIe switch, locator, bank and location of devices:
    /// equal for two nodes with the same parts in different places. The record's own digest covers the layout.
    #[must_use]
    pub fn parts_digest(&self) -> Digest {
        parts_digest(self)
    }
}

/// The slot-free digest. Each device is a sorted tuple without its place; the tuples are sorted.
fn parts_digest(record: &ClassRecord) -> Digest {
    let mut devices: BTreeMap<(&str, &str), Vec<u8>> = BTreeMap::new();
    for (key, reading) in record.entries.iter().filter(|(_, r)| r.is_known()) {
        let (kind, slot, name) = part(key);
        if PLACES.contains(&name) {
            continue;
        }
        let tuple = devices.entry((kind, slot)).or_default();
        put_text(tuple, name);
        put_reading(tuple, reading);
    }
    let mut tuples: Vec<(&str, Vec<u8>)> = devices
        .into_iter()
        .map(|((prefix, _), tuple)| (prefix, tuple))
        .collect();
    tuples.sort();
    let mut out = Vec::new();
    for (prefix, tuple) in tuples {
        put_text(&mut out, prefix);
        put_length(&mut out, tuple.len());
        out.extend_from_slice(&tuple);
    }
    Digest::derive(
        &format!(
            "lattice conformance parts {} schema {}",
            record.class, record.schema
        ),
        &out,
    )
}

/// Properties of a device that depend on its place.
const PLACES: &[&str] = &["numa_node", "pci_switch", "locator", "bank", "location"];

/// Device kind, slot and name of a key. The slot is the first all-digit segment that is not the last one, so the
/// interfaces of a NIC stay with the NIC. A key without a slot belongs to no device.
fn part(key: &str) -> (&str, &str, &str) {
    let mut at = 0;
    while let Some(length) = key[at..].find('.') {
        let (segment, rest) = (&key[at..at + length], &key[at + length + 1..]);
        if at > 0 && !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
            return (&key[..at - 1], segment, rest);
        }
        at += length + 1;
    }
    ("", "", key)
}
