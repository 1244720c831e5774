//! Memory: DIMMs from the firmware and the memory controllers, CXL, NUMA topology.
//!
//! The conformance value is the capacity of the DIMMs. `MemTotal` varies with the kernel's reservations, so it is a
//! resource for placement and not a conformance value.

mod cxl;

use super::ProbeResult;
use crate::smbios::{self, MemoryDevice};
use crate::{Host, Root};
use lattice_conformance::{Class, ClassRecord, Reading, Value, text};

/// The raw SMBIOS table; readable by root only.
pub(crate) const DMI_TABLE: &str = "/sys/firmware/dmi/tables/DMI";
const NODES: &str = "/sys/devices/system/node";
const CONTROLLERS: &str = "/sys/devices/system/edac/mc";

/// Reads DIMMs, memory controllers, CXL memory, NUMA nodes and usage.
#[must_use]
pub fn probe(host: &Host) -> ProbeResult {
    let mut probed = ProbeResult::new(Class::Memory);
    let root = &host.root;
    let nodes = numa(root, &mut probed.record);
    let seen = edac(root, &mut probed);
    let table = root.bytes(DMI_TABLE);
    let dimms = table
        .as_ref()
        .and_then(|table| smbios::memory_devices(table));
    dimm_keys(&dimms, &mut probed.record);
    let record = &mut probed.record;
    let correction = table.and_then(|table| smbios::error_correction(&table));
    record.put("memory.ecc", correction);
    record.put("memory.installed", installed(&dimms, seen));
    cxl::keys(root, &mut probed);
    probed.identity.dimm_serials = dimms
        .present()
        .into_iter()
        .flatten()
        .map(|dimm| dimm.serial.clone())
        .collect();
    probed.resources.numa_nodes = nodes;
    let meminfo = root.text("/proc/meminfo");
    let of = |name: &str| meminfo.as_ref().and_then(|text| meminfo_bytes(text, name));
    probed.resources.memory_bytes = match of("MemTotal") {
        Reading::Absent if meminfo != Reading::Absent => {
            Reading::failed("/proc/meminfo: no MemTotal in kB")
        }
        total => total,
    };
    // Memory that the kernel took out of use after errors, in bytes.
    let poisoned = of("HardwareCorrupted").map(Value::amount);
    probed.vitals.put("memory.hardware_corrupted", poisoned);
    super::usage::memory(host, &mut probed.vitals);
    probed
}

/// One line of `/proc/meminfo` in bytes; absent without such a line.
#[must_use]
pub fn meminfo_bytes(meminfo: &str, name: &str) -> Reading<u64> {
    let mut lines = meminfo.lines().filter_map(|line| line.split_once(':'));
    let Some((_, value)) = lines.find(|(found, _)| *found == name) else {
        return Reading::Absent;
    };
    match value.trim().strip_suffix("kB") {
        Some(kib) => text::unsigned(kib).map(|kib| kib.saturating_mul(1024)),
        None => Reading::failed(format!("/proc/meminfo: {name} is not in kB")),
    }
}

/// Capacity of all DIMMs: from the firmware, which lists each DIMM, else from the memory controllers. Reading the
/// memory controllers needs no privilege.
fn installed(dimms: &Reading<Vec<MemoryDevice>>, seen: Option<u64>) -> Reading<Value> {
    let total_of_dimms = dimms.as_ref().and_then(|dimms| {
        let mut total: u64 = 0;
        for dimm in dimms {
            match &dimm.size {
                Reading::Present(size) => total = total.saturating_add(*size),
                Reading::Absent => {}
                // A DIMM of unknown size makes the sum unknown, not smaller.
                unknown => return unknown.clone(),
            }
        }
        Reading::Present(total)
    });
    match (total_of_dimms, seen) {
        (Reading::Present(total), _) => Reading::Present(Value::amount(total)),
        (_, Some(total)) => Reading::Present(Value::amount(total)),
        (unknown, None) => unknown.map(Value::amount),
    }
}

fn numa(root: &Root, record: &mut ClassRecord) -> Reading<u32> {
    let names = root.list(NODES);
    let numbers = names.map(|names| {
        let numbers = names.iter().filter_map(|name| name.strip_prefix("node"));
        let mut numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    });
    let count = numbers
        .as_ref()
        .map(|numbers| u32::try_from(numbers.len()).unwrap_or(u32::MAX));
    record.require("memory.numa.count", count.clone());
    for number in numbers.present().into_iter().flatten() {
        let read = |file: &str| root.line(format!("{NODES}/node{number}/{file}"));
        record.put(format!("memory.numa.{number}.distance"), read("distance"));
        record.put(format!("memory.numa.{number}.cpus"), read("cpulist"));
    }
    count
}

