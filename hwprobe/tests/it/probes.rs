//! Probes on trees written here: each reports the values of its tree, and no others.

use crate::support;
use crate::support::Tree;
use lattice_conformance::{
    Class, ClassRecord, ClassState, Inventory, KeyVerdict, ProbeStatus, Reading, diff,
    diff_by_parts,
};
use lattice_hwprobe::{Host, NvmlSource, PROBES, probe_all};
use std::collections::BTreeSet;

pub(crate) fn shown(inventory: &Inventory, class: Class, key: &str) -> String {
    inventory.records[&class].get(key).to_string()
}

#[test]
fn every_listed_probe_runs_and_every_class_has_a_record() {
    let inventory = Tree::node().probe();
    let ran: Vec<&str> = inventory.probes.iter().map(|p| p.name.as_str()).collect();
    let listed: Vec<&str> = PROBES.iter().map(|probe| probe.name).collect();
    assert_eq!(ran, listed[..listed.len() - 1]);
    assert_eq!(
        listed.last(),
        Some(&"optics"),
        "which is run where it is asked for"
    );
    for name in [
        "kernel", "cpu", "memory", "nic", "storage", "software", "power", "bios", "gpu",
    ] {
        assert!(listed.contains(&name), "{name} is not listed");
    }
    let classes: Vec<Class> = inventory.records.keys().copied().collect();
    assert_eq!(classes, Class::ALWAYS_PUBLISHED);
    for class in Class::ALWAYS_PUBLISHED
        .into_iter()
        .filter(|c| !PROBES.iter().any(|p| p.class == *c))
    {
        assert_eq!(
            inventory.records[&class].state(),
            ClassState::Disabled {
                why: "not probed by this agent".to_owned()
            }
        );
    }
}

#[test]
fn processors_are_counted_by_package_and_core_and_flags_are_sorted() {
    let inventory = Tree::node().probe();
    let get = |key: &str| shown(&inventory, Class::Cpu, key);
    assert_eq!(get("cpu.sockets"), "2");
    assert_eq!(get("cpu.cores"), "2");
    assert_eq!(get("cpu.threads"), "4");
    assert_eq!(get("cpu.model_name"), "Intel(R) Xeon(R) Platinum 8480C");
    assert_eq!(get("cpu.flags"), "amx_tile avx512f fpu sse2");
    assert_eq!(inventory.resources.cores, Reading::Present(2));
    assert!(inventory.resources.features.contains("amx_tile"));
}

#[test]
fn a_microcode_that_differs_between_processors_is_visible() {
    let tree = Tree::node();
    let text = support::CPUINFO.replacen("0x2b000590", "0x2b000001", 1);
    tree.file("/proc/cpuinfo", &text);
    assert_eq!(
        shown(&tree.probe(), Class::Bios, "bios.microcode"),
        "1 x 0x2b000001 3 x 0x2b000590"
    );
}

#[test]
fn an_arm_processor_takes_its_shape_from_sysfs() {
    let tree = Tree::node();
    let block = "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: \
                 0xd4f\nCPU revision\t: 0\nFeatures\t: fp asimd sve\n";
    tree.file(
        "/proc/cpuinfo",
        &format!("processor\t: 0\n{block}\nprocessor\t: 1\n{block}"),
    );
    for cpu in 0..2 {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        tree.file(&format!("{dir}/physical_package_id"), "0")
            .file(&format!("{dir}/core_id"), &cpu.to_string());
    }
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Cpu, key);
    assert_eq!(get("cpu.vendor"), "0x41");
    assert_eq!(get("cpu.model"), "0xd4f");
    assert_eq!(get("cpu.sockets"), "1");
    assert_eq!(get("cpu.cores"), "2");
    assert!(inventory.resources.features.contains("sve"));
}

