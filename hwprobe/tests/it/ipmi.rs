//! The BMC in band: recorded answers through the probe.

use crate::support::Tree;
use lattice_conformance::{Class, ClassState, Inventory, LimitState, Milliwatts, Reading};
use lattice_hwprobe::Answers;
use lattice_hwprobe::kernel::ipmi::IpmiReport;

/// Published answers; the decoder's own tests name their source.
const DEVICE_ID: &str = "0020810345 02bf4c1c004232 01000000";
const UPDATING: &str = "00207fff4151aaa20200000100072828";
const POWER: &str = "00dcae085704050dd20473b6445daabbccdd40";

fn node(device_id: Reading<&str>, power_reading: Reading<&str>) -> Inventory {
    let tree = Tree::new();
    let text = |answer: &str| answer.replace(' ', "");
    let report = IpmiReport {
        device_id: device_id.map(text),
        power_reading: power_reading.map(text),
    };
    tree.bytes(&format!("/{}", IpmiReport::FILE), &report.encode().unwrap());
    tree.probe()
}

fn shown(inventory: &Inventory, key: &str) -> String {
    inventory.records[&Class::Bmc].get(key).to_string()
}

#[test]
fn bmc_reports_identity_and_draw() {
    let inventory = node(Reading::Present(DEVICE_ID), Reading::Present(POWER));
    for (key, value) in [
        ("bmc.ipmi.firmware", "3.45"),
        ("bmc.ipmi.firmware_auxiliary", "01000000"),
        ("bmc.ipmi.manufacturer", "7244"),
        ("bmc.ipmi.product", "12866"),
        ("bmc.ipmi.device", "32"),
        ("bmc.ipmi.device_revision", "1"),
        ("bmc.ipmi.version", "2.0"),
    ] {
        assert_eq!(shown(&inventory, key), value, "{key}");
    }
    let power = inventory.power.unwrap();
    assert_eq!(power.draw, Reading::Present(Milliwatts(2_222_000)));
    assert_eq!(power.source, "ipmi");
    // Limits were not queried, which differs from "no limit".
    assert_eq!(power.limit_state, LimitState::Unknown);
    assert!(!power.limit.is_known());
    assert!(!format!("{:?}", inventory.records).contains("2222"));
}

#[test]
fn another_firmware_changes_the_class_and_another_draw_nothing() {
    let before = node(Reading::Present(DEVICE_ID), Reading::Present(POWER));
    let newer = DEVICE_ID.replace("0345", "0346");
    let after = node(Reading::Present(&newer), Reading::Present(POWER));
    assert_ne!(before.marks()[&Class::Bmc], after.marks()[&Class::Bmc]);
    let busier = POWER.replace("ae08", "ae09");
    let after = node(Reading::Present(DEVICE_ID), Reading::Present(&busier));
    assert_eq!(before.marks(), after.marks());
    assert_ne!(before.power, after.power);
}

#[test]
fn no_device_is_known_and_no_permission_is_not() {
    let none = node(Reading::Absent, Reading::Absent);
    assert_eq!(shown(&none, "bmc.ipmi.firmware"), "<absent>");
    let state = none.records[&Class::Bmc].state();
    assert!(matches!(state, ClassState::Complete { .. }), "{state:?}");
    assert!(none.power.is_none_or(|power| power.source != "ipmi"));
    let denied = Reading::denied("/dev/ipmi0: permission denied");
    let denied = node(denied.clone(), denied);
    let state = denied.records[&Class::Bmc].state();
    let ClassState::Incomplete { missing } = state else {
        panic!("{state:?}");
    };
    assert!(matches!(
        missing["bmc.ipmi.firmware"],
        Reading::Denied { .. }
    ));
    let hung = node(Reading::Timeout { after_ms: 5000 }, Reading::Absent);
    assert_eq!(shown(&hung, "bmc.ipmi.product"), "<timeout after 5000 ms>");
}

#[test]
fn a_bmc_in_the_middle_of_an_update_is_a_finding() {
    let inventory = node(Reading::Present(UPDATING), Reading::Absent);
    let codes = inventory
        .findings
        .iter()
        .map(|finding| finding.code.as_str());
    assert_eq!(codes.collect::<Vec<_>>(), ["bmc_not_available"]);
    assert_eq!(shown(&inventory, "bmc.ipmi.firmware"), "127.41");
}

#[test]
fn answers_that_are_none_are_failures() {
    for broken in ["zz", "00", "c000", ""] {
        let inventory = node(Reading::Present(broken), Reading::Present(broken));
        let firmware = inventory.records[&Class::Bmc].get("bmc.ipmi.firmware");
        assert!(
            matches!(firmware, Reading::Failed { .. }),
            "{broken}: {firmware:?}"
        );
    }
}

#[test]
fn a_tree_without_recorded_answers_is_not_asked() {
    let inventory = Tree::node().probe();
    let state = inventory.records[&Class::Bmc].state();
    let ClassState::Disabled { why } = state else {
        panic!("{state:?}");
    };
    assert!(why.contains("in-band"), "{why}");
}
