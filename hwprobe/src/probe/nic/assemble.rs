//! List of NICs: joins PCI functions, RDMA devices, Slingshot devices and interfaces.

use super::{CXI, NET, Nic, RDMA, number};
use crate::Root;
use crate::pci::{self, Function};
use lattice_conformance::Reading;
use std::collections::BTreeMap;

pub(super) type NicList = Reading<Vec<Nic>>;

/// PCI class of network controllers.
const NETWORK: &str = "02";
/// Maximum number of NICs of one node; a large node has about 32 network functions.
const MAX_NICS: usize = 512;
/// Maximum number of interfaces of one NIC.
const MAX_INTERFACES: usize = 256;

/// Every NIC in slot order. A machine without a PCI bus and without RDMA has no NICs; if the bus or the list of RDMA
/// devices is unreadable, the list is unknown.
pub(super) fn assemble(root: &Root) -> NicList {
    assemble_from(root, &pci::functions(root))
}

/// Assembles the list from functions that were read already.
pub(super) fn assemble_from(root: &Root, functions: &Reading<Vec<Function>>) -> NicList {
    let rdma = root.list(RDMA);
    match (functions, &rdma) {
        (Reading::Present(_) | Reading::Absent, Reading::Present(_) | Reading::Absent) => {
            let functions = functions.present().map_or(&[][..], Vec::as_slice);
            let rdma = rdma.present().map_or(&[][..], Vec::as_slice);
            let candidates = functions.iter().filter(|f| f.is_class(NETWORK)).count();
            if candidates.max(rdma.len()) > MAX_NICS {
                return Reading::failed(format!("more than {MAX_NICS} network functions"));
            }
            Reading::Present(join(root, functions, rdma))
        }
        (Reading::Present(_) | Reading::Absent, unknown) => unknown.clone().map(|_| Vec::new()),
        (unknown, _) => unknown.clone().map(|_| Vec::new()),
    }
}

/// The NICs with a PCI address, in slot order: network controllers and other functions with an RDMA device, without
/// virtual functions. NICs without a PCI address have the slots after them.
#[must_use]
pub(crate) fn functions(root: &Root) -> Vec<Function> {
    let nics = assemble(root);
    let nics = nics.present().into_iter().flatten();
    nics.filter_map(|nic| nic.function.clone()).collect()
}

/// The interfaces that belong to NICs, for ethtool queries.
#[must_use]
pub fn interfaces(root: &Root) -> Vec<String> {
    let nics = assemble(root);
    let nics = nics.present().into_iter().flatten();
    nics.flat_map(|nic| nic.interfaces.clone()).collect()
}

/// The interfaces of each NIC by slot, in the order of its ports.
pub(crate) fn ports(root: &Root) -> Reading<Vec<Reading<Vec<String>>>> {
    assemble(root).map(|nics| {
        let of_one = |nic: Nic| match nic.listing_failure {
            Some(unlisted) => unlisted.map(|()| nic.interfaces),
            None => Reading::Present(nic.interfaces),
        };
        nics.into_iter().map(of_one).collect()
    })
}

fn join(root: &Root, functions: &[Function], rdma: &[String]) -> Vec<Nic> {
    let mut addressed: BTreeMap<(u64, u64), Nic> = BTreeMap::new();
    for function in functions {
        if function.is_class(NETWORK)
            && !function.is_virtual(root)
            && let Some(rank) = pci::address_sort_key(&function.address)
        {
            addressed.entry(rank).or_default().function = Some(function.clone());
        }
    }
    let mut named = Vec::new();
    for name in rdma {
        let address = address_of(root, &format!("{RDMA}/{name}/device"));
        let function = address.and_then(|a| functions.iter().find(|f| f.address == a));
        match function {
            // An RDMA device without a PCI address: its slot is its rank by name.
            None => named.push(name.clone()),
            Some(function) if function.is_virtual(root) => {}
            Some(function) => {
                if let Some(rank) = pci::address_sort_key(&function.address) {
                    let nic = addressed.entry(rank).or_default();
                    nic.function = Some(function.clone());
                    nic.rdma.push(name.clone());
                }
            }
        }
    }
    add_interfaces(root, &mut addressed);
    let unaddressed = named.into_iter().map(|name| Nic {
        rdma: vec![name],
        ..Nic::default()
    });
    let mut nics: Vec<Nic> = addressed.into_values().chain(unaddressed).collect();
    for (slot, nic) in nics.iter_mut().enumerate() {
        nic.slot = number(slot);
    }
    nics
}