#[test]
fn network_slots_follow_the_bus_and_not_the_names() {
    let tree = Tree::node();
    tree.file("/sys/class/infiniband/mlx5_1/fw_ver", "28.39.0001");
    let inventory = tree.probe();
    // mlx5_1 has the lower address.
    let get = |key: &str| shown(&inventory, Class::Nic, key);
    assert_eq!(get("nic.count"), "2");
    assert_eq!(get("nic.0.firmware"), "28.39.0001");
    assert_eq!(get("nic.1.firmware"), "28.41.1000");
    assert_eq!(get("nic.0.pci_id"), "15b3:1021");
    assert_eq!(get("nic.0.max_link_speed"), "32000000000");
    assert_eq!(inventory.identity.nics[0].rdma, ["mlx5_1"]);
    assert_eq!(
        inventory.identity.nics[0].address,
        Reading::Present("0000:1a:00.0".to_owned())
    );
    assert!(inventory.resources.features.contains("infiniband"));
}

#[test]
fn rdma_device_without_address_sorts_last() {
    let tree = Tree::node();
    tree.rdma("mlx5_9", None, "32.38.3056")
        .rdma("mlx5_bond_0", None, "32.38.3056")
        .remove("/sys/class/infiniband/mlx5_9/hca_type");
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Nic, key);
    assert_eq!(get("nic.count"), "4");
    assert_eq!(get("nic.1.slot_by"), "pci");
    assert_eq!(get("nic.2.slot_by"), "name");
    assert_eq!(get("nic.2.hca_type"), "<absent>");
    assert_eq!(get("nic.3.firmware"), "32.38.3056");
    assert_eq!(inventory.identity.nics[2].address, Reading::Absent);
}

#[test]
fn virtual_interfaces_and_virtual_functions_are_no_nics() {
    let tree = Tree::node();
    tree.file("/sys/devices/virtual/net/lo/address", "00:00:00:00:00:00")
        .link("/sys/class/net/lo", "../../devices/virtual/net/lo")
        .pci("0000:1a:00.1", "020700", "15b3", "101e")
        .link(
            "/sys/devices/pci0000:1a/0000:1a:00.1/physfn",
            "../0000:1a:00.0",
        )
        .rdma("mlx5_2", Some("0000:1a:00.1"), "28.41.1000");
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, Class::Nic, "nic.count"), "2");
}

#[test]
fn ethernet_firmware_is_not_asked_which_is_not_the_same_as_none() {
    let tree = Tree::node();
    tree.pci("0000:05:00.0", "020000", "8086", "1563")
        .file(
            "/sys/devices/pci0000:05/0000:05:00.0/net/eno1/address",
            "AA:BB:CC:00:11:22",
        )
        .link(
            "/sys/devices/pci0000:05/0000:05:00.0/net/eno1/device",
            "../../../0000:05:00.0",
        )
        .link(
            "/sys/class/net/eno1",
            "../../devices/pci0000:05/0000:05:00.0/net/eno1",
        )
        .link(
            "/sys/devices/pci0000:05/0000:05:00.0/driver",
            "../../../bus/pci/drivers/ixgbe",
        );
    let inventory = tree.probe();
    let record = &inventory.records[&Class::Nic];
    assert!(matches!(
        record.get("nic.0.firmware"),
        Reading::Disabled { .. }
    ));
    assert_eq!(shown(&inventory, Class::Nic, "nic.0.driver"), "ixgbe");
    assert_eq!(inventory.identity.nics[0].interfaces, ["eno1"]);
    assert_eq!(
        inventory.identity.nics[0].macs,
        [Reading::Present("aa:bb:cc:00:11:22".to_owned())]
    );
    assert!(matches!(record.state(), ClassState::Complete { .. }));
}

#[test]
fn a_placeholder_is_unsupported_and_a_missing_file_absent() {
    let inventory = Tree::node().probe();
    let get = |key: &str| shown(&inventory, Class::Bios, key);
    assert_eq!(get("bios.board.version"), "<unsupported>");
    assert_eq!(get("bios.date"), "<absent>");
    assert_eq!(get("bios.product.name"), "PowerEdge XE9680");
    assert_eq!(
        inventory.identity.product_serial,
        Reading::Present("ABC1234".to_owned())
    );
}

#[test]
fn bytes_that_are_no_text_leave_the_class_incomplete() {
    let tree = Tree::node();
    tree.bytes("/sys/class/dmi/id/bios_version", &[0xff, 0xfe, b'1']);
    let inventory = tree.probe();
    let ClassState::Incomplete { missing } = inventory.records[&Class::Bios].state() else {
        panic!("garbage became a value");
    };
    let keys: Vec<&String> = missing.keys().collect();
    assert_eq!(keys, ["bios.version"]);
    let bios = inventory.probes.iter().find(|p| p.class == Class::Bios);
    assert_eq!(bios.unwrap().outcome, ProbeStatus::Incomplete);
    assert_eq!(inventory.fingerprint().digest(), None);
}