/// Reads the DIMMs of the memory controllers, in the controllers' order, and their error counts. Returns the sum of the
/// sizes if there are any and all are known.
fn edac(root: &Root, probed: &mut ProbeResult) -> Option<u64> {
    let controllers = root.list(CONTROLLERS).map(|mut names| {
        names.retain(|name| name.starts_with("mc") && name.len() > 2);
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    });
    let mut slot: u32 = 0;
    let mut sum: Option<u64> = Some(0);
    for (index, controller) in controllers.present().into_iter().flatten().enumerate() {
        let dir = format!("{CONTROLLERS}/{controller}");
        for file in ["ce_count", "ue_count", "ce_noinfo_count", "ue_noinfo_count"] {
            let count = error_count(root, &format!("{dir}/{file}"));
            let key = format!("memory.controller.{index}.{file}");
            probed.vitals.put(key, count);
        }
        for dimm in natural_order(root.list(&dir)) {
            if !dimm.starts_with("dimm") && !dimm.starts_with("rank") {
                continue;
            }
            let size = edac_dimm(root, &format!("{dir}/{dimm}"), slot, probed);
            sum = sum.zip(size).map(|(sum, size)| sum.saturating_add(size));
            slot += 1;
        }
    }
    let record = &mut probed.record;
    let count = controllers.as_ref().map(|names| names.len());
    record.put(
        "memory.controller.count",
        count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
    );
    record.put("memory.edac.count", controllers.map(|_| slot));
    sum.filter(|_| slot > 0)
}

/// Reads one DIMM of a controller; returns its size if known.
fn edac_dimm(root: &Root, dir: &str, slot: u32, probed: &mut ProbeResult) -> Option<u64> {
    let read = |file: &str| root.line(format!("{dir}/{file}"));
    let key = |name: &str| format!("memory.edac.{slot}.{name}");
    let size = read("size").and_then(|size| mebibytes(&size));
    let record = &mut probed.record;
    record.put(key("size"), size.clone().map(Value::amount));
    record.put(key("type"), read("dimm_mem_type"));
    record.put(key("ecc"), read("dimm_edac_mode"));
    record.put(key("location"), read("dimm_location"));
    for (name, file) in [("ce_count", "dimm_ce_count"), ("ue_count", "dimm_ue_count")] {
        let count = error_count(root, &format!("{dir}/{file}"));
        probed.vitals.put(key(name), count);
    }
    size.present().copied()
}

fn error_count(root: &Root, path: &str) -> Reading<Value> {
    let count = root.line(path);
    count
        .and_then(|count| text::unsigned(&count))
        .map(Value::amount)
}

/// Natural order: `dimm2` before `dimm10`.
fn natural_order(names: Reading<Vec<String>>) -> Vec<String> {
    let mut names = names.present().cloned().unwrap_or_default();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

fn mebibytes(size: &str) -> Reading<u64> {
    text::unsigned(size).map(|size| size.saturating_mul(1 << 20))
}

/// Adds optional keys: an agent without root cannot read the table and still has a digest. A string in the table that
/// cannot be decoded leaves the class incomplete.
fn dimm_keys(dimms: &Reading<Vec<MemoryDevice>>, record: &mut ClassRecord) {
    let count = dimms
        .as_ref()
        .map(|dimms| u32::try_from(dimms.len()).unwrap_or(u32::MAX));
    record.put("memory.dimm.count", count);
    for (slot, dimm) in dimms.present().into_iter().flatten().enumerate() {
        let mut put = |name: &str, reading: Reading<Value>| {
            let key = format!("memory.dimm.{slot}.{name}");
            match dimm.has_undecodable_string {
                true => record.require_if_failed(key, reading),
                false => record.put(key, reading),
            }
        };
        put("locator", dimm.locator.clone().map(Value::Text));
        put("bank", dimm.bank.clone().map(Value::Text));
        put("size", dimm.size.clone().map(Value::amount));
        put("type", dimm.kind.clone().map(Value::Text));
        put("speed", dimm.speed.clone().map(Value::amount));
        put("rank", dimm.rank.clone().map(Value::amount));
        put("technology", dimm.technology.clone().map(Value::Text));
        put("manufacturer", dimm.manufacturer.clone().map(Value::Text));
        put("part_number", dimm.part_number.clone().map(Value::Text));
    }
}
