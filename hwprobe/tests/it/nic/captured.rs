//! NICs of real machines.

use super::*;

#[test]
fn the_h100_node_has_eight_connectx_7_and_a_bluefield_3_as_published() {
    let inventory = unpacked("sys-class-infiniband-h100.ttar").probe();
    let get = |key: &str| shown(&inventory, key);
    assert_eq!(get("nic.count"), "9");
    for slot in 0..8 {
        let get = |key: &str| get(&format!("nic.{slot}.{key}"));
        assert_eq!(get("firmware"), "28.41.1000");
        assert_eq!(get("board_id"), "MT_0000000838");
        assert_eq!(get("hca_type"), "MT4129");
        assert_eq!(get("link_layer"), "InfiniBand");
        assert_eq!(get("hw_rev"), "<absent>");
        assert_eq!(get("gid_types"), "<absent>");
    }
    assert_eq!(get("nic.8.firmware"), "32.38.3056");
    assert_eq!(get("nic.8.board_id"), "MT_0000000884");
    assert_eq!(get("nic.8.hca_type"), "MT41692");
    assert_eq!(get("nic.8.link_layer"), "Ethernet");
    assert_eq!(inventory.resources.rdma_count, present(9));
    let state = inventory.records[&Class::Nic].state();
    assert!(matches!(state, ClassState::Complete { .. }), "{state:?}");
}

#[test]
fn live_values_of_the_h100_node_are_vitals_and_no_keys() {
    let inventory = unpacked("sys-class-infiniband-h100.ttar").probe();
    let get = |key: &str| vital(&inventory, key);
    assert_eq!(get("nic.0.port.1.state"), "ACTIVE");
    assert_eq!(get("nic.0.port.1.phys_state"), "LinkUp");
    assert_eq!(get("nic.0.port.1.rate"), "400000000000");
    assert_eq!(get("nic.8.port.1.rate"), "200000000000");
    // The second device has lost its link 255 times, the maximum of that counter.
    assert_eq!(get("nic.0.port.1.link_downed"), "0");
    assert_eq!(get("nic.1.port.1.link_downed"), "255");
    assert_eq!(get("nic.1.port.1.symbol_error"), "0");
    assert_eq!(get("nic.0.port.1.rnr_nak_retry_err"), "0");
    assert_eq!(get("nic.0.port.1.roce_slow_restart"), "0");
    let bytes = inventory.vitals.get("nic.0.port.1.sent_bytes");
    assert!(bytes.present().and_then(Value::as_number).unwrap() > 1 << 40);
    // Every value was readable, and none is also a key of the record.
    let record = &inventory.records[&Class::Nic];
    for (key, reading) in inventory
        .vitals
        .0
        .iter()
        .filter(|(k, _)| k.starts_with("nic."))
    {
        assert!(reading.is_known(), "{key}: {reading}");
        assert!(!record.entries.contains_key(key), "{key} is in two planes");
    }
}

#[test]
fn one_nic_with_another_firmware_is_named_as_the_odd_one_out() {
    let tree = unpacked("sys-class-infiniband-h100.ttar");
    tree.file("/sys/class/dmi/id/sys_vendor", "Dell Inc.")
        .file("/sys/class/dmi/id/product_name", "PowerEdge XE9680");
    let like = tree.probe();
    tree.file("/sys/class/infiniband/mlx5_6/fw_ver", "28.39.2048");
    let nodes = [&like, &like, &tree.probe(), &like, &like].map(Inventory::clone);
    let named = nodes.iter().enumerate();
    let views: Vec<_> = named.map(|(i, node)| node.view(format!("n{i}"))).collect();
    let mut preimages: BTreeMap<Digest, Vec<u8>> = BTreeMap::new();
    for record in nodes.iter().flat_map(|node| node.records.values()) {
        if let Some(digest) = record.state().digest() {
            preimages.insert(digest, record.encode());
        }
    }
    let report = drift(&views, &|digest: &Digest| -> Option<ClassRecord> {
        Some(verify(digest, &preimages[digest]).unwrap())
    });
    let nics = report
        .drifts
        .iter()
        .filter(|drift| drift.class == Class::Nic);
    let found: Vec<_> = nics
        .map(|d| (&*d.node, &*d.key, &*d.expected, &*d.found))
        .collect();
    assert_eq!(
        found,
        [("n2", "nic.4.firmware", "28.41.1000", "28.39.2048")]
    );
}

#[test]
fn an_mlx4_has_two_ports_and_an_i40iw_counts_nothing() {
    let inventory = unpacked("node_exporter-infiniband.ttar").probe();
    let get = |key: &str| shown(&inventory, key);
    assert_eq!(get("nic.count"), "2");
    assert_eq!(get("nic.0.board_id"), "I40IW Board ID");
    assert_eq!(get("nic.0.firmware"), "0.2");
    assert_eq!(get("nic.1.firmware"), "2.31.5050");
    assert_eq!(get("nic.1.board_id"), "SM_1141000001000");
    assert_eq!(get("nic.1.hca_type"), "MT4099");
    assert_eq!(get("nic.1.link_layer"), "InfiniBand InfiniBand");
    let get = |key: &str| vital(&inventory, key);
    assert_eq!(get("nic.0.port.1.rate"), "10000000000");
    // "N/A (no PMA)" is not zero errors.
    assert_eq!(get("nic.0.port.1.link_downed"), "<unsupported>");
    assert_eq!(get("nic.1.port.2.rate"), "40000000000");
    assert_eq!(get("nic.1.port.1.link_downed"), "0");
    assert_eq!(get("nic.1.port.2.symbol_error"), "<absent>");
}