/// One SMBIOS structure of type 17 with a size in MiB and its strings.
fn dimm(size: u16, strings: &[&str]) -> Vec<u8> {
    let mut bytes = vec![0; 0x28];
    bytes[0] = 17;
    bytes[1] = 0x28;
    bytes[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
    bytes[0x10] = 1;
    bytes[0x12] = 0x22;
    bytes[0x17] = 2;
    bytes[0x18] = 3;
    bytes[0x1a] = 4;
    bytes[0x1c..0x20].copy_from_slice(&65536u32.to_le_bytes());
    bytes[0x20..0x22].copy_from_slice(&4800u16.to_le_bytes());
    for string in strings {
        bytes.extend_from_slice(string.as_bytes());
        bytes.push(0);
    }
    bytes.push(0);
    bytes
}

#[test]
fn dimms_come_from_the_firmware_table_with_empty_slots_shown() {
    let tree = Tree::node();
    let mut table = vec![1, 4, 0, 0, 0, 0];
    table.extend(dimm(0x7fff, &["A1", "Hynix", "80AD0123", "HMCG94AGBRA"]));
    table.extend(dimm(0, &["A2", "NO DIMM", "NO DIMM", "NO DIMM"]));
    table.extend([127, 4, 0, 0, 0, 0]);
    tree.bytes("/sys/firmware/dmi/tables/DMI", &table);
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, Class::Memory, key);
    assert_eq!(get("memory.dimm.count"), "2");
    assert_eq!(get("memory.dimm.0.size"), (64u64 << 30).to_string());
    assert_eq!(get("memory.dimm.0.type"), "DDR5");
    assert_eq!(get("memory.dimm.0.speed"), "4800000000");
    assert_eq!(get("memory.dimm.0.part_number"), "HMCG94AGBRA");
    assert_eq!(get("memory.dimm.1.size"), "<absent>");
    assert_eq!(get("memory.dimm.1.manufacturer"), "<absent>");
    assert_eq!(get("memory.installed"), (64u64 << 30).to_string());
    assert_eq!(get("memory.numa.count"), "2");
    assert_eq!(get("memory.numa.1.distance"), "21 10");
    assert_eq!(
        inventory.identity.dimm_serials[0],
        Reading::Present("80AD0123".to_owned())
    );
    assert!(!format!("{:?}", inventory.records).contains("80AD0123"));
}

#[test]
fn a_table_that_is_cut_off_is_a_failure_and_not_an_empty_machine() {
    let tree = Tree::node();
    tree.bytes("/sys/firmware/dmi/tables/DMI", &[17, 0x28, 0, 0, 1, 2]);
    let inventory = tree.probe();
    let count = inventory.records[&Class::Memory].get("memory.dimm.count");
    assert!(matches!(count, Reading::Failed { .. }), "{count:?}");
}

/// Unreadable as for an agent without root; a capture keeps that state.
fn unreadable(tree: &Tree, path: &str) {
    let list = serde_json::json!({ path: "permission denied" });
    tree.file("unreadable.json", &list.to_string());
}

#[test]
fn a_table_for_root_alone_is_denied_and_the_class_still_has_a_digest() {
    let tree = Tree::node();
    let before = tree.probe();
    unreadable(&tree, "/sys/firmware/dmi/tables/DMI");
    let inventory = tree.probe();
    let record = &inventory.records[&Class::Memory];
    for key in ["memory.dimm.count", "memory.installed"] {
        assert!(matches!(record.get(key), Reading::Denied { .. }), "{key}");
    }
    assert!(matches!(record.state(), ClassState::Complete { .. }));
    // An unread value compared with "none" is neither equal nor different.
    let differences = diff(&before.records[&Class::Memory], record);
    assert!(!differences.is_empty());
    assert!(differences.iter().all(|d| d.verdict == KeyVerdict::Unknown));
}

