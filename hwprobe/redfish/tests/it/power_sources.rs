//! Several power readings in one chassis: the entries of `PowerControl[]`, and resources of other forms next to it. One
//! of them is the draw of the node; they are never added up.

use crate::power::{bmc, link, power_of, watts};
use lattice_conformance::{LimitState, Power, Reading};
use lattice_redfish::ResourcePath;
use serde_json::{Value, json};

/// Power of a node with these entries in `PowerControl[]`. The order of the entries does not count.
fn controls(entries: &[Value]) -> Power {
    let power = |entries: &[Value]| {
        let power = json!({"PowerControl": entries});
        power_of(&bmc(
            "On",
            json!({"Power": link("Power")}),
            &[("Power", power)],
        ))
    };
    let first = power(entries);
    for turn in 1..entries.len() {
        let mut turned = entries.to_vec();
        turned.rotate_left(turn);
        assert_eq!(power(&turned), first, "{entries:?}");
    }
    first
}

fn entry(id: &str, name: &str, watts: impl Into<Value>) -> Value {
    json!({"MemberId": id, "Name": name, "PowerConsumedWatts": watts.into()})
}

#[test]
fn entry_without_a_number_does_not_hide_one_with_a_number() {
    let whole = || entry("1", "B", 540);
    for other in [
        entry("0", "A", Value::Null),
        entry("0", "A", "540 W"),
        entry("0", "A", 0),
        entry("0", "A", -1),
        json!({"MemberId": "0", "Name": "A"}),
        json!({"@odata.id": "/redfish/v1/Chassis/C/Power#/PowerControl/0"}),
        json!(null),
        json!("A"),
    ] {
        assert_eq!(
            controls(&[other.clone(), whole()]).draw,
            watts(540),
            "{other}"
        );
    }
    // The limit of the entry without a number is still a limit.
    let mut limited = entry("0", "A", Value::Null);
    limited["PowerLimit"] = json!({"LimitInWatts": 500, "LimitException": "NoAction"});
    limited["PowerCapacityWatts"] = json!(1600);
    let power = controls(&[limited, whole()]);
    assert_eq!((power.draw, power.limit), (watts(540), watts(500)));
    // No entry has a number.
    let none = controls(&[entry("0", "A", Value::Null), entry("1", "B", Value::Null)]);
    assert_eq!(none.draw, Reading::Unsupported);
}

#[test]
fn sum_is_the_draw_and_is_not_added_to_its_parts() {
    for (entries, draw) in [
        (vec![entry("0", "A", 270), entry("1", "B", 540)], 540),
        (
            vec![
                entry("0", "", 540),
                entry("1", "", 270),
                entry("2", "", 270),
            ],
            540,
        ),
        (
            vec![
                entry("0", "PSU 1", 270),
                entry("1", "PSU 2", 270),
                entry("2", "Total Power", 540),
            ],
            540,
        ),
        (
            vec![
                entry("0", "Power Supply 1", 600),
                entry("1", "System Power Control", 540),
            ],
            540,
        ),
        (
            vec![
                entry("0", "Power Supply Total", 540),
                entry("1", "Power Supply 1", 270),
            ],
            540,
        ),
        (
            vec![
                entry("0", "System Board", 320),
                entry("1", "System Input Power", 540),
            ],
            540,
        ),
        // The enclosure contains other nodes.
        (
            vec![
                entry("0", "Enclosure Power", 2160),
                entry("1", "Node Power Control", 540),
            ],
            540,
        ),
        (vec![entry("0", "Power Supply 1", 540)], 540),
        (vec![entry("0", "Enclosure", 540)], 540),
    ] {
        assert_eq!(controls(&entries).draw, watts(draw), "{entries:?}");
    }
    // The limit belongs to the entry with the sum.
    let mut whole = entry("1", "B", 540);
    whole["PowerLimit"] = json!({"LimitInWatts": 600, "LimitException": "NoAction"});
    let power = controls(&[entry("0", "A", 270), whole]);
    assert_eq!((power.draw, power.limit), (watts(540), watts(600)));
}

