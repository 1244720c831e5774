//! PCIe switch of a NIC.

use super::*;

/// Two switches of four ports each, below separate root complexes with `bus` as the first bus, and NICs at these
/// positions (switch and port).
fn machine(bus: [u8; 2], nics: &[(usize, usize)]) -> Tree {
    let tree = Tree::new();
    tree.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic");
    for (switch, bus) in bus.into_iter().enumerate() {
        let root = format!("pci0000:{bus:02x}/0000:{bus:02x}:01.0");
        let upstream = format!("{root}/0000:{:02x}:00.0", bus + 1);
        let port = |port: usize| format!("{upstream}/0000:{:02x}:{port:02x}.0", bus + 2);
        let ports = (0..4).map(port);
        for bridge in [root.clone(), upstream.clone()].into_iter().chain(ports) {
            function(&tree, &bridge, "060400", "1000");
        }
        for (_, at) in nics.iter().filter(|(of, _)| *of == switch) {
            let below = bus + 3 + u8::try_from(*at).unwrap();
            let nic = format!("{}/0000:{below:02x}:00.0", port(*at));
            function(&tree, &nic, "020700", "15b3");
            let name = format!("mlx5_{below}");
            tree.rdma(&name, None, "28.41.1000").link(
                &format!("/sys/class/infiniband/{name}/device"),
                &format!("/sys/devices/{nic}"),
            );
        }
    }
    tree
}

/// A function in sysfs layout, by its path below `/sys/devices`.
fn function(tree: &Tree, way: &str, class: &str, vendor: &str) {
    let (_, address) = way.rsplit_once('/').unwrap();
    tree.file(&format!("/sys/devices/{way}/class"), &format!("0x{class}"))
        .file(
            &format!("/sys/devices/{way}/vendor"),
            &format!("0x{vendor}"),
        )
        .file(&format!("/sys/devices/{way}/device"), "0x1021")
        .file(&format!("/sys/devices/{way}/numa_node"), "0")
        .link(
            &format!("/sys/bus/pci/devices/{address}"),
            &format!("../../../devices/{way}"),
        );
}

fn switches(inventory: &Inventory) -> Vec<String> {
    let slots = 0..inventory.identity.nics.len();
    let of = |slot| shown(inventory, &format!("nic.{slot}.pci_switch"));
    slots.map(of).collect()
}

fn digest(inventory: &Inventory) -> Digest {
    let state = inventory.records[&Class::Nic].state();
    state.digest().unwrap_or_else(|| panic!("{state:?}"))
}

const BUSES: [u8; 2] = [0x10, 0x40];

#[test]
fn a_nic_behind_another_switch_is_another_layout_of_the_same_parts() {
    let one = machine(BUSES, &[(0, 0), (0, 1), (1, 0)]).probe();
    let other = machine(BUSES, &[(0, 0), (1, 0), (1, 1)]).probe();
    assert_eq!(switches(&one), ["0", "0", "1"]);
    assert_eq!(switches(&other), ["0", "1", "1"]);
    assert_ne!(digest(&one), digest(&other));
    let [one, other] = [one, other].map(|node| node.records[&Class::Nic].clone());
    let found = diff_by_parts(&one, &other);
    let found: Vec<_> = found.iter().map(|d| (d.key.as_str(), d.verdict)).collect();
    // Tuples and NUMA nodes are equal: only the switch rank distinguishes the two.
    let moved = ("nic.1.pci_switch", KeyVerdict::Differs);
    assert_eq!(found, [("parts", KeyVerdict::Moved), moved]);
    // And the key does not exist in the previous schema.
    let row = row_of("nic.1.pci_switch").unwrap();
    assert!(row.is_in(Class::Nic.schema()) && !row.is_in(1));
}

#[test]
fn numbers_of_buses_change_nothing() {
    let nics = [(0, 0), (0, 1), (1, 0)];
    let one = machine(BUSES, &nics).probe();
    let other = machine([0x28, 0xc0], &nics).probe();
    assert_eq!(switches(&other), ["0", "0", "1"]);
    assert_eq!(digest(&one), digest(&other));
}

#[test]
fn a_nic_that_is_gone_moves_no_other_to_another_switch() {
    let tree = machine(BUSES, &[(0, 2), (1, 0), (1, 3)]);
    assert_eq!(switches(&tree.probe()), ["0", "1", "1"]);
    // No device is below the first switch now, but its ports exist.
    let nic = "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:02.0/0000:15:00.0";
    tree.remove("/sys/bus/pci/devices/0000:15:00.0")
        .remove(&format!("/sys/devices/{nic}"))
        .remove("/sys/class/infiniband/mlx5_21");
    assert_eq!(switches(&tree.probe()), ["1", "1"]);
}

#[test]
fn a_tree_without_its_bridges_is_complete_and_does_not_tell() {
    let tree = machine(BUSES, &[(0, 0)]);
    for bridge in ["10:01.0", "11:00.0", "12:00.0", "12:01.0"] {
        tree.remove(&format!("/sys/bus/pci/devices/0000:{bridge}"));
    }
    let inventory = tree.probe();
    assert_eq!(switches(&inventory), ["<unsupported>"]);
    digest(&inventory);
    // Nor is the class incomplete if a function's class is unreadable.
    let tree = machine(BUSES, &[(0, 0)]);
    tree.file("/sys/bus/pci/devices/0000:11:00.0/class", "no class");
    let inventory = tree.probe();
    assert!(switches(&inventory)[0].starts_with("<failed"));
    digest(&inventory);
}

#[test]
fn a_capture_has_the_bridges() {
    let tree = machine(BUSES, &[(0, 0), (1, 1)]);
    let (again, _) = masked(&tree);
    assert_eq!(switches(&again), ["0", "1"]);
}