#[test]
fn a_required_file_that_is_denied_leaves_the_class_incomplete() {
    let tree = Tree::node();
    unreadable(&tree, "/proc/cmdline");
    let inventory = tree.probe();
    let ClassState::Incomplete { missing } = inventory.records[&Class::Kernel].state() else {
        panic!();
    };
    assert!(matches!(missing["kernel.cmdline"], Reading::Denied { .. }));
    unreadable(&tree, "/sys/class/infiniband");
    let inventory = tree.probe();
    let count = inventory.records[&Class::Nic].get("nic.count");
    assert!(matches!(count, Reading::Denied { .. }), "{count:?}");
    assert!(!inventory.resources.rdma_count.is_known());
}

#[test]
fn what_moves_while_a_node_runs_changes_no_digest() {
    let tree = Tree::node();
    let before = tree.probe();
    tree.file("/proc/meminfo", "MemTotal: 16000 kB\nMemFree: 1 kB")
        .file("/proc/sys/kernel/random/boot_id", "another")
        .file("/proc/sys/kernel/hostname", "gpu777")
        .file(
            "/proc/cmdline",
            "BOOT_IMAGE=/vmlinuz-other root=UUID=9 ro iommu=pt hugepagesz=1G",
        )
        .file("/sys/class/dmi/id/product_serial", "OTHER")
        .file("/sys/class/infiniband/mlx5_0/node_guid", "1:2:3:4")
        .file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
        .file(
            "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
            "99999",
        )
        .file(
            "/proc/cpuinfo",
            &support::CPUINFO.replace("3800.001", "1200.5"),
        );
    let after = tree.probe();
    assert_eq!(before.marks(), after.marks());
    assert_eq!(before.fingerprint(), after.fingerprint());
    assert_ne!(before.identity, after.identity);
}

#[test]
fn renamed_devices_change_no_digest() {
    let tree = Tree::node();
    let before = tree.probe();
    tree.remove("/sys/class/infiniband")
        .rdma("mlx5_7", Some("0000:1a:00.0"), "28.41.1000")
        .rdma("mlx5_4", Some("0000:3b:00.0"), "28.41.1000");
    assert_eq!(before.marks(), tree.probe().marks());
}

#[test]
fn one_firmware_changes_one_class_and_the_difference_names_the_slot() {
    let tree = Tree::node();
    let before = tree.probe();
    tree.file("/sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002");
    let after = tree.probe();
    let changed: Vec<Class> = Class::ALWAYS_PUBLISHED
        .into_iter()
        .filter(|class| before.marks()[class] != after.marks()[class])
        .collect();
    assert_eq!(changed, [Class::Nic]);
    assert_ne!(before.fingerprint(), after.fingerprint());
    let differences = diff(&before.records[&Class::Nic], &after.records[&Class::Nic]);
    let [difference] = differences.as_slice() else {
        panic!("{differences:?}");
    };
    assert_eq!(difference.key, "nic.1.firmware");
    assert_eq!(difference.left.to_string(), "28.41.1000");
    assert_eq!(difference.right.to_string(), "28.39.1002");
    assert_eq!(difference.verdict, KeyVerdict::Differs);
}

#[test]
fn the_same_parts_in_other_slots_have_one_parts_digest() {
    let tree = Tree::node();
    tree.file("/sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002");
    let left = tree.probe();
    tree.file("/sys/class/infiniband/mlx5_0/fw_ver", "28.41.1000")
        .file("/sys/class/infiniband/mlx5_1/fw_ver", "28.39.1002");
    let right = tree.probe();
    let (left, right) = (&left.records[&Class::Nic], &right.records[&Class::Nic]);
    assert_ne!(left.state(), right.state());
    assert_eq!(left.parts_digest(), right.parts_digest());
    let found = diff_by_parts(left, right);
    assert_eq!(
        (found[0].key.as_str(), found[0].verdict),
        ("parts", KeyVerdict::Moved)
    );
    assert_eq!(found[1..], diff(left, right));
}

