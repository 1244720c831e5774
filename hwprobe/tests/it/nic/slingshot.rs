//! HPE Slingshot NICs.

use super::*;

const STAT: &str = include_str!("../../../../fixtures/captures/cxi_stat-2nic.txt");

#[test]
fn cxi_stat_is_read_as_its_manual_page_shows_it() {
    let devices = parse_stat(STAT);
    let [first, second] = devices.as_slice() else {
        panic!("{devices:?}");
    };
    assert_eq!((&*first.name, &*second.name), ("cxi0", "cxi1"));
    assert_eq!(first.fields["FW Version"], "1.4.285");
    assert_eq!(first.fields["Part Number"], "102251001");
    assert_eq!(second.fields["Serial Number"], "HJ20110013");
    assert_eq!(second.fields["Link state"], "up");
    assert_eq!(second.address().as_deref(), Some("0000:a1:00.0"));
    for broken in [
        "",
        "Device",
        "Link state: up",
        "\u{0}:::\n:::",
        &"Device: x\n".repeat(999),
    ] {
        assert!(parse_stat(broken).len() <= 64);
    }
}

fn slingshot() -> Tree {
    let tree = Tree::new();
    // The device named first has the higher address: slots follow the bus.
    tree.pci("0000:21:00.0", "020000", "17db", "0501")
        .pci("0000:a1:00.0", "020000", "17db", "0501")
        .file("/commands/cxi-stat.out", STAT);
    tree
}

#[test]
fn cxi_stat_complements_sysfs() {
    let inventory = slingshot().probe();
    let get = |key: &str| shown(&inventory, key);
    assert_eq!(get("nic.count"), "2");
    assert_eq!(get("nic.0.cxi.description"), "Sawtooth");
    assert_eq!(get("nic.0.cxi.part_number"), "102251001");
    assert_eq!(get("nic.1.cxi.mtu"), "2112");
    assert_eq!(get("nic.1.cxi.pid_granule"), "256");
    assert_eq!(get("nic.1.cxi.loopback"), "off");
    assert_eq!(vital(&inventory, "nic.0.cxi.link_state"), "up");
    assert_eq!(vital(&inventory, "nic.0.cxi.link_speed"), "BS_200G");
    assert_eq!(vital(&inventory, "nic.0.cxi.link_layer_retry"), "on");
    let nics = &inventory.identity.nics;
    assert_eq!(nics[0].serial, present("HJ20110019".to_owned()));
    assert_eq!(nics[1].nid, present("192246".to_owned()));
    assert_eq!(nics[0].macs, [present("00:40:a6:82:ef:02".to_owned())]);
    let record = format!("{:?}", inventory.records[&Class::Nic]);
    for own in ["HJ2011", "192246", "00:40:a6", "hsn0"] {
        assert!(!record.contains(own), "{own} is in the record");
    }
}

#[test]
fn slingshot_sysfs_is_read_in_the_layouts_of_both_generations() {
    let tree = slingshot();
    let first = "/sys/devices/pci0000:21/0000:21:00.0";
    let second = "/sys/devices/pci0000:a1/0000:a1:00.0";
    tree.link("/sys/class/cxi/cxi1/device", first)
        .link("/sys/class/cxi/cxi0/device", second)
        .file(&format!("{first}/uc/qspi_blob_version"), "1.5.50")
        .file(&format!("{first}/fru/part_number"), "P43012-001")
        .file(&format!("{first}/fru/serial_number"), "XYZ1")
        .file(&format!("{first}/properties/nid"), "0x00012")
        .file(&format!("{first}/port/speed"), "BS_200G")
        .file(&format!("{first}/port/link"), "down")
        .file(&format!("{second}/uc/qspi_blob_version"), "2.0.1")
        .file(&format!("{second}/port/0/link/speed"), "ck400G")
        .file(&format!("{second}/port/0/link/state"), "up")
        .link(
            &format!("{first}/driver"),
            "../../../bus/pci/drivers/cxi_core",
        )
        .link(
            "/sys/bus/pci/drivers/cxi_core/module",
            "../../../../module/cxi_ss1",
        )
        .file("/sys/module/cxi_ss1/version", "1.0.0-SHS13");
    let inventory = tree.probe();
    let get = |key: &str| shown(&inventory, key);
    assert_eq!(get("nic.0.firmware"), "1.5.50");
    assert_eq!(get("nic.0.cxi.part_number"), "P43012-001");
    assert_eq!(get("nic.1.firmware"), "2.0.1");
    assert_eq!(get("nic.0.driver"), "cxi_core");
    assert_eq!(get("nic.0.driver_version"), "1.0.0-SHS13");
    assert_eq!(vital(&inventory, "nic.0.cxi.link_state"), "down");
    assert_eq!(vital(&inventory, "nic.1.cxi.link_speed"), "ck400G");
    assert_eq!(
        inventory.identity.nics[0].serial,
        present("XYZ1".to_owned())
    );
    assert_eq!(inventory.identity.nics[0].nid, present("18".to_owned()));
    assert!(inventory.resources.features.contains("slingshot"));
}
