//! Position of a PCI function: its path from the host bridge, and the PCIe switches on that path.

use super::{AMD, Function, MELLANOX, address_sort_key};
use crate::Root;
use lattice_conformance::{Reading, text};
use std::collections::{BTreeMap, BTreeSet};

/// PCI class of PCI-to-PCI bridges: root ports, switch ports, and bridges to buses other than PCIe.
const BRIDGE: &str = "0604";

/// Device ids of the bridges in BlueField cards, by generation.
const BLUEFIELD: [&str; 4] = ["1975", "1978", "197a", "197b"];

/// Path of a function from its host bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PciPath {
    /// Path components up to and including the host bridge, `/sys/devices/pci0000:15`.
    pub bridge: Vec<String>,
    /// Functions below the host bridge; the function itself is last.
    pub hops: Vec<String>,
}

/// Path of the function in the kernel's device tree. Unsupported in a captured tree without the kernel's links.
pub(crate) fn pci_path(root: &Root, function: &Function) -> Reading<PciPath> {
    let link = function.path("");
    let path = match root.resolve(link.trim_end_matches('/')) {
        Ok(path) => path,
        Err(error) => return Reading::from_io(&link, &error),
    };
    let parts = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned());
    parse_path(parts.collect())
}

pub(crate) fn parse_path(mut parts: Vec<String>) -> Reading<PciPath> {
    // A host bridge may be below a function of another one (VMD); the path then starts at the last one.
    match parts.iter().rposition(|part| is_host_bridge(part)) {
        Some(bridge) => {
            let hops = parts.split_off(bridge + 1);
            Reading::Present(PciPath {
                bridge: parts,
                hops,
            })
        }
        None => Reading::Unsupported,
    }
}

/// Whether `part` names a root bus by domain and number, such as `pci0000:15`.
fn is_host_bridge(part: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    part.strip_prefix("pci")
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(domain, bus)| is_hex(domain) && is_hex(bus))
}

/// The PCIe switches of a machine, as far as its bus shows them.
///
/// A switch is one upstream port, which is not a root port, with the downstream ports below it. Below a root port,
/// upstream and downstream ports alternate. So the second bridge of a path is an upstream port if there is a third one,
/// and so on. Only bridges determine ranks: a device plugged into a switch, or missing from it, changes no other rank.
/// The known internal switch of a card is ignored, because it is not part of the machine. The internal switches of
/// other cards (adapters with several disks or GPUs) cannot be recognised: such a card adds a rank while it is present.
#[derive(Debug)]
pub(crate) struct Switches(Reading<Ports>);

#[derive(Debug, Default)]
struct Ports {
    /// Address of every bridge with a known path.
    bridges: BTreeSet<String>,
    /// Upstream ports, in bus order.
    upstream: Vec<String>,
}

impl Switches {
    /// Finds the switches among all functions of the bus. Unknown if a function that may be a bridge cannot be read.
    pub(crate) fn of(root: &Root, functions: &Reading<Vec<Function>>) -> Self {
        let ports = functions.as_ref().and_then(|all| ports(root, all));
        Self(absent_as_unsupported(ports))
    }

    /// Rank, from 0, of the nearest switch above a function. Absent if there is none between the function and its root
    /// port. Unsupported if the tree lacks the kernel's links, a bridge of the path, or a root port.
    pub(crate) fn nearest_switch_rank(&self, root: &Root, address: &str) -> Reading<u32> {
        let function = Function {
            address: address.to_owned(),
            class: Reading::Absent,
            vendor: Reading::Absent,
        };
        self.0.as_ref().and_then(|ports| {
            let way = absent_as_unsupported(pci_path(root, &function));
            way.and_then(|way| ports.above(&way))
        })
    }
}

/// Maps absent to unsupported: in this module, absent only means that there is no switch.
fn absent_as_unsupported<T>(reading: Reading<T>) -> Reading<T> {
    match reading {
        Reading::Absent => Reading::Unsupported,
        other => other,
    }
}

fn ports(root: &Root, functions: &[Function]) -> Reading<Ports> {
    let mut ports = Ports::default();
    let mut upstream = BTreeMap::new();
    for function in functions {
        match &function.class {
            Reading::Present(_) if function.is_class(BRIDGE) => {}
            // The function has disappeared meanwhile, or has no class.
            Reading::Present(_) | Reading::Absent | Reading::Unsupported => continue,
            unknown => return unknown.clone().map(|_| Ports::default()),
        }
        let way = match pci_path(root, function) {
            Reading::Present(way) => way,
            Reading::Absent | Reading::Unsupported => continue,
            unknown => return unknown.map(|_| Ports::default()),
        };
        // A downstream port is the third or fifth hop, and so on.
        if let [_, .., above, _] = way.hops.as_slice()
            && way.hops.len() % 2 == 1
            && !is_card_internal(root, function)
            && let Some(rank) = address_sort_key(above)
        {
            upstream.insert(rank, above.clone());
        }
        ports.bridges.insert(function.address.clone());
    }
    ports.upstream = upstream.into_values().collect();
    Reading::Present(ports)
}

/// Whether `port` belongs to a switch inside a card: AMD's GPUs by vendor, and BlueField by device id from the PCI id
/// list.
fn is_card_internal(root: &Root, port: &Function) -> bool {
    let is_bluefield = || {
        let device = root.text(port.path("device"));
        let device = device.and_then(|raw| text::hex_id(&raw, 4));
        device
            .present()
            .is_some_and(|id| BLUEFIELD.contains(&&**id))
    };
    port.is_vendor(AMD) || (port.is_vendor(MELLANOX) && is_bluefield())
}

