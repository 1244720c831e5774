//! Topology of GPUs and NICs.

use super::*;
use crate::trials::{Test, tests};

pub const TESTS: &[Test] = tests![
    ways_are_those_of_the_published_matrix,
    a_tree_that_does_not_tell_leaves_ways_unknown,
    the_drivers_word_against_the_bus_is_a_finding,
    links_between_gpus_name_the_slot,
    a_gpu_and_the_nic_beside_it_have_one_switch,
    an_amd_gpu_is_told_by_its_switch_too,
];

/// The rows of the matrix by name, with the cells by column name.
fn matrix() -> BTreeMap<String, BTreeMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/captures/topo-m-8gpu-8nic-700W-570.211.01.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split('\t').skip(1).take(16).collect();
    let rows = lines.take(16).map(|line| {
        let mut cells = line.split('\t').map(str::trim);
        let row = cells.next().unwrap().to_owned();
        let cells = names.iter().map(|name| (*name).to_owned());
        (
            row,
            cells
                .zip(line.split('\t').skip(1).map(|c| c.trim().to_owned()))
                .collect(),
        )
    });
    rows.collect()
}

/// Slots of the NICs named `NICn` in the matrix: the InfiniBand devices in name order.
fn nic_slots(inventory: &Inventory) -> Vec<u32> {
    let mut named: Vec<(String, u32)> = Vec::new();
    for nic in &inventory.identity.nics {
        for name in nic.rdma.iter().filter(|name| !name.contains("bond")) {
            named.push((name.clone(), nic.slot));
        }
    }
    named.sort();
    named.into_iter().map(|(_, slot)| slot).collect()
}

pub(crate) fn ways_are_those_of_the_published_matrix() {
    let inventory = captured("gpu001");
    let slots = nic_slots(&inventory);
    assert_eq!(slots.len(), 8);
    assert!(!slots.is_sorted(), "NIC order is not GPU order: {slots:?}");
    let topology = &inventory.topology;
    for (row, cells) in matrix().iter().filter(|(row, _)| row.starts_with("GPU")) {
        let gpu: u32 = row[3..].parse().unwrap();
        let mut beside = 0;
        for (column, word) in cells {
            let number: usize = column[3..].parse().unwrap();
            let other = match column.starts_with("NIC") {
                true => format!("nic.{}", slots[number]),
                false => continue,
            };
            let found = topology.distance(&format!("gpu.{gpu}"), &other);
            assert_eq!(found.to_string(), *word, "{row} {column}");
            beside += u32::from(word == "PIX");
        }
        assert_eq!(beside, 1, "{row}");
    }
    // Between GPUs the matrix shows NVLink only; the PCIe distances below it are the driver's.
    for (a, b, word) in [(0, 1, "NODE"), (0, 4, "SYS"), (5, 7, "NODE"), (3, 6, "SYS")] {
        let found = topology.distance(&format!("gpu.{a}"), &format!("gpu.{b}"));
        assert_eq!(found.to_string(), word, "{a} {b}");
    }
    assert_eq!(
        topology.pairs.len(),
        8 * 7 / 2 + 8 * inventory.identity.nics.len()
    );
    let eighteen = |peer: &NvlinkPeer| peer.links == 18 && peer.to.to_string() == "switch";
    assert_eq!(topology.nvlinks.len(), 8);
    assert!(topology.nvlinks.iter().all(eighteen));
    assert!(codes(&inventory).is_empty(), "{:?}", inventory.findings);
}

pub(crate) fn a_tree_that_does_not_tell_leaves_ways_unknown() {
    let inventory = captured("gpu101");
    let topology = &inventory.topology;
    let nics = topology
        .pairs
        .iter()
        .filter(|pair| pair.b.starts_with("nic."));
    let unknown: Vec<bool> = nics
        .map(|pair| pair.distance == Reading::Unsupported)
        .collect();
    assert!(!unknown.is_empty() && unknown.iter().all(|unknown| *unknown));
}