/// The bus as printed by `lspci -nn`: address, name with class, ids, revision.
fn bus(listing: &str) -> Tree {
    let tree = Tree::new();
    let between = |text: &str| {
        let (text, _) = text.rsplit_once(']').unwrap();
        let (_, inside) = text.rsplit_once('[').unwrap();
        inside.to_owned()
    };
    for line in listing.lines() {
        let (address, rest) = line.split_once(' ').unwrap();
        let (class, name) = rest.split_once(": ").unwrap();
        let ids = between(name);
        let (vendor, device) = ids.split_once(':').unwrap();
        tree.pci(address, &format!("{}00", between(class)), vendor, device);
    }
    tree
}

#[test]
fn the_bus_of_an_a100_server_has_nine_nics_in_its_order() {
    let inventory = bus(include_str!(
        "../../../../fixtures/captures/lspci-nn-a100.txt"
    ))
    .probe();
    let get = |key: &str| shown(&inventory, key);
    // In a virtual machine, the assigned virtual functions are its only NICs.
    assert_eq!(get("nic.count"), "9");
    for slot in 0..8 {
        assert_eq!(get(&format!("nic.{slot}.pci_id")), "15b3:101c");
        assert_eq!(get(&format!("nic.{slot}.pci_class")), "020700");
    }
    assert_eq!(get("nic.8.pci_id"), "15b3:1016");
    let addresses = inventory
        .identity
        .nics
        .iter()
        .map(|nic| nic.address.present());
    let addresses: Vec<_> = addresses.map(|address| address.unwrap().as_str()).collect();
    assert_eq!(addresses[0], "0101:00:00.0");
    assert_eq!(addresses[7..], ["0108:00:00.0", "c941:00:02.0"]);
    // The listing contains no drivers.
    assert_eq!(codes(&inventory), ["nic_without_driver"; 9]);
}

#[test]
fn address_kinds_are_reported_without_count() {
    let tree = Tree::node();
    let types = "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types";
    for (entry, kind) in [("0", "IB/RoCE v1"), ("1", "RoCE v2")] {
        tree.file(&format!("{types}/{entry}"), kind);
    }
    let before = tree.probe();
    assert_eq!(shown(&before, "nic.1.gid_types"), "IB/RoCE v1 RoCE v2");
    tree.file(&format!("{types}/2"), "RoCE v2")
        .file(&format!("{types}/10"), "IB/RoCE v1");
    assert_eq!(before.marks(), tree.probe().marks());
}

#[test]
fn the_first_revision_of_a_chip_is_one_and_a_firmware_of_zeros_is_none() {
    let tree = Tree::node();
    let device = "/sys/class/infiniband/mlx5_0";
    tree.file(&format!("{device}/hw_rev"), "0x0")
        .file(&format!("{device}/fw_ver"), "0.0.0000");
    let inventory = tree.probe();
    assert_eq!(shown(&inventory, "nic.1.hw_rev"), "0x0");
    assert_eq!(shown(&inventory, "nic.1.firmware"), "<unsupported>");
}

#[test]
fn vendor_driver_stack_differs_from_kernel() {
    let tree = Tree::node();
    let ofed = |tree: &Tree| shown(&tree.probe(), "nic.ofed");
    assert_eq!(ofed(&tree), "<absent>");
    tree.file("/sys/module/mlx5_core/version", "5.0-0");
    assert_eq!(ofed(&tree), "<absent>");
    tree.file("/sys/module/mlx5_core/version", "24.10-1.1.4");
    assert_eq!(ofed(&tree), "24.10-1.1.4");
}

/// rdma-core can name devices by their GUID: the name is in folders, links and contents.
#[test]
fn masked_capture_renames_guid_rdma_device() {
    let names = ["rocex506b4b0300cabc01", "ibx0c42a10300aabbcc"];
    let tree = Tree::new();
    for (name, address) in names.iter().zip(["0000:1a:00.0", "0000:3b:00.0"]) {
        tree.pci(address, "020700", "15b3", "1021");
        tree.rdma(name, Some(address), "28.41.1000");
        tree.file(
            &format!("/sys/class/infiniband_verbs/uverbs-{address}/ibdev"),
            name,
        );
    }
    let (again, all) = masked(&tree);
    assert!(
        all.contains("rocex0200") && all.contains("ibx0200"),
        "{all}"
    );
    for secret in ["506b4b", "0c42a1", "aabbcc", "a088:c203"] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
    assert_eq!(shown(&again, "nic.1.firmware"), "28.41.1000");
}
