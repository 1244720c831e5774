//! Sources of power data for one system.
//!
//! Node-level sources come first. A reading of a chassis that several systems share is never attributed to one system,
//! unless the BMC assigns it entry by entry.

use super::{Route, Shape, Source};
use crate::documents::ResourcePath;
use crate::own::Chassis;
use crate::power::read;
use crate::systems::System;
use crate::walk::{Walk, link, number, string};
use lattice_conformance::Reading;
use serde_json::Value;

/// Sensors at a node's input, by the last part of their path, in lower case without `_`. A sensor with another name
/// measures a part of the node, or an unknown quantity.
const NODE_SENSORS: &[&str] = &[
    "chassisvoltageregulator0inputpower",
    "totalpower",
    "powertotalpower",
    "totalsystempower",
    "systempower",
    "powersystempower",
    "nodepower",
    "nodeinputpower",
    "platformpower",
    "powerconsumption",
    "systempowerconsumption",
    "syspower",
];

/// The route to one system's power. Sensors are searched only if no other source reports the draw, because there are
/// hundreds of them.
pub(crate) fn find(walk: &mut Walk<'_>, system: &System<'_>, chassis: &[Chassis<'_>]) -> Route {
    let mut sources = Vec::new();
    for one in chassis {
        controls(walk, one, &mut sources);
        for (property, shape) in [
            ("EnvironmentMetrics", Shape::EnvironmentMetrics),
            ("Power", Shape::PowerControl),
        ] {
            if let Some(path) = link(one.value, property) {
                sources.push(source(path, shape, one));
            }
        }
        acc_power_service(walk, one, &mut sources);
    }
    let first = read(walk, Some(&system.path), &sources);
    if first.power.draw.present().is_none() && !first.is_pending {
        for one in chassis.iter().filter(|one| !one.is_shared) {
            sensors(walk, one, &mut sources);
        }
    }
    Route {
        system: Some(system.path.clone()),
        sources,
        unread: Reading::Absent,
    }
}

const fn source(path: ResourcePath, shape: Shape, chassis: &Chassis<'_>) -> Source {
    Source {
        path,
        shape,
        is_shared: chassis.is_shared,
    }
}

/// Adds the control of the whole node among a chassis's controls.
fn controls(walk: &mut Walk<'_>, chassis: &Chassis<'_>, sources: &mut Vec<Source>) {
    let controls = power_controls(walk, chassis.value);
    for (path, value) in controls.found {
        if !is_of_a_part(value) {
            sources.push(source(path, Shape::Control, chassis));
        }
    }
    // A silent control may be that of the node; reading it shows that.
    for path in controls.silent {
        sources.push(source(path, Shape::Control, chassis));
    }
}

/// The power controls of a chassis.
pub(crate) struct Controls<'a> {
    /// Controls that were read, by path.
    pub(crate) found: Vec<(ResourcePath, &'a Value)>,
    /// Unreadable controls, or the unreadable list of controls.
    silent: Vec<ResourcePath>,
}

/// Every power control of a chassis.
pub(crate) fn power_controls<'a>(walk: &mut Walk<'a>, chassis: &Value) -> Controls<'a> {
    let mut controls = Controls {
        found: Vec::new(),
        silent: Vec::new(),
    };
    let Some(path) = link(chassis, "Controls") else {
        return controls;
    };
    let members = match walk.members(&path) {
        Reading::Present(members) => members,
        Reading::Absent => return controls,
        _ => {
            controls.silent.push(path);
            return controls;
        }
    };
    for member in members {
        if !last_part(&member.path).contains("power") {
            continue;
        }
        match walk.member(&member) {
            Reading::Present(value) => {
                if string(value, "ControlType").is_none_or(|kind| kind == "Power") {
                    controls.found.push((member.path.clone(), value));
                }
            }
            Reading::Absent => {}
            _ => controls.silent.push(member.path.clone()),
        }
    }
    controls
}

