//! NVMe controllers on the bus, and their namespaces.

use super::{count, flag, number, scheduler, size};
use crate::{Root, pci};
use lattice_conformance::{DiskIdentity, ProbeResult, Reading, Value, text};

const CONTROLLERS: &str = "/sys/class/nvme";

/// One NVMe controller.
struct Controller {
    name: String,
    dir: String,
    /// Sort key derived from the PCI address.
    rank: (u64, u64),
    address: Reading<String>,
}

pub(super) fn keys(root: &Root, probed: &mut ProbeResult) {
    let names = root.list(CONTROLLERS);
    let mut controllers = Vec::new();
    let mut remote: u32 = 0;
    for name in names.present().into_iter().flatten() {
        let dir = format!("{CONTROLLERS}/{name}");
        match root.line(format!("{dir}/transport")).present() {
            // Attached over a network: a disk of another machine, present for as long as a job needs it.
            Some(transport) if ["tcp", "rdma", "fc", "loop"].contains(&transport.as_str()) => {
                remote += 1;
            }
            _ => controllers.push(controller(root, name, dir)),
        }
    }
    // Controllers without an address are sorted by name, after all others.
    controllers.sort_by_key(|c| (c.rank, c.name.len(), c.name.clone()));
    let record = &mut probed.record;
    record.require(
        "storage.nvme.count",
        names.map(|_| count(controllers.len())),
    );
    probed
        .vitals
        .put("storage.nvme_remote.count", Reading::Present(remote));
    for (slot, controller) in (0u32..).zip(&controllers) {
        device_keys(root, slot, controller, probed);
        namespace_keys(root, slot, controller, probed);
    }
}

fn controller(root: &Root, name: &str, dir: String) -> Controller {
    // `address` is the PCI address for this transport; older kernels provide only the path.
    let address = match root.line(format!("{dir}/address")) {
        Reading::Absent => match root.resolve(&dir) {
            Ok(path) => pci::address_in(&path.to_string_lossy())
                .map_or(Reading::Absent, |address| {
                    Reading::Present(address.to_owned())
                }),
            Err(error) => Reading::from_io(&dir, &error),
        },
        said => said.and_then(|raw| pci::address(&raw)),
    };
    let rank = address
        .present()
        .and_then(|address| pci::address_sort_key(address));
    Controller {
        name: name.to_owned(),
        dir,
        rank: rank.unwrap_or((u64::MAX, u64::MAX)),
        address,
    }
}

fn device_keys(root: &Root, slot: u32, controller: &Controller, probed: &mut ProbeResult) {
    let dir = &controller.dir;
    let key = |name: &str| format!("storage.nvme.{slot}.{name}");
    let firmware = |file: &str| root.firmware(format!("{dir}/{file}"));
    let record = &mut probed.record;
    record.require(key("model"), firmware("model"));
    record.require(key("firmware"), firmware("firmware_rev"));
    record.put(key("transport"), root.line(format!("{dir}/transport")));
    let function = |file: &str| match &controller.address {
        Reading::Present(address) => root.line(format!("/sys/bus/pci/devices/{address}/{file}")),
        other => other.clone(),
    };
    record.put(
        key("max_link_speed"),
        function("max_link_speed").and_then(|raw| pci::link_speed(&raw)),
    );
    record.put(
        key("max_link_width"),
        function("max_link_width").map(text::number_or_text),
    );
    record.put(key("numa_node"), numa_node(&function("numa_node")));
    let vitals = &mut probed.vitals;
    vitals.put(key("state"), root.line(format!("{dir}/state")));
    vitals.put(
        key("link_speed"),
        function("current_link_speed").and_then(|raw| pci::link_speed(&raw)),
    );
    vitals.put(
        key("link_width"),
        function("current_link_width").map(text::number_or_text),
    );
    vitals.put(key("temperature"), temperature(root, dir));
    probed.identity.disks.push(DiskIdentity {
        slot: format!("nvme.{slot}"),
        address: controller.address.clone(),
        name: controller.name.clone(),
        serial: firmware("serial"),
        wwid: firmware("subsysnqn"),
    });
}

/// NUMA node; unsupported if the firmware reports none (-1).
fn numa_node(raw: &Reading<String>) -> Reading<Value> {
    raw.clone().and_then(|raw| {
        raw.parse::<u32>()
            .map_or(Reading::Unsupported, |node| Reading::Present(node.into()))
    })
}

/// Composite temperature, in degrees Celsius.
fn temperature(root: &Root, dir: &str) -> Reading<Value> {
    let names = root.list(dir);
    let monitor = names.and_then(|names| {
        let mut monitors = names.into_iter().filter(|name| name.starts_with("hwmon"));
        monitors.next().map_or(Reading::Absent, Reading::Present)
    });
    monitor.and_then(|monitor| {
        let path = match monitor.as_str() {
            // Folder between device and monitor, in some kernels.
            "hwmon" => match root.list(format!("{dir}/hwmon")) {
                Reading::Present(names) => match names.first() {
                    Some(name) => format!("hwmon/{name}"),
                    None => return Reading::Absent,
                },
                other => return other.map(|_| Value::Number(0)),
            },
            name => name.to_owned(),
        };
        let raw = root.line(format!("{dir}/{path}/temp1_input"));
        raw.and_then(|raw| {
            raw.parse::<i64>().map_or_else(
                |_| Reading::failed("the temperature is not a number"),
                |milli| Reading::Present(Value::Number(milli.div_euclid(1000))),
            )
        })
    })
}

/// Adds the namespaces by number. Below the controller they are named `nvme0n1`, or `nvme0c0n1` with several paths.
fn namespace_keys(root: &Root, slot: u32, controller: &Controller, probed: &mut ProbeResult) {
    let prefix = format!("storage.nvme.{slot}.namespace");
    let names = root.list(&controller.dir);
    let mut found: Vec<(u64, String)> = Vec::new();
    for name in names.present().into_iter().flatten() {
        let Some(number) = namespace_number(name) else {
            continue;
        };
        let dir = format!("{}/{name}", controller.dir);
        let line = root.line(format!("{dir}/nsid"));
        let id = line.and_then(|id| text::unsigned(&id));
        found.push((id.present().copied().unwrap_or(number), dir));
    }
    found.sort();
    let record = &mut probed.record;
    record.put(format!("{prefix}.count"), names.map(|_| count(found.len())));
    for (index, (_, dir)) in found.iter().enumerate() {
        let key = |name: &str| format!("{prefix}.{index}.{name}");
        record.put(key("size"), size(root, dir));
        record.put(
            key("block_size"),
            number(root, &format!("{dir}/queue/logical_block_size")),
        );
        record.put(key("scheduler"), scheduler(root, dir));
        probed
            .vitals
            .put(key("read_only"), flag(root, &format!("{dir}/ro")));
    }
}

/// The number 1 in `nvme0n1` and `nvme0c3n1`; `None` for partitions and other names.
fn namespace_number(name: &str) -> Option<u64> {
    let (instance, number) = name.strip_prefix("nvme")?.rsplit_once('n')?;
    let is_instance = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts = instance.split('c');
    if !parts.into_iter().all(is_instance) || !is_instance(number) {
        return None;
    }
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_differ_from_partitions_and_controllers() {
        assert_eq!(namespace_number("nvme0n1"), Some(1));
        assert_eq!(namespace_number("nvme12c3n45"), Some(45));
        for other in [
            "nvme0",
            "nvme0n1p1",
            "nvmen1",
            "nvme0n",
            "ng0n1",
            "hwmon2",
            "nvme0c0",
        ] {
            assert_eq!(namespace_number(other), None, "{other}");
        }
    }
}
