//! Network functions: RDMA devices and Ethernet controllers, by PCI address.
//!
//! Interface and RDMA device names (`eth0`, `mlx5_3`) are given by discovery order and
//! never used in keys. Virtual functions come and go with use, interfaces without a
//! device (loopback, bridges, veth) are no hardware, and a USB interface is the BMC's:
//! none of them is a NIC here.

use super::Probed;
use crate::pci::{self, Function};
use crate::{Class, ClassRecord, Host, NicIdentity, Reading, Root, Value, text};
use std::collections::BTreeMap;

const RDMA: &str = "/sys/class/infiniband";
const NET: &str = "/sys/class/net";

/// Where one NIC sits and what the kernel calls it.
#[derive(Clone, Debug, Default)]
struct Nic {
    function: Option<Function>,
    rdma: Vec<String>,
    interfaces: Vec<String>,
}

/// Every NIC, addressed ones first.
#[must_use]
pub fn probe(host: &Host) -> Probed {
    let mut probed = Probed::new(Class::Nic);
    let root = &host.root;
    let functions = pci::functions(root);
    let rdma = root.list(RDMA);
    // Without a PCI bus and without RDMA there is nothing that could hold a NIC; a bus
    // that cannot be read leaves the count unknown.
    let nics = match (&functions, &rdma) {
        (Reading::Present(_) | Reading::Absent, Reading::Present(_) | Reading::Absent) => {
            Reading::Present(assemble(
                root,
                functions.present().map_or(&[], Vec::as_slice),
                rdma.present().map_or(&[], Vec::as_slice),
            ))
        }
        (Reading::Present(_) | Reading::Absent, unknown) => unknown.clone().map(|_| Vec::new()),
        (unknown, _) => unknown.clone().map(|_| Vec::new()),
    };
    let count = nics
        .as_ref()
        .map(|nics| u32::try_from(nics.len()).unwrap_or(u32::MAX));
    probed.record.require("nic.count", count);
    for (slot, nic) in nics.present().into_iter().flatten().enumerate() {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        bus_keys(root, slot, nic, &mut probed.record);
        rdma_keys(root, slot, nic, &mut probed.record);
        let identity = identify(root, slot, nic);
        probed.identity.nics.push(identity);
    }
    facts(&nics, &mut probed);
    probed
}

fn facts(nics: &Reading<Vec<Nic>>, probed: &mut Probed) {
    probed.facts.rdma_count = nics.as_ref().map(|nics| {
        let rdma = nics.iter().filter(|nic| !nic.rdma.is_empty());
        u32::try_from(rdma.count()).unwrap_or(u32::MAX)
    });
    let layers = probed.record.entries.iter();
    let layers = layers.filter(|(key, _)| key.ends_with(".link_layer"));
    for layer in layers.filter_map(|(_, reading)| reading.present()) {
        probed.facts.features.insert("rdma".to_owned());
        if let Value::List(ports) = layer {
            let has = |name: &str| ports.iter().any(|port| port == name);
            if has("InfiniBand") {
                probed.facts.features.insert("infiniband".to_owned());
            }
            if has("Ethernet") {
                probed.facts.features.insert("roce".to_owned());
            }
        }
    }
}

/// Joins the bus, the RDMA devices and the interfaces.
fn assemble(root: &Root, functions: &[Function], rdma: &[String]) -> Vec<Nic> {
    let mut addressed: BTreeMap<(u64, u64), Nic> = BTreeMap::new();
    for function in functions {
        if function.is_class("02")
            && !function.is_virtual(root)
            && let Some(rank) = pci::rank(&function.address)
        {
            addressed.entry(rank).or_default().function = Some(function.clone());
        }
    }
    let mut named = Vec::new();
    for name in rdma {
        match address_of(root, &format!("{RDMA}/{name}/device")) {
            Some(address) => {
                let Some(function) = functions.iter().find(|f| f.address == address) else {
                    named.push(name.clone());
                    continue;
                };
                if function.is_virtual(root) {
                    continue;
                }
                if let Some(rank) = pci::rank(&address) {
                    let nic = addressed.entry(rank).or_default();
                    nic.function = Some(function.clone());
                    nic.rdma.push(name.clone());
                }
            }
            None => named.push(name.clone()),
        }
    }
    let interfaces = root.list(NET);
    for name in interfaces.present().into_iter().flatten() {
        let rank = address_of(root, &format!("{NET}/{name}/device"))
            .and_then(|address| pci::rank(&address));
        if let Some(nic) = rank.and_then(|rank| addressed.get_mut(&rank)) {
            nic.interfaces.push(name.clone());
        }
    }
    let unaddressed = named.into_iter().map(|name| Nic {
        rdma: vec![name],
        ..Nic::default()
    });
    addressed.into_values().chain(unaddressed).collect()
}