/// Whether a control or a power reading concerns a part of the node, by its context or its name.
pub(crate) fn is_of_a_part(value: &Value) -> bool {
    const PARTS: &[&str] = &[
        "accelerator",
        "gpu",
        "cpu",
        "processor",
        "memory",
        "dimm",
        "fan",
        "drive",
        "storage",
        "networking",
        "pcie",
    ];
    let context = string(value, "PhysicalContext").unwrap_or_default();
    let id = string(value, "Id").unwrap_or_default();
    let name = string(value, "Name").unwrap_or_default();
    [context, id, name].iter().any(|text| {
        let lower = text.to_ascii_lowercase();
        PARTS.iter().any(|part| lower.contains(part)) || begins_word(text, "asic")
    })
}

/// Whether a word of `text` begins with `part`, which is in lower case: matches `ASIC 0` and `MainASIC`, but not
/// `Basic`.
fn begins_word(text: &str, part: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let bytes = text.as_bytes();
    let begins = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        before.is_none_or(|before| {
            let is_capital = bytes.get(at).is_some_and(u8::is_ascii_uppercase);
            !before.is_ascii_alphabetic() || before.is_ascii_lowercase() && is_capital
        })
    };
    lower.match_indices(part).any(|(at, _)| begins(at))
}

/// Adds HPE's power limit service for nodes with accelerators; the power resource or the chassis links to it.
fn acc_power_service(walk: &mut Walk<'_>, chassis: &Chassis<'_>, sources: &mut Vec<Source>) {
    const PROPERTY: &str = "AccPowerService";
    let power = walk.follow(chassis.value, "Power");
    for value in [Some(chassis.value), power.present().copied()]
        .into_iter()
        .flatten()
    {
        let hpe = value.pointer("/Oem/Hpe").unwrap_or(&Value::Null);
        let links = hpe.get("Links").unwrap_or(&Value::Null);
        let target = [links, hpe, value].iter().find_map(|v| link(v, PROPERTY));
        if let Some(path) = target {
            sources.push(source(path, Shape::HpeAccPowerLimit, chassis));
            return;
        }
    }
}

fn sensors(walk: &mut Walk<'_>, chassis: &Chassis<'_>, sources: &mut Vec<Source>) {
    let Some(path) = link(chassis.value, "Sensors") else {
        return;
    };
    let members = match walk.members(&path) {
        Reading::Present(members) => members,
        Reading::Absent => return,
        _ => {
            sources.push(source(path, Shape::Sensor, chassis));
            return;
        }
    };
    for member in members {
        if !NODE_SENSORS.contains(&last_part(&member.path).as_str()) {
            continue;
        }
        match walk.member(&member) {
            Reading::Present(value) if !is_power_sensor(value) => {}
            Reading::Absent => {}
            _ => sources.push(source(member.path.clone(), Shape::Sensor, chassis)),
        }
    }
}

fn is_power_sensor(value: &Value) -> bool {
    let told = [("ReadingType", "Power"), ("ReadingUnits", "W")];
    number(value, "Reading") != Reading::Absent
        && told
            .iter()
            .any(|(property, wanted)| string(value, property) == Some(wanted))
}

/// The last part of a path in the form used for comparisons: lower case, without `_` and `-`.
fn last_part(path: &ResourcePath) -> String {
    let plain = path.last().chars().filter(|c| !matches!(c, '_' | '-'));
    plain.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_is_named_by_a_word_and_not_by_letters_in_one() {
        for name in [
            "ASIC 0",
            "MainASIC",
            "node_asic",
            "asic",
            "GPU_3",
            "Fan1",
            "CPUPower",
        ] {
            assert!(is_of_a_part(&json!({"Name": name})), "{name}");
        }
        for name in ["Basic Power Control", "BASIC", "Server Power Control", ""] {
            assert!(!is_of_a_part(&json!({"Name": name})), "{name}");
        }
    }
}