impl Ports {
    fn above(&self, way: &PciPath) -> Reading<u32> {
        let above = way.hops.split_last().map_or(&[][..], |(_, above)| above);
        // Directly below the host bridge: in guests, this gives no information about the machine.
        if above.is_empty() {
            return Reading::Unsupported;
        }
        if !above.iter().all(|port| self.bridges.contains(port)) {
            return Reading::Unsupported;
        }
        let rank_of = |port: &String| self.upstream.iter().position(|switch| switch == port);
        let nearest = above.iter().rev().find_map(rank_of);
        nearest.map_or(Reading::Absent, |rank| {
            Reading::Present(u32::try_from(rank).unwrap_or(u32::MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::pci::functions;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn a_bridge_below_another_function_counts_as_the_bridge() {
        let way = parse_path(
            "sys/devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0"
                .split('/')
                .map(str::to_owned)
                .collect(),
        );
        let way = way.present().map(|way| (way.bridge.len(), way.hops.len()));
        assert_eq!(way, Some((5, 2)));
    }

    /// Creates a function at a path below `/sys/devices`, and its link on the bus.
    fn put(tree: &Path, way: &str, class: &str) {
        let folder = tree.join("sys/devices").join(way);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("class"), class).unwrap();
        let bus = tree.join("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        let name = folder.file_name().unwrap();
        symlink(Path::new("../../../devices").join(way), bus.join(name)).unwrap();
    }

    /// Two switches below one root port, the second below a port of the first; a bridge to a legacy bus; devices below
    /// all of them.
    fn machine() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let first = "pci0000:10/0000:10:01.0/0000:11:00.0";
        let second = format!("{first}/0000:12:01.0/0000:20:00.0");
        for bridge in [
            "pci0000:10/0000:10:01.0",
            first,
            &format!("{first}/0000:12:00.0"),
            &format!("{first}/0000:12:01.0"),
            &second,
            &format!("{second}/0000:21:00.0"),
            "pci0000:40/0000:40:01.0",
            "pci0000:40/0000:40:01.0/0000:41:00.0",
        ] {
            put(tree.path(), bridge, "0x060400\n");
        }
        for device in [
            &format!("{first}/0000:12:00.0/0000:13:00.0"),
            &format!("{second}/0000:21:00.0/0000:22:00.0"),
            // The management endpoint of the first switch.
            &format!("{first}/0000:12:1f.0"),
            "pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:00.0",
            "pci0000:50/0000:50:01.0",
        ] {
            put(tree.path(), device, "0x020000\n");
        }
        tree
    }

    fn above(tree: &Path, address: &str) -> String {
        let root = Root::new(tree);
        let switches = Switches::of(&root, &functions(&root));
        switches.nearest_switch_rank(&root, address).to_string()
    }

    #[test]
    fn the_nearest_switch_counts_and_a_bridge_with_devices_alone_is_none() {
        let tree = machine();
        for (address, rank) in [
            ("0000:13:00.0", "0"),
            ("0000:22:00.0", "1"),
            ("0000:12:1f.0", "0"),
            ("0000:42:00.0", "<absent>"),
            ("0000:50:01.0", "<unsupported>"),
            ("0000:99:00.0", "<unsupported>"),
        ] {
            assert_eq!(above(tree.path(), address), rank, "{address}");
        }
    }

    #[test]
    fn a_card_with_a_switch_of_its_own_moves_no_rank() {
        let tree = machine();
        // The first card in bus order.
        let card = "pci0000:00/0000:00:01.0/0000:01:00.0";
        for bridge in ["pci0000:00/0000:00:01.0", card] {
            put(tree.path(), bridge, "0x060400\n");
        }
        let port = format!("{card}/0000:02:00.0");
        put(tree.path(), &port, "0x060400\n");
        let nic = format!("{port}/0000:03:00.0");
        put(tree.path(), &nic, "0x020000\n");
        let is = |vendor: &str, device: &str| {
            for bridge in [card, &port] {
                let folder = tree.path().join("sys/devices").join(bridge);
                fs::write(folder.join("vendor"), vendor).unwrap();
                fs::write(folder.join("device"), device).unwrap();
            }
            ["0000:03:00.0", "0000:13:00.0", "0000:22:00.0"].map(|at| above(tree.path(), at))
        };
        assert_eq!(is("0x1000\n", "0xc030\n"), ["0", "1", "2"]);
        assert_eq!(is("0x15b3\n", "0x1979\n"), ["0", "1", "2"]);
        assert_eq!(is("0x15b3\n", "0x197b\n"), ["<absent>", "0", "1"]);
        assert_eq!(is("0x1002\n", "0x1478\n"), ["<absent>", "0", "1"]);
    }

    #[test]
    fn a_bus_that_does_not_tell_has_no_ranks_and_none_that_are_guessed() {
        let tree = machine();
        let bus = tree.path().join("sys/bus/pci/devices");
        // Without one port of the path, the kind of the other ports is unknown.
        fs::remove_file(bus.join("0000:21:00.0")).unwrap();
        assert_eq!(above(tree.path(), "0000:22:00.0"), "<unsupported>");
        assert_eq!(above(tree.path(), "0000:13:00.0"), "0");
        // A possible bridge may be a switch, so no rank is certain.
        let class = bus.join("0000:11:00.0/class");
        fs::write(&class, "bridge\n").unwrap();
        assert!(above(tree.path(), "0000:13:00.0").starts_with("<failed"));
        assert!(above(tree.path(), "0000:50:01.0").starts_with("<failed"));
        fs::remove_dir_all(&bus).unwrap();
        assert_eq!(above(tree.path(), "0000:13:00.0"), "<unsupported>");
    }
}