/// A NIC for each firmware, MTU and NUMA node.
fn nics(cards: &[(&str, &str, u32)]) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    let count = u32::try_from(cards.len()).unwrap();
    record.require("nic.count", Reading::Present(count));
    for (slot, (firmware, mtu, numa)) in cards.iter().enumerate() {
        record.require(format!("nic.{slot}.firmware"), Reading::Present(*firmware));
        record.put(format!("nic.{slot}.net.0.mtu"), Reading::Present(*mtu));
        record.put(format!("nic.{slot}.numa_node"), Reading::Present(*numa));
    }
    record
}

#[test]
fn swapped_cards_differ_from_new_cards() {
    let node = nics(&[("28.41", "9000", 0), ("16.35", "1500", 1)]);
    let is_moved = |other: &ClassRecord| {
        let found = diff_by_parts(&node, other);
        let moved = found
            .iter()
            .filter(|d| d.verdict == KeyVerdict::Moved)
            .count();
        assert_eq!(found.len() - moved, diff(&node, other).len());
        moved == 1
    };
    assert!(is_moved(&nics(&[
        ("16.35", "1500", 0),
        ("28.41", "9000", 1)
    ])));
    assert!(is_moved(&nics(&[
        ("28.41", "9000", 1),
        ("16.35", "1500", 0)
    ])));
    for other in [
        nics(&[("28.41", "9000", 0), ("16.35", "1500", 1)]),
        nics(&[("16.35", "9000", 0), ("28.41", "1500", 1)]),
        nics(&[("16.35", "1500", 0), ("28.42", "9000", 1)]),
        nics(&[("16.35", "1500", 0), ("16.35", "1500", 1)]),
        nics(&[("28.41", "9000", 0)]),
    ] {
        assert!(!is_moved(&other), "{other:?}");
    }
    // With an unknown value, no statement about all parts is possible.
    let mut unknown = nics(&[("16.35", "1500", 0), ("28.41", "9000", 1)]);
    unknown.put("nic.0.board_id", Reading::<String>::denied("no"));
    assert!(!is_moved(&unknown));
}

#[test]
fn a_class_switched_off_is_disabled_and_leaves_the_fingerprint() {
    let tree = Tree::node();
    let mut host = tree.host();
    host.disabled = BTreeSet::from([Class::Cpu]);
    let inventory = probe_all(&host);
    assert!(matches!(
        inventory.records[&Class::Cpu].state(),
        ClassState::Disabled { .. }
    ));
    assert_ne!(inventory.fingerprint(), tree.probe().fingerprint());
    assert!(inventory.fingerprint().digest().is_some());
}

#[test]
fn links_never_lead_out_of_the_tree() {
    let outside = tempfile::TempDir::new().unwrap();
    std::fs::write(outside.path().join("bios_vendor"), "outside\n").unwrap();
    let tree = Tree::node();
    tree.remove("/sys/class/dmi/id/bios_vendor").link(
        "/sys/class/dmi/id/bios_vendor",
        &outside.path().join("bios_vendor").to_string_lossy(),
    );
    assert_eq!(shown(&tree.probe(), Class::Bios, "bios.vendor"), "<absent>");
    tree.remove("/sys/class/dmi/id/bios_vendor")
        .link("/sys/class/dmi/id/bios_vendor", "../../../../../../top")
        .file("/top", "inside");
    assert_eq!(shown(&tree.probe(), Class::Bios, "bios.vendor"), "inside");
    tree.remove("/sys/class/dmi/id/bios_vendor")
        .link("/sys/class/dmi/id/bios_vendor", "bios_vendor");
    let reading = tree.probe().records[&Class::Bios].get("bios.vendor");
    assert!(matches!(reading, Reading::Failed { .. }), "{reading:?}");
}

#[test]
fn an_inventory_survives_both_encodings() {
    let inventory = Tree::node().probe();
    let json = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&json).unwrap(), inventory);
    let bytes = postcard::to_allocvec(&inventory).unwrap();
    let back: Inventory = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(back, inventory);
}

#[test]
fn live_probe_is_repeatable() {
    let host = Host::new("/", NvmlSource::Disabled);
    let (first, second) = (probe_all(&host), probe_all(&host));
    assert_eq!(first.marks(), second.marks());
    assert!(first.resources.memory_bytes.present().is_some());
    assert!(
        first
            .resources
            .threads
            .present()
            .is_some_and(|&count| count > 0)
    );
}