/// Adds the Slingshot device and the interfaces to each NIC.
fn add_interfaces(root: &Root, addressed: &mut BTreeMap<(u64, u64), Nic>) {
    let rank_of = |link: String| address_of(root, &link).and_then(|a| pci::address_sort_key(&a));
    let slingshot = root.list(CXI);
    for name in slingshot.present().into_iter().flatten() {
        let rank = rank_of(format!("{CXI}/{name}/device"));
        if let Some(nic) = rank.and_then(|rank| addressed.get_mut(&rank)) {
            nic.cxi = Some(name.clone());
        }
    }
    let network = root.list(NET);
    for name in network.present().into_iter().flatten() {
        let rank = rank_of(format!("{NET}/{name}/device"));
        if let Some(nic) = rank.and_then(|rank| addressed.get_mut(&rank))
            && nic.interfaces.len() < MAX_INTERFACES
        {
            match is_derived(root, name) {
                Reading::Present(true) => {}
                Reading::Present(false) => nic.interfaces.push(name.clone()),
                unknown => nic.listing_failure = Some(unknown.map(|_| ())),
            }
        }
    }
    let unlisted = [network, slingshot]
        .into_iter()
        .find(|list| !list.is_known());
    let unlisted = unlisted.map(|list| list.map(|_| ()));
    for nic in addressed.values_mut() {
        if unlisted.is_some() {
            nic.listing_failure.clone_from(&unlisted);
        }
        if nic.interfaces.len() > 1 {
            nic.interfaces
                .sort_by_cached_key(|name| port_sort_key(root, name));
        }
    }
}

/// Whether an interface was created on top of a port: an IPoIB child, or the representor of a virtual function or
/// subfunction. These are created and removed in operation.
fn is_derived(root: &Root, name: &str) -> Reading<bool> {
    let file = |file: &str| format!("{NET}/{name}/{file}");
    // `pf0vf3`, `c1pf0sf7` for representors; `p0`, `pf0` for the ports themselves.
    let is_representor = |port: &String| {
        let behind = port.split_once("pf").map_or("", |(_, rest)| rest);
        let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        behind.starts_with("vf") || behind.starts_with("sf")
    };
    match root.presence(file("parent")) {
        Reading::Present(()) => Reading::Present(true),
        Reading::Absent => {
            let port = root.line(file("phys_port_name"));
            Reading::Present(port.present().is_some_and(is_representor))
        }
        unknown => unknown.map(|()| false),
    }
}

/// Sort key of a function's ports; the name decides only if all other values are equal.
fn port_sort_key(root: &Root, name: &str) -> (u64, u64, Option<String>, String) {
    let file = |file: &str| root.line(format!("{NET}/{name}/{file}"));
    let number = |text: Reading<String>| {
        let text = text.present().cloned().unwrap_or_default();
        let digits = text.strip_prefix("0x");
        let parsed = digits.map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
        parsed.unwrap_or(0)
    };
    (
        number(file("dev_port")),
        number(file("dev_id")),
        file("address").present().cloned(),
        name.to_owned(),
    )
}

/// The PCI address behind a `device` link; `None` for virtual and other devices.
fn address_of(root: &Root, link: &str) -> Option<String> {
    let path = root.resolve(link).ok()?;
    pci::address_in(&path.to_string_lossy()).map(str::to_owned)
}
