//! Sources of power data for one system.
//!
//! Node-level sources come first. A reading of a chassis that several systems share is never attributed to one system,
//! unless the BMC assigns it entry by entry.

use super::part::concerns_part;
use super::read::read;
use super::{PowerForm, Route, Source};
use crate::chassis_managers::Chassis;
use crate::documents::ResourcePath;
use crate::precedence::keep_better;
use crate::systems::System;
use crate::walk::{DocumentWalk, MemberList, link, number, string, target};
use lattice_conformance::Reading;
use serde_json::Value;

/// Sensors at a node's input, by the last part of their path, in lower case without blanks, `_` and `-`. A sensor with
/// another name measures a part of the node, or an unknown quantity.
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
/// hundreds of them. A link or a list entry that cannot be read, and may be a source, is [`Route::unread`].
pub(crate) fn find_route(
    walk: &mut DocumentWalk<'_>,
    system: &System<'_>,
    chassis: &[Chassis<'_>],
) -> Route {
    let mut sources = Vec::new();
    let mut unread = Reading::Absent;
    for one in chassis {
        keep_better(&mut unread, controls(walk, one, &mut sources));
        for (property, shape) in [
            ("EnvironmentMetrics", PowerForm::EnvironmentMetrics),
            ("Power", PowerForm::PowerControl),
        ] {
            match target(one.value, property) {
                Reading::Present(path) => sources.push(source(path, shape, one)),
                other => keep_better(&mut unread, other.map(|_| ())),
            }
        }
        acc_power_service(walk, one, &mut sources);
    }
    let first = read(walk, Some(&system.path), &sources);
    if first.power.draw.present().is_none() && !first.is_pending {
        for one in chassis.iter().filter(|one| !one.is_shared) {
            keep_better(&mut unread, sensors(walk, one, &mut sources));
        }
    }
    Route {
        system: Some(system.path.clone()),
        sources,
        unread,
    }
}

const fn source(path: ResourcePath, shape: PowerForm, chassis: &Chassis<'_>) -> Source {
    Source {
        path,
        shape,
        is_shared: chassis.is_shared,
    }
}

/// Adds the controls of a chassis that concern the whole node. Returns the state of the controls that cannot be
/// identified; absent if there is none.
fn controls(
    walk: &mut DocumentWalk<'_>,
    chassis: &Chassis<'_>,
    sources: &mut Vec<Source>,
) -> Reading<()> {
    let controls = power_controls(walk, chassis.value);
    for (path, value) in controls.found {
        if !concerns_part(value) {
            sources.push(source(path, PowerForm::Control, chassis));
        }
    }
    // An unreadable control may be the control of the node, so it is kept as a source.
    for path in controls.unread {
        sources.push(source(path, PowerForm::Control, chassis));
    }
    controls.unidentified
}

/// The power controls of a chassis.
pub(crate) struct Controls<'a> {
    /// Controls that were read, by path.
    pub(crate) found: Vec<(ResourcePath, &'a Value)>,
    /// Unreadable controls, or the unreadable list of controls.
    unread: Vec<ResourcePath>,
    /// State of the links and entries that are not valid and may be power controls; absent if there is none.
    unidentified: Reading<()>,
}

/// Every control of a chassis with `power` in the last part of its path, and with type `Power` or no type.
pub(crate) fn power_controls<'a>(walk: &mut DocumentWalk<'a>, chassis: &Value) -> Controls<'a> {
    let mut controls = Controls {
        found: Vec::new(),
        unread: Vec::new(),
        unidentified: Reading::Absent,
    };
    let path = match target(chassis, "Controls") {
        Reading::Present(path) => path,
        other => {
            controls.unidentified = other.map(|_| ());
            return controls;
        }
    };
    let list = match walk.members(&path) {
        Reading::Present(list) => list,
        Reading::Absent => return controls,
        _ => {
            controls.unread.push(path);
            return controls;
        }
    };
    controls.unidentified = unidentified(&list, |name| name.contains("power"));
    for member in list.members {
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
            _ => controls.unread.push(member.path.clone()),
        }
    }
    controls
}

/// Adds HPE's power limit service for nodes with accelerators; the power resource or the chassis links to it.
fn acc_power_service(
    walk: &mut DocumentWalk<'_>,
    chassis: &Chassis<'_>,
    sources: &mut Vec<Source>,
) {
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
            sources.push(source(path, PowerForm::HpeAccPowerLimit, chassis));
            return;
        }
    }
}

/// Adds the sensors of a chassis that measure the whole node. Returns the state of the sensors that cannot be
/// identified; absent if there is none.
fn sensors(
    walk: &mut DocumentWalk<'_>,
    chassis: &Chassis<'_>,
    sources: &mut Vec<Source>,
) -> Reading<()> {
    let path = match target(chassis.value, "Sensors") {
        Reading::Present(path) => path,
        other => return other.map(|_| ()),
    };
    let list = match walk.members(&path) {
        Reading::Present(list) => list,
        Reading::Absent => return Reading::Absent,
        _ => {
            sources.push(source(path, PowerForm::Sensor, chassis));
            return Reading::Absent;
        }
    };
    let unidentified = unidentified(&list, |name| NODE_SENSORS.contains(&name));
    for member in list.members {
        if !NODE_SENSORS.contains(&last_part(&member.path).as_str()) {
            continue;
        }
        match walk.member(&member) {
            Reading::Present(value) if !is_power_sensor(value) => {}
            Reading::Absent => {}
            _ => sources.push(source(member.path.clone(), PowerForm::Sensor, chassis)),
        }
    }
    unidentified
}

/// State of the first entry that has no valid link, and that may be a member with a name selected by `is_selected`.
fn unidentified(list: &MemberList<'_>, is_selected: impl Fn(&str) -> bool) -> Reading<()> {
    let mut entries = list.unusable.iter();
    let entry = entries.find(|entry| {
        let name = entry.name.as_deref().map(plain_name);
        name.is_none_or(|name| is_selected(&name))
    });
    entry.map_or(Reading::Absent, |entry| entry.reading.clone())
}

fn is_power_sensor(value: &Value) -> bool {
    let power_properties = [("ReadingType", "Power"), ("ReadingUnits", "W")];
    number(value, "Reading") != Reading::Absent
        && power_properties
            .iter()
            .any(|(property, wanted)| string(value, property) == Some(wanted))
}

/// The last part of a path in the form used for comparisons.
fn last_part(path: &ResourcePath) -> String {
    plain_name(&path.decoded_last())
}

/// A name in lower case, without blanks, `_` and `-`.
fn plain_name(name: &str) -> String {
    let plain = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    plain.map(|c| c.to_ascii_lowercase()).collect()
}
