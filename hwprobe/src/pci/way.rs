//! Where a function hangs: its way from the host bridge, and the PCIe switches on it.

use super::{AMD, Function, MELLANOX, rank};
use crate::{Reading, Root, text};
use std::collections::{BTreeMap, BTreeSet};

/// PCI class of bridges from PCI to PCI: root ports, the ports of switches, and bridges to buses
/// that are not PCIe.
const BRIDGE: &str = "0604";

/// BlueField's own bridges, of each generation.
const BLUEFIELD: [&str; 4] = ["1975", "1978", "197a", "197b"];

/// A function's path from its host bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Everything up to and with the host bridge, `/sys/devices/pci0000:15`.
    pub bridge: Vec<String>,
    /// The functions below it, the function itself last.
    pub hops: Vec<String>,
}

/// Where the kernel keeps the function. A tree without the kernel's links does not tell.
pub(crate) fn way(root: &Root, function: &Function) -> Reading<Way> {
    let link = function.path("");
    let path = match root.resolve(link.trim_end_matches('/')) {
        Ok(path) => path,
        Err(error) => return Reading::from_io(&link, &error),
    };
    let parts = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned());
    parse_way(parts.collect())
}

pub(crate) fn parse_way(mut parts: Vec<String>) -> Reading<Way> {
    // A bridge may hang below a function of another one (VMD); the last one counts.
    match parts.iter().rposition(|part| is_host_bridge(part)) {
        Some(bridge) => {
            let hops = parts.split_off(bridge + 1);
            Reading::Present(Way {
                bridge: parts,
                hops,
            })
        }
        None => Reading::Unsupported,
    }
}

/// `pci0000:15`: a root bus, by domain and number.
fn is_host_bridge(part: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    part.strip_prefix("pci")
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(domain, bus)| is_hex(domain) && is_hex(bus))
}

/// The PCIe switches of a machine, as far as its bus tells.
///
/// A switch is one upstream port, which is no root port, with the downstream ports below it. Below
/// a root port upstream and downstream ports alternate, so the second bridge of a way is an
/// upstream port if there is a third, and so on. Bridges alone tell: what is plugged into a
/// switch, or missing from it, moves no other's rank. Nor does a card that is known to have a switch
/// of its own, which is none of the machine's. Of others (adapters with several disks or GPUs)
/// nothing tells; such a one brings a rank, and takes it away when it goes.
#[derive(Debug)]
pub(crate) struct Switches(Reading<Ports>);

#[derive(Debug, Default)]
struct Ports {
    /// Every bridge whose place is known, by address.
    bridges: BTreeSet<String>,
    /// Upstream ports in the order of the bus.
    upstream: Vec<String>,
}

impl Switches {
    /// Those among all functions of the bus; not known where one of these may be a bridge and
    /// could not be read.
    pub(crate) fn of(root: &Root, functions: &Reading<Vec<Function>>) -> Self {
        let ports = functions.as_ref().and_then(|all| ports(root, all));
        Self(or_untold(ports))
    }

    /// The rank, from 0, of the switch nearest above a function. Absent where there is none
    /// between it and its root port; unsupported where the tree does not tell, as one without the
    /// kernel's links, or without the bridges that the way leads over, or without a root port.
    pub(crate) fn above(&self, root: &Root, address: &str) -> Reading<u32> {
        let function = Function {
            address: address.to_owned(),
            class: Reading::Absent,
            vendor: Reading::Absent,
        };
        self.0.as_ref().and_then(|ports| {
            let way = or_untold(way(root, &function));
            way.and_then(|way| ports.above(&way))
        })
    }
}

/// What is not there cannot tell either: absent is said of a switch alone.
fn or_untold<T>(reading: Reading<T>) -> Reading<T> {
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
            // Gone meanwhile, or nothing that has a class.
            Reading::Present(_) | Reading::Absent | Reading::Unsupported => continue,
            unknown => return unknown.clone().map(|_| Ports::default()),
        }
        let way = match way(root, function) {
            Reading::Present(way) => way,
            Reading::Absent | Reading::Unsupported => continue,
            unknown => return unknown.map(|_| Ports::default()),
        };
        // A downstream port: third, fifth.
        if let [_, .., above, _] = way.hops.as_slice()
            && way.hops.len() % 2 == 1
            && !is_of_a_card(root, function)
            && let Some(rank) = rank(above)
        {
            upstream.insert(rank, above.clone());
        }
        ports.bridges.insert(function.address.clone());
    }
    ports.upstream = upstream.into_values().collect();
    Reading::Present(ports)
}

/// Whether such a port is of a switch that is part of a card: AMD's GPUs, and BlueField by its ids in
/// the list of PCI ids.
fn is_of_a_card(root: &Root, port: &Function) -> bool {
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
    fn above(&self, way: &Way) -> Reading<u32> {
        let above = way.hops.split_last().map_or(&[][..], |(_, above)| above);
        // Right at the host bridge, as guests have what hangs anywhere in the machine.
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
        let way = parse_way(
            "sys/devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0"
                .split('/')
                .map(str::to_owned)
                .collect(),
        );
        let way = way.present().map(|way| (way.bridge.len(), way.hops.len()));
        assert_eq!(way, Some((5, 2)));
    }

    /// A function at a way below `/sys/devices`, and its link on the bus.
    fn put(tree: &Path, way: &str, class: &str) {
        let folder = tree.join("sys/devices").join(way);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("class"), class).unwrap();
        let bus = tree.join("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        let name = folder.file_name().unwrap();
        symlink(Path::new("../../../devices").join(way), bus.join(name)).unwrap();
    }

    /// Two switches below one root port, the second below a port of the first; a bridge to an old
    /// bus; devices at all of them.
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
            // The end of the first switch's own that manages it.
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
        switches.above(&root, address).to_string()
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
        // Before all others on the bus.
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
        // Without a port of the way nobody knows what that is a port of.
        fs::remove_file(bus.join("0000:21:00.0")).unwrap();
        assert_eq!(above(tree.path(), "0000:22:00.0"), "<unsupported>");
        assert_eq!(above(tree.path(), "0000:13:00.0"), "0");
        // What may be a bridge may be a switch: no rank is sure.
        let class = bus.join("0000:11:00.0/class");
        fs::write(&class, "bridge\n").unwrap();
        assert!(above(tree.path(), "0000:13:00.0").starts_with("<failed"));
        assert!(above(tree.path(), "0000:50:01.0").starts_with("<failed"));
        fs::remove_dir_all(&bus).unwrap();
        assert_eq!(above(tree.path(), "0000:13:00.0"), "<unsupported>");
    }
}
