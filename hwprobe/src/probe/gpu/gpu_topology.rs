//! Distances between devices: the kernel's device paths, checked against the driver's report. A distance that neither
//! source provides is unknown.

use crate::Root;
use crate::gpu_driver::{Ancestor, DeviceReport};
use crate::pci::{self, Function, PciPath};
use lattice_conformance::{
    Distance, FindingCode, GpuPlace, NvlinkPeer, Pair, ProbeResult, Reading, Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// A device, as seen on the bus.
#[derive(Clone, Debug)]
pub(super) struct BusDevice {
    /// Name in the topology, such as `gpu.0`.
    name: String,
    pci_path: Reading<PciPath>,
    numa: Reading<Value>,
}

impl BusDevice {
    pub(super) fn new(root: &Root, name: String, address: &Reading<String>) -> Self {
        let function = address.clone().map(|address| Function {
            address,
            class: Reading::Absent,
            vendor: Reading::Absent,
        });
        Self {
            name,
            pci_path: function
                .clone()
                .and_then(|function| pci::pci_path(root, &function)),
            numa: function.and_then(|function| pci::numa_node(root, &function)),
        }
    }
}

/// The distance between two devices.
fn distance(root: &Root, a: &BusDevice, b: &BusDevice) -> Reading<Distance> {
    let (one, other) = match (&a.pci_path, &b.pci_path) {
        (Reading::Present(one), Reading::Present(other)) => (one, other),
        (Reading::Present(_), unknown) | (unknown, _) => {
            return unknown.clone().and_then(|_| Reading::Unsupported);
        }
    };
    if one.bridge == other.bridge {
        return Reading::Present(below_one_bridge(&one.hops, &other.hops));
    }
    match (&a.numa, &b.numa) {
        (Reading::Present(one), Reading::Present(other)) if one == other => {
            Reading::Present(Distance::Node)
        }
        (Reading::Present(_), Reading::Present(_)) => Reading::Present(Distance::Sys),
        _ if has_one_numa_node(root) => Reading::Present(Distance::Node),
        (Reading::Present(_), unknown) | (unknown, _) => {
            unknown.clone().and_then(|_| Reading::Unsupported)
        }
    }
}

fn has_one_numa_node(root: &Root) -> bool {
    let online = root.line("/sys/devices/system/node/online");
    online == Reading::Present("0".to_owned())
}

/// Distance below one host bridge. A switch is an upstream port with downstream ports below it. So a path over one
/// switch has at most one port on each side below the common part.
fn below_one_bridge(one: &[String], other: &[String]) -> Distance {
    let shared = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let rest = (one.len() - shared).max(other.len() - shared);
    match (shared, rest) {
        // Functions of one device on the root bus are below no port.
        (0, 1) if is_one_device(one, other) => Distance::Pix,
        (0, _) => Distance::Phb,
        (_, ..=2) => Distance::Pix,
        (_, _) => Distance::Pxb,
    }
}

fn is_one_device(one: &[String], other: &[String]) -> bool {
    let device = |hops: &[String]| {
        let last = hops.last().and_then(|hop| hop.rsplit_once('.'));
        last.map(|(device, _)| device.to_owned())
    };
    device(one).is_some() && device(one) == device(other)
}

/// Converts the driver's level to a distance.
fn distance_of_level(level: u32) -> Reading<Distance> {
    match level {
        // One board, one switch.
        0 | 10 => Reading::Present(Distance::Pix),
        20 => Reading::Present(Distance::Pxb),
        30 => Reading::Present(Distance::Phb),
        40 => Reading::Present(Distance::Node),
        50 => Reading::Present(Distance::Sys),
        _ => Reading::Unsupported,
    }
}

/// Adds every pair of GPUs, and of GPU and NIC. `ancestors` holds the driver's levels by the slots of a pair.
pub(super) fn pairs(
    root: &Root,
    gpus: &[BusDevice],
    nics: &[BusDevice],
    ancestors: &BTreeMap<(usize, usize), Reading<u32>>,
    probed: &mut ProbeResult,
) {
    for (b, other) in gpus.iter().enumerate() {
        for (a, one) in gpus.iter().enumerate().take(b) {
            let seen = distance(root, one, other);
            let said = ancestors.get(&(a, b)).cloned().unwrap_or_default();
            let said = said.and_then(distance_of_level);
            if let (Reading::Present(seen), Reading::Present(said)) = (&seen, &said)
                && seen != said
            {
                let detail = format!(
                    "{} and {}: {seen} by the bus, {said} by the driver",
                    one.name, other.name
                );
                probed.add_finding(FindingCode::GpuTopologyMismatch, detail);
            }
            let distance = if seen.present().is_some() {
                seen
            } else {
                said.or_if_disabled(seen)
            };
            push_pair(probed, one, other, distance);
        }
    }
    for gpu in gpus {
        for nic in nics {
            push_pair(probed, gpu, nic, distance(root, gpu, nic));
        }
    }
}

fn push_pair(
    probed: &mut ProbeResult,
    one: &BusDevice,
    other: &BusDevice,
    distance: Reading<Distance>,
) {
    probed.topology.pairs.push(Pair {
        a: one.name.clone(),
        b: other.name.clone(),
        distance,
    });
}

/// The driver's levels by slot: `order` holds the index of each slot in the driver's list.
pub(super) fn by_slot(
    ancestors: &[Ancestor],
    order: &[usize],
) -> BTreeMap<(usize, usize), Reading<u32>> {
    let slot = |index: u32| {
        let index = usize::try_from(index).ok()?;
        order.iter().position(|place| *place == index)
    };
    let pairs = ancestors.iter().filter_map(|pair| {
        let (a, b) = (slot(pair.a)?, slot(pair.b)?);
        Some(((a.min(b), a.max(b)), pair.level.clone()))
    });
    pairs.collect()
}

/// Adds the NVLink peers of each GPU, counted by far end.
pub(super) fn nvlinks(
    devices: &[DeviceReport],
    functions: &Reading<Vec<Function>>,
    probed: &mut ProbeResult,
) {
    let slot_of = |address: &str| {
        let is = |device: &DeviceReport| device.address.present().is_some_and(|a| a == address);
        devices.iter().position(is)
    };
    for (slot, device) in devices.iter().enumerate() {
        let mut ends: BTreeMap<Reading<String>, u32> = BTreeMap::new();
        for link in &device.links {
            let to = match (&link.kind, &link.remote) {
                (Reading::Present(kind), _) if kind != "gpu" => Reading::Present(kind.clone()),
                (_, Reading::Present(address)) => Reading::Present(match slot_of(address) {
                    Some(slot) => format!("gpu.{slot}"),
                    None if is_switch(address, functions) => "switch".to_owned(),
                    None => address.clone(),
                }),
                (_, unknown) => unknown.clone(),
            };
            *ends.entry(to).or_default() += 1;
        }
        let gpu = u32::try_from(slot).unwrap_or(u32::MAX);
        let peers = ends
            .into_iter()
            .map(|(to, links)| NvlinkPeer { gpu, to, links });
        probed.topology.nvlinks.extend(peers);
    }
}

/// Whether this is an NVSwitch: an NVIDIA bridge that is not a PCI bridge.
fn is_switch(address: &str, functions: &Reading<Vec<Function>>) -> bool {
    let functions = functions.present().into_iter().flatten();
    let mut at = functions.filter(|function| function.address == address);
    at.any(|function| function.is_vendor(pci::NVIDIA) && function.is_class("0680"))
}

/// Sets the NVLink fabric of all GPUs: failed, with a finding, if known fabrics differ; otherwise unknown while that of
/// one GPU is unknown.
pub(super) fn fabric(devices: &[DeviceReport], probed: &mut ProbeResult) {
    let said = devices.iter().map(|device| &device.fabric);
    let known: BTreeSet<_> = said.clone().filter(|fabric| fabric.is_known()).collect();
    if known.len() > 1 {
        let what = "the GPUs of this node are not all in one NVLink fabric";
        probed.add_finding(FindingCode::GpuFabricDiffers, what);
        probed.topology.fabric = Reading::failed(what);
        return;
    }
    let unknown = said.clone().find(|fabric| !fabric.is_known());
    if let Some(fabric) = unknown.or(known.into_iter().next()) {
        probed.topology.fabric = fabric.clone();
    }
}

/// Adds the position of each GPU.
pub(super) fn push_places(devices: &[DeviceReport], probed: &mut ProbeResult) {
    for (slot, device) in devices.iter().enumerate() {
        let said = |key: &str| device.place.get(key).cloned().unwrap_or_default();
        let number = |key: &str| {
            said(key).and_then(|value| {
                let number = value.as_number().and_then(|n| u32::try_from(n).ok());
                number.map_or(Reading::Unsupported, Reading::Present)
            })
        };
        probed.topology.places.push(GpuPlace {
            gpu: u32::try_from(slot).unwrap_or(u32::MAX),
            module: number("module"),
            chassis_serial: said("chassis_serial").map(|value| value.to_string()),
            slot: number("slot"),
            tray: number("tray"),
            host: number("host"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str, numa: Reading<Value>) -> BusDevice {
        let parts = path.split('/').filter(|part| !part.is_empty());
        BusDevice {
            name: path.to_owned(),
            pci_path: pci::parse_path(parts.map(str::to_owned).collect()),
            numa,
        }
    }

    fn between(one: &str, other: &str) -> String {
        let root = Root::new("/nonexistent");
        let node = Reading::Present(Value::Number(0));
        distance(&root, &at(one, node.clone()), &at(other, node)).to_string()
    }

    #[test]
    fn what_a_way_crosses_is_read_from_the_two_paths() {
        let gpu = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:19:00.0";
        for (other, word) in [
            // Another port of the same switch.
            (
                "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0",
                "PIX",
            ),
            // Another function of the same device.
            (
                "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:19:00.1",
                "PIX",
            ),
            // Behind a second switch below the first.
            (
                "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:20:00.0/\
                 0000:21:00.0/0000:22:00.0",
                "PXB",
            ),
            // Another root port.
            ("/sys/devices/pci0000:15/0000:15:02.0/0000:30:00.0", "PHB"),
            // Another root complex of the same NUMA node.
            ("/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", "NODE"),
            // A captured tree with plain folders instead of the kernel's links.
            ("/sys/bus/pci/devices/0000:41:00.0", "<unsupported>"),
        ] {
            assert_eq!(between(gpu, other), word, "{other}");
            assert_eq!(between(other, gpu), word, "{other}");
        }
    }

    #[test]
    fn devices_below_one_root_bus_without_any_port_meet_at_the_host_bridge() {
        let own = "/sys/devices/pci0000:00/0000:00:09.0";
        assert_eq!(between(own, "/sys/devices/pci0000:00/0000:00:0a.0"), "PHB");
        assert_eq!(between(own, "/sys/devices/pci0000:00/0000:00:09.1"), "PIX");
    }

    #[test]
    fn numa_nodes_decide_between_bridges_and_an_unknown_one_decides_nothing() {
        let root = Root::new("/nonexistent");
        let one = |node| at("/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0", node);
        let other = |node| at("/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0", node);
        let node = |number| Reading::Present(Value::Number(number));
        let sys = distance(&root, &one(node(0)), &other(node(1)));
        assert_eq!(sys, Reading::Present(Distance::Sys));
        let unknown = distance(&root, &one(node(0)), &other(Reading::Unsupported));
        assert_eq!(unknown, Reading::Unsupported);
        let denied = distance(&root, &one(Reading::denied("no")), &other(node(1)));
        assert!(matches!(denied, Reading::Denied { .. }));
    }
}
