//! Probe results for `/sys` trees captured on other machines.

use crate::support::Tree;
use crate::support::ttar;
use lattice_conformance::{Class, ClassState, Inventory, Reading, Value};
use std::path::Path;

fn captured() -> Inventory {
    let tree = Tree::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/captures");
    ttar::unpack(&tree, &folder.join("node_exporter-sys.ttar"));
    tree.probe()
}

fn shown(inventory: &Inventory, class: Class, key: &str) -> String {
    inventory.records[&class].get(key).to_string()
}

#[test]
fn firmware_of_a_dell_r6515_and_a_version_that_is_no_text() {
    let inventory = captured();
    let get = |key: &str| shown(&inventory, Class::Bios, key);
    assert_eq!(get("bios.vendor"), "Dell Inc.");
    assert_eq!(get("bios.version"), "2.2.4");
    assert_eq!(get("bios.release"), "2.2");
    assert_eq!(get("bios.date"), "04/12/2021");
    assert_eq!(get("bios.board.name"), "07PXPY");
    assert_eq!(get("bios.board.version"), "A01");
    assert_eq!(get("bios.product.name"), "PowerEdge R6515");
    assert_eq!(
        get("bios.product.sku"),
        "SKU=NotProvided;ModelName=PowerEdge R6515"
    );
    // A string that cannot be decoded is quoted, and leaves its class without a digest.
    let version =
        "control characters in a text of the firmware: \"\\xef\\xbf\\xbd\\x1c[\\xef\\xbf\\xbd\"";
    let ClassState::Incomplete { missing } = inventory.records[&Class::Bios].state() else {
        panic!("{:?}", inventory.records[&Class::Bios]);
    };
    let failed = missing.get("bios.product.version");
    assert_eq!(failed, Some(&Reading::failed(version)));
    let serial = Reading::Present("7N62AI2".to_owned());
    assert_eq!(inventory.identity.product_serial, serial);
}

#[test]
fn disks_and_arrays_by_their_shape() {
    let inventory = captured();
    let get = |key: &str| shown(&inventory, Class::Storage, key);
    assert_eq!(get("storage.nvme.count"), "1");
    assert_eq!(get("storage.nvme.0.model"), "Samsung SSD 970 PRO 512GB");
    assert_eq!(get("storage.nvme.0.firmware"), "1B2QEXP7");
    assert_eq!(get("storage.nvme.0.namespace.count"), "1");
    assert_eq!(
        get("storage.nvme.0.namespace.0.size"),
        (3_906_250_000_u64 * 512).to_string()
    );
    assert_eq!(get("storage.nvme.0.namespace.0.block_size"), "4096");
    assert_eq!(get("storage.raid.count"), "6");
    let levels: Vec<String> = (0..6)
        .map(|slot| get(&format!("storage.raid.{slot}.level")))
        .collect();
    assert_eq!(
        levels,
        ["raid0", "raid1", "raid10", "raid4", "raid5", "raid6"]
    );
    assert_eq!(get("storage.raid.2.members"), "4");
    assert_eq!(get("storage.raid.2.chunk"), "524288");
    let vital = |key: &str| inventory.vitals.get(key);
    assert_eq!(
        vital("storage.raid.4.degraded"),
        Reading::Present(Value::Number(1))
    );
    assert_eq!(vital("storage.raid.0.degraded"), Reading::Unsupported);
    assert_eq!(
        vital("storage.nvme.0.state"),
        Reading::Present("live".into())
    );
    let serials: Vec<_> = inventory
        .identity
        .disks
        .iter()
        .map(|disk| &disk.serial)
        .collect();
    assert!(serials.contains(&&Reading::Present("S680HF8N190894I".to_owned())));
    assert!(!format!("{:?}", inventory.records).contains("S680HF8N190894I"));
}

#[test]
fn counters_of_processors_and_memory_are_vitals_and_in_no_record() {
    let inventory = captured();
    let vital = |key: &str| inventory.vitals.get(key).to_string();
    assert_eq!(vital("cpu.throttle.cores"), "14");
    assert_eq!(vital("cpu.throttle.package"), "30");
    assert_eq!(vital("memory.controller.0.ce_count"), "1");
    assert_eq!(vital("memory.controller.0.ue_count"), "5");
    assert_eq!(vital("memory.controller.0.ue_noinfo_count"), "6");
    assert_eq!(vital("power.rapl.package-0.energy_uj"), "240422366267");
    assert_eq!(vital("power.rapl.package-0.core.energy_uj"), "118821284256");
    assert_eq!(
        vital("power.rapl.package-0.limit_uw.long_term"),
        "4090000000"
    );
    // Processor energy is not the power draw of the node.
    assert_eq!(inventory.power, None);
    for record in inventory.records.values() {
        for key in record.entries.keys() {
            assert!(
                !inventory.vitals.0.contains_key(key),
                "{key} is in two planes"
            );
        }
    }
}