#[test]
fn power_supplies_alone_do_not_measure_the_node() {
    let mut second = entry("1", "x", 270);
    second["PhysicalContext"] = json!("PowerSupply");
    let power = controls(&[entry("0", "PSU1 Input", 270), second]);
    let why = power.draw.to_string();
    assert!(why.contains("each power supply"), "{why}");
    assert_eq!(power.limit_state, LimitState::Unknown);
    // Without entries, or without their contents, the draw is not known to be absent.
    let link_only = json!({"@odata.id": "/redfish/v1/Chassis/C/Power/PowerControl/0"});
    let draw = controls(&[link_only]).draw;
    assert!(matches!(draw, Reading::Failed { .. }), "{draw}");
    let counted = json!({"PowerControl": [], "PowerControl@odata.count": 1});
    let chassis = json!({"Power": link("Power")});
    let draw = power_of(&bmc("On", chassis, &[("Power", counted)])).draw;
    assert!(matches!(draw, Reading::Failed { .. }), "{draw}");
    assert_eq!(controls(&[]).draw, Reading::Absent);
}

#[test]
fn related_system_is_recognized_in_any_case() {
    let of = |system: &str, watts: u64| {
        let mut entry = entry(system, "", watts);
        entry["RelatedItem"] = json!([{"@odata.id": format!("/redfish/v1/{system}")}]);
        entry
    };
    for (ours, theirs) in [
        ("Systems/S", "Systems/T"),
        ("systems/s/", "systems/t"),
        ("SYSTEMS/S", "Systems/T/"),
    ] {
        let power = controls(&[of(ours, 540), of(theirs, 700)]);
        assert_eq!(power.draw, watts(540), "{ours} {theirs}");
    }
}

#[test]
fn resources_of_other_forms_are_not_added() {
    let chassis = json!({
        "Power": link("Power"),
        "EnvironmentMetrics": link("EnvironmentMetrics"),
        "PowerSubsystem": link("PowerSubsystem"),
    });
    let control = || json!({"PowerControl": [{"PowerConsumedWatts": 540}]});
    let subsystem = json!({"CapacityWatts": 2000, "Allocation": {"AllocatedWatts": 900}});
    let draw = |power: Option<Value>, metrics: Option<Value>| {
        let mut resources = vec![("PowerSubsystem", subsystem.clone())];
        resources.extend(power.map(|power| ("Power", power)));
        resources.extend(metrics.map(|metrics| ("EnvironmentMetrics", metrics)));
        power_of(&bmc("On", chassis.clone(), &resources)).draw
    };
    let metrics = |reading: Value| json!({"PowerWatts": {"Reading": reading}});
    assert_eq!(draw(Some(control()), Some(metrics(json!(541)))), watts(541));
    assert_eq!(draw(None, Some(metrics(json!(541)))), watts(541));
    for metrics in [
        Some(metrics(json!(null))),
        Some(metrics(json!(0))),
        Some(metrics(json!("541"))),
        Some(json!({"PowerWatts": {}})),
        Some(json!({"PowerWatts": null})),
        Some(json!({"TemperatureCelsius": {"Reading": 30}})),
        None,
    ] {
        assert_eq!(
            draw(Some(control()), metrics.clone()),
            watts(540),
            "{metrics:?}"
        );
    }
    // The capacity and the allocation of power supplies are not a draw.
    assert_eq!(draw(None, None), Reading::Absent);
    // A resource that does not answer does not hide the other one.
    let mut documents = bmc("On", chassis, &[("Power", control())]);
    let path = ResourcePath::parse("/redfish/v1/Chassis/C/EnvironmentMetrics").expect("a path");
    let silent = Reading::Timeout { after_ms: 4000 };
    documents.0.insert(path, silent);
    assert_eq!(power_of(&documents).draw, watts(540));
}