/// The PCI address behind a `device` link; none for virtual and other devices.
fn address_of(root: &Root, link: &str) -> Option<String> {
    let path = root.resolve(link).ok()?;
    pci::address_in(&path.to_string_lossy()).map(str::to_owned)
}

fn bus_keys(root: &Root, slot: u32, nic: &Nic, record: &mut ClassRecord) {
    let key = |name: &str| format!("nic.{slot}.{name}");
    let Some(function) = &nic.function else {
        // The slot of such a device is its rank by name, which discovery order decides.
        record.put(key("slot_by"), Reading::Present(Value::from("name")));
        return;
    };
    record.put(key("slot_by"), Reading::Present(Value::from("pci")));
    record.require(key("pci_id"), pci::id(root, function));
    record.put(key("subsystem"), pci::subsystem(root, function));
    record.put(key("pci_class"), function.class.clone());
    let line = |file: &str| root.line(function.path(file));
    record.put(
        key("revision"),
        line("revision").and_then(|raw| text::hex_id(&raw, 2)),
    );
    record.put(key("driver"), root.link_name(function.path("driver")));
    record.put(
        key("max_link_speed"),
        line("max_link_speed").and_then(|raw| pci::link_speed(&raw)),
    );
    record.put(
        key("max_link_width"),
        line("max_link_width").and_then(|raw| width(&raw)),
    );
    record.put(key("numa_node"), pci::numa_node(root, function));
    record.put(
        key("virtual_functions"),
        line("sriov_numvfs").map(text::number_or_text),
    );
}

/// 0 and 255 are what sysfs shows where there is no link.
fn width(raw: &str) -> Reading<Value> {
    match raw.parse::<i64>() {
        Ok(lanes @ 1..=64) => Reading::Present(Value::Number(lanes)),
        _ => Reading::Unsupported,
    }
}

fn rdma_keys(root: &Root, slot: u32, nic: &Nic, record: &mut ClassRecord) {
    let key = |name: &str| format!("nic.{slot}.{name}");
    let Some(device) = nic.rdma.first() else {
        // Ethernet firmware needs an ioctl this agent does not make: not asked is
        // neither absent nor unsupported.
        record.put(
            key("firmware"),
            Reading::<Value>::disabled("Ethernet firmware is not probed by this agent"),
        );
        return;
    };
    let read = |file: &str| root.firmware(format!("{RDMA}/{device}/{file}"));
    record.require(key("firmware"), read("fw_ver"));
    record.put(key("board_id"), read("board_id"));
    record.put(key("hca_type"), read("hca_type"));
    record.put(key("hw_rev"), read("hw_rev"));
    let ports = root.list(format!("{RDMA}/{device}/ports"));
    record.put(
        key("link_layer"),
        ports.and_then(|ports| link_layers(root, device, ports)),
    );
}

/// The link layer of each port in order.
fn link_layers(root: &Root, device: &str, mut ports: Vec<String>) -> Reading<Value> {
    ports.sort_by_key(|port| (port.len(), port.clone()));
    let mut layers = Vec::with_capacity(ports.len());
    for port in ports {
        match root.line(format!("{RDMA}/{device}/ports/{port}/link_layer")) {
            Reading::Present(layer) => layers.push(layer),
            other => return other.map(Value::Text),
        }
    }
    Reading::Present(Value::List(layers))
}

fn identify(root: &Root, slot: u32, nic: &Nic) -> NicIdentity {
    let mac = |name: &String| {
        root.firmware(format!("{NET}/{name}/address"))
            .map(|mac| mac.to_ascii_lowercase())
    };
    NicIdentity {
        slot,
        address: match &nic.function {
            Some(function) => Reading::Present(function.address.clone()),
            None => Reading::Absent,
        },
        rdma: nic.rdma.clone(),
        interfaces: nic.interfaces.clone(),
        macs: nic.interfaces.iter().map(mac).collect(),
        node_guid: match nic.rdma.first() {
            Some(device) => root.firmware(format!("{RDMA}/{device}/node_guid")),
            None => Reading::Absent,
        },
    }
}
