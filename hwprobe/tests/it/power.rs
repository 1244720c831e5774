//! In-band power on trees written here.

use crate::support::Tree;
use lattice_conformance::{LimitState, Milliwatts, Power, Reading};

/// An ACPI power meter with these files.
fn meter(tree: &Tree, name: &str, files: &[(&str, &str)]) {
    let dir = format!("/sys/class/hwmon/{name}");
    tree.file(&format!("{dir}/name"), "power_meter");
    for (file, content) in files {
        tree.file(&format!("{dir}/{file}"), content);
    }
}

fn power(tree: &Tree) -> Power {
    tree.probe().power.unwrap_or_else(|| panic!("no power"))
}

const WATTS: u64 = 1000;

#[test]
fn node_meter_reports_draw_and_limit() {
    let tree = Tree::node();
    tree.file("/sys/class/hwmon/hwmon0/name", "coretemp");
    meter(
        &tree,
        "hwmon3",
        &[
            ("power1_average", "2345000000"),
            ("power1_cap", "6000000000"),
            ("power1_cap_min", "1200000000"),
            ("power1_cap_max", "8000000000"),
            ("power1_model_number", "PMBus"),
        ],
    );
    let found = power(&tree);
    assert_eq!(found.draw, Reading::Present(Milliwatts(2345 * WATTS)));
    assert_eq!(found.limit, Reading::Present(Milliwatts(6000 * WATTS)));
    assert_eq!(found.limit_state, LimitState::Set);
    assert_eq!(found.limit_min, Reading::Present(Milliwatts(1200 * WATTS)));
    assert_eq!(found.source, "hwmon/power_meter");
    assert!(!format!("{:?}", tree.probe().records).contains("2345"));
}

#[test]
fn reports_four_kinds_of_limit() {
    let state = |files: &[(&str, &str)]| {
        let tree = Tree::node();
        meter(&tree, "hwmon1", &[("power1_average", "500000000")]);
        meter(&tree, "hwmon1", files);
        let found = power(&tree);
        // A limit is present exactly if one is set.
        assert_eq!(
            found.limit.present().is_some(),
            found.limit_state == LimitState::Set
        );
        found.limit_state
    };
    assert_eq!(state(&[]), LimitState::Absent);
    assert_eq!(state(&[("power1_cap", "0")]), LimitState::Uncapped);
    let most = ("power1_cap_max", "900000000");
    assert_eq!(
        state(&[("power1_cap", "900000000"), most]),
        LimitState::Uncapped
    );
    assert_eq!(state(&[("power1_cap", "800000000"), most]), LimitState::Set);
    assert_eq!(state(&[("power1_cap", "unlimited")]), LimitState::Unknown);
}

#[test]
fn a_meter_that_reads_nothing_measures_nothing() {
    let tree = Tree::node();
    meter(&tree, "hwmon1", &[("power1_average", "0")]);
    assert_eq!(power(&tree).draw, Reading::Unsupported);
    meter(&tree, "hwmon1", &[("power1_average", "-3")]);
    assert!(matches!(power(&tree).draw, Reading::Failed { .. }));
}

#[test]
fn meters_of_parts_are_no_meter_of_the_node() {
    let tree = Tree::node();
    for (name, part) in [
        ("hwmon1", "Module Power Socket 0"),
        ("hwmon2", "Grace Power Socket 0"),
        ("hwmon4", "SysIO Power Socket 0"),
    ] {
        let files = [("power1_average", "98000000"), ("power1_oem_info", part)];
        meter(&tree, name, &files);
    }
    let inventory = tree.probe();
    assert_eq!(inventory.power, None);
    let vital = inventory.vitals.get("power.meter.grace_power_socket_0");
    assert_eq!(vital.to_string(), "98000");
}

#[test]
fn two_meters_of_the_whole_node_contradict_each_other() {
    let tree = Tree::node();
    meter(&tree, "hwmon1", &[("power1_average", "500000000")]);
    meter(&tree, "hwmon2", &[("power1_average", "700000000")]);
    let inventory = tree.probe();
    assert_eq!(inventory.power, None);
    let mut codes = inventory.findings.iter().map(|f| f.code.as_str());
    assert!(codes.any(|code| code == "power_meter_ambiguous"));
}

#[test]
fn cray_counts_in_watts_and_zero_is_no_limit() {
    let tree = Tree::node();
    let dir = "/sys/cray/pm_counters";
    let put = |file: &str, text: &str| {
        tree.file(&format!("{dir}/{file}"), text);
    };
    put("power", "467 W 1674849124134466 us");
    put("power_cap", "0 W 1674849124134466 us");
    put("energy", "5321894 J 1674849124134466 us");
    put("accel0_power", "81 W 1674849124134466 us");
    put("freshness", "1234567");
    let found = power(&tree);
    assert_eq!(found.draw, Reading::Present(Milliwatts(467 * WATTS)));
    assert_eq!(found.limit_state, LimitState::Uncapped);
    assert_eq!(found.source, "cray/pm_counters");
    let vitals = tree.probe().vitals;
    assert_eq!(vitals.get("power.cray.accel0").to_string(), "81000");
    assert_eq!(vitals.get("power.cray.energy_j").to_string(), "5321894");
    put("power_cap", "1500 W 1674849124134466 us");
    assert_eq!(
        power(&tree).limit,
        Reading::Present(Milliwatts(1500 * WATTS))
    );
    put("power", "467 J");
    assert!(matches!(power(&tree).draw, Reading::Failed { .. }));
    // A kernel meter takes precedence over the counters.
    meter(&tree, "hwmon1", &[("power1_average", "500000000")]);
    assert_eq!(power(&tree).draw, Reading::Present(Milliwatts(500 * WATTS)));
}
