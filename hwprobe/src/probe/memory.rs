//! Memory: DIMMs as firmware and the memory controllers describe them, NUMA shape.
//!
//! The capacity that counts is that of the DIMMs: `MemTotal` moves with what the kernel
//! reserves, so it is a fact for placement and no conformance value.

use super::Probed;
use crate::smbios::{self, MemoryDevice};
use crate::{Class, ClassRecord, Host, Reading, Root, Value, text};

/// The raw SMBIOS table; root only.
pub(crate) const DMI_TABLE: &str = "/sys/firmware/dmi/tables/DMI";
const NODES: &str = "/sys/devices/system/node";
const CONTROLLERS: &str = "/sys/devices/system/edac/mc";

/// DIMMs, memory controllers, NUMA.
#[must_use]
pub fn probe(host: &Host) -> Probed {
    let mut probed = Probed::new(Class::Memory);
    let root = &host.root;
    let nodes = numa(root, &mut probed.record);
    edac(root, &mut probed.record);
    let dimms = root
        .bytes(DMI_TABLE)
        .and_then(|table| smbios::memory_devices(&table));
    dimm_keys(&dimms, &mut probed.record);
    probed.identity.dimm_serials = dimms
        .present()
        .into_iter()
        .flatten()
        .map(|dimm| dimm.serial.clone())
        .collect();
    probed.facts.numa_nodes = nodes;
    probed.facts.memory_bytes = root
        .text("/proc/meminfo")
        .and_then(|text| total_memory(&text));
    probed
}

/// `MemTotal` in bytes.
#[must_use]
pub fn total_memory(meminfo: &str) -> Reading<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let Some(amount) = line.and_then(|line| line.trim().strip_suffix("kB")) else {
        return Reading::failed("/proc/meminfo: no MemTotal in kB");
    };
    text::unsigned(amount).map(|kib| kib.saturating_mul(1024))
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

/// DIMMs as the memory controllers see them, in the controllers' order.
fn edac(root: &Root, record: &mut ClassRecord) {
    let controllers = root.list(CONTROLLERS);
    let mut slot: u32 = 0;
    for controller in controllers.present().into_iter().flatten() {
        if !controller.starts_with("mc") {
            continue;
        }
        let dir = format!("{CONTROLLERS}/{controller}");
        for dimm in natural(root.list(&dir)) {
            if !dimm.starts_with("dimm") && !dimm.starts_with("rank") {
                continue;
            }
            let read = |file: &str| root.line(format!("{dir}/{dimm}/{file}"));
            let key = |name: &str| format!("memory.edac.{slot}.{name}");
            record.put(key("size"), read("size").and_then(|size| mebibytes(&size)));
            record.put(key("type"), read("dimm_mem_type"));
            record.put(key("ecc"), read("dimm_edac_mode"));
            slot += 1;
        }
    }
    record.put("memory.edac.count", controllers.map(|_| slot));
}

/// `dimm2` before `dimm10`.
fn natural(names: Reading<Vec<String>>) -> Vec<String> {
    let mut names = names.present().cloned().unwrap_or_default();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

fn mebibytes(size: &str) -> Reading<Value> {
    text::unsigned(size).map(|size| Value::amount(size.saturating_mul(1 << 20)))
}

/// Optional keys: an agent without root is denied the table and still has a digest.
fn dimm_keys(dimms: &Reading<Vec<MemoryDevice>>, record: &mut ClassRecord) {
    let count = dimms
        .as_ref()
        .map(|dimms| u32::try_from(dimms.len()).unwrap_or(u32::MAX));
    record.put("memory.dimm.count", count);
    let installed = dimms.as_ref().map(|dimms| {
        let sizes = dimms.iter().filter_map(|dimm| dimm.size.present());
        Value::amount(sizes.sum())
    });
    record.put("memory.installed", installed);
    for (slot, dimm) in dimms.present().into_iter().flatten().enumerate() {
        let mut put = |name: &str, reading: Reading<Value>| {
            record.put(format!("memory.dimm.{slot}.{name}"), reading);
        };
        put("locator", dimm.locator.clone().map(Value::Text));
        put("size", dimm.size.clone().map(Value::amount));
        put("type", dimm.kind.clone().map(Value::Text));
        put("speed", dimm.speed.clone().map(Value::amount));
        put("manufacturer", dimm.manufacturer.clone().map(Value::Text));
        put("part_number", dimm.part_number.clone().map(Value::Text));
    }
}