pub(crate) fn the_drivers_word_against_the_bus_is_a_finding() {
    let mut driver = driver();
    let level = |one: usize, other: usize| match one == other {
        true => fake::AncestorLevel::Internal,
        false => fake::AncestorLevel::Hostbridge,
    };
    let rows = (0..2).map(|row| (0..2).map(|column| level(row, column)).collect());
    driver.common_ancestors = Some(Field::Value(rows.collect()));
    // On the bus, each GPU is below its own host bridge.
    let tree = tree();
    let seen = probe_all(&host(&tree, &driver));
    assert_eq!(seen.topology.distance("gpu.0", "gpu.1").to_string(), "NODE");
    assert_eq!(codes(&seen), ["gpu_topology_mismatch"]);
    // Without device paths on the bus, the driver's distance counts.
    for address in ["0000:1b:00.0", "0000:3c:00.0"] {
        let bus = tree.path().join("sys/bus/pci/devices").join(address);
        let device = tree.path().join("sys/devices");
        let device = device.join(format!("pci{}", &address[..7])).join(address);
        std::fs::remove_file(&bus).unwrap();
        std::fs::rename(device, bus).unwrap();
    }
    let inventory = probe_all(&host(&tree, &driver));
    assert_eq!(
        inventory.topology.distance("gpu.0", "gpu.1").to_string(),
        "PHB"
    );
    assert!(codes(&inventory).is_empty());
}

pub(crate) fn links_between_gpus_name_the_slot() {
    let mut driver = driver();
    let to = |bus: &str, links| fake::NvLinkRun {
        links,
        active: Some(true.into()),
        remote_pci: Some(Field::Value(fake::Pci {
            bus_id: format!("0000{}", bus.to_uppercase()),
            device_id: "0x233010DE".into(),
            subsystem_id: "0x16C110DE".into(),
        })),
        ..fake::NvLinkRun::default()
    };
    driver.gpus[0].nvlinks = vec![to("0000:1b:00.0", 4), to("0000:99:00.0", 2)];
    driver.gpus[1].nvlinks = vec![to("0000:3c:00.0", 4)];
    let inventory = probe(&driver);
    let found: Vec<String> = inventory
        .topology
        .nvlinks
        .iter()
        .map(|peer| format!("{} {} {}", peer.gpu, peer.to, peer.links))
        .collect();
    assert_eq!(found, ["0 gpu.1 4", "1 0000:99:00.0 2", "1 gpu.0 4"]);
}

/// Checks the distances of the matrix again: devices below one switch share its rank.
pub(crate) fn a_gpu_and_the_nic_beside_it_have_one_switch() {
    let inventory = captured("gpu001");
    let switch = |class: Class, device: &str| {
        let record = &inventory.records[&class];
        record.get(&format!("{device}.pci_switch")).to_string()
    };
    for gpu in 0..8 {
        let device = format!("gpu.{gpu}");
        assert_eq!(switch(Class::Gpu, &device), gpu.to_string());
        for nic in &inventory.identity.nics {
            let nic = format!("nic.{}", nic.slot);
            let is_beside = inventory.topology.distance(&device, &nic).to_string() == "PIX";
            let is_same = switch(Class::Nic, &nic) == gpu.to_string();
            assert_eq!(is_same, is_beside, "{device} {nic}");
        }
    }
    // The BlueField's functions are below a root port.
    let of_nics = inventory.identity.nics.iter();
    let of_nics = of_nics.map(|nic| switch(Class::Nic, &format!("nic.{}", nic.slot)));
    assert_eq!(of_nics.filter(|switch| switch == "<absent>").count(), 2);
}

pub(crate) fn an_amd_gpu_is_told_by_its_switch_too() {
    let tree = Tree::node();
    let upstream = "pci0000:60/0000:60:01.0/0000:61:00.0";
    for (way, class, vendor) in [
        ("pci0000:60/0000:60:01.0", "060400", "1022"),
        (upstream, "060400", "1000"),
        (&format!("{upstream}/0000:62:00.0"), "060400", "1000"),
        (
            &format!("{upstream}/0000:62:00.0/0000:63:00.0"),
            "038000",
            "1002",
        ),
    ] {
        let (_, address) = way.rsplit_once('/').unwrap();
        tree.file(&format!("/sys/devices/{way}/class"), &format!("0x{class}"))
            .file(
                &format!("/sys/devices/{way}/vendor"),
                &format!("0x{vendor}"),
            )
            .link(
                &format!("/sys/bus/pci/devices/{address}"),
                &format!("../../../devices/{way}"),
            );
    }
    let inventory = without_library(&tree);
    assert_eq!(get(&inventory, "gpu.amd.0.pci_switch"), "0");
}
