//! Chassis that contain a system, and managers that serve it.

use crate::documents::ResourcePath;
use crate::systems::{System, Systems};
use crate::walk::{DocumentWalk, link, links, string};
use lattice_conformance::Reading;
use serde_json::Value;

/// A chassis that contains the system.
pub(crate) struct Chassis<'a> {
    pub(crate) value: &'a Value,
    /// Whether other systems are in the chassis too.
    pub(crate) is_shared: bool,
}

/// The chassis of a system, shared ones last, and the state of the chassis that could not be read.
///
/// These are the chassis that the system links to; else the one with the system's `Id`, if every system has such a
/// chassis; else the chassis that link to the system; else the only chassis of the only system.
pub(crate) fn chassis<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    systems: &Systems<'a>,
    system: &System<'a>,
) -> (Vec<Chassis<'a>>, Reading<()>) {
    let mut silent = Reading::Absent;
    let mut dead = Reading::Absent;
    let mut found: Vec<(ResourcePath, &'a Value)> = Vec::new();
    let linked = system
        .value
        .get("Links")
        .map_or_else(Vec::new, |value| links(value, "Chassis"));
    for path in linked {
        match walk.get(&path) {
            Reading::Present(value) => found.push((path, value)),
            // A broken link gives no information about its target.
            Reading::Absent => {
                dead = Reading::failed(format!("{path}: linked, but does not exist"))
            }
            other => silent = other.map(|_| ()),
        }
    }
    if found.is_empty() && silent == Reading::Absent {
        silent = dead;
    }
    if found.is_empty() && silent == Reading::Absent {
        (found, silent) = unlinked_chassis(walk, root, systems, system);
    }
    let found = without_parts(found);
    let mut chassis: Vec<Chassis<'a>> = found
        .into_iter()
        .map(|(path, value)| Chassis {
            is_shared: is_shared(&path, value, systems, system),
            value,
        })
        .collect();
    chassis.sort_by_key(|one| one.is_shared);
    (chassis, silent)
}

/// The chassis that contain the complete system, if there are any. A baseboard or a card inside such a chassis measures
/// only a part of the node.
fn without_parts(found: FoundChassis<'_>) -> FoundChassis<'_> {
    const PARTS: &[&str] = &["Module", "Component", "Card", "Cartridge", "Expansion"];
    let all: Vec<ResourcePath> = found.iter().map(|(path, _)| path.clone()).collect();
    let is_part = |value: &Value| {
        let linked = value.get("Links").unwrap_or(&Value::Null);
        let is_inside = link(linked, "ContainedBy").is_some_and(|outer| all.contains(&outer));
        is_inside || string(value, "ChassisType").is_some_and(|kind| PARTS.contains(&kind))
    };
    let (parts, whole): (FoundChassis<'_>, FoundChassis<'_>) =
        found.into_iter().partition(|(_, value)| is_part(value));
    if whole.is_empty() { parts } else { whole }
}

type FoundChassis<'a> = Vec<(ResourcePath, &'a Value)>;

fn unlinked_chassis<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    systems: &Systems<'a>,
    system: &System<'a>,
) -> (FoundChassis<'a>, Reading<()>) {
    let Some(path) = link(root, "Chassis") else {
        return (Vec::new(), Reading::Absent);
    };
    let members = match walk.members(&path) {
        Reading::Present(members) => members,
        other => return (Vec::new(), other.map(|_| ())),
    };
    let namesake = |system: &System<'_>| {
        let mut members = members.iter();
        members.find(|member| member.path.last().eq_ignore_ascii_case(&system.name.id))
    };
    // Systems 1 to 4 in a chassis 1: the chassis does not belong to system 1 alone.
    if systems.found.iter().all(|one| namesake(one).is_some())
        && let Some(member) = namesake(system)
    {
        return match walk.member(member) {
            Reading::Present(value) => (vec![(member.path.clone(), value)], Reading::Absent),
            other => (Vec::new(), other.map(|_| ())),
        };
    }
    let mut silent = Reading::Absent;
    let mut all = Vec::new();
    for member in &members {
        match walk.member(member) {
            Reading::Present(value) => all.push((member.path.clone(), value)),
            other => silent = other.map(|_| ()),
        }
    }
    let mut holding = all.clone();
    holding.retain(|(_, value)| chassis_systems(value).contains(&system.path));
    if !holding.is_empty() {
        return (holding, Reading::Absent);
    }
    match all.as_slice() {
        // One system in one chassis that links to no other system.
        [(_, value)]
            if systems.found.len() == 1
                && members.len() == 1
                && chassis_systems(value).is_empty() =>
        {
            (all, silent)
        }
        _ => (Vec::new(), silent),
    }
}

fn chassis_systems(chassis: &Value) -> Vec<ResourcePath> {
    let linked = chassis.get("Links");
    linked.map_or_else(Vec::new, |value| links(value, "ComputerSystems"))
}

/// Whether the chassis contains a system other than this one, by a link from either side.
fn is_shared(
    path: &ResourcePath,
    chassis: &Value,
    systems: &Systems<'_>,
    system: &System<'_>,
) -> bool {
    let listed = chassis_systems(chassis);
    let others = systems.found.iter();
    let others = others.filter(|one| one.path != system.path && one.is_node());
    let own = |path: &ResourcePath| path.as_str().eq_ignore_ascii_case(system.path.as_str());
    let is_no_node = |path: &ResourcePath| {
        let mut found = systems.found.iter();
        found.any(|one| one.path == *path && !one.is_node())
    };
    let claims = |one: &System<'_>| {
        let linked = one.value.get("Links");
        linked.is_some_and(|value| links(value, "Chassis").contains(path))
    };
    let mut listed = listed.iter();
    listed.any(|one| !own(one) && !is_no_node(one)) || others.into_iter().any(claims)
}

/// The managers of a system, BMCs first, and the state of the managers that could not be read.
pub(crate) fn managers<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    system: &System<'a>,
) -> (Vec<(ResourcePath, &'a Value)>, Reading<()>) {
    let linked = system.value.get("Links");
    let mut paths = linked.map_or_else(Vec::new, |value| links(value, "ManagedBy"));
    let is_linked = !paths.is_empty();
    let mut silent = Reading::Absent;
    let mut found = Vec::new();
    if !is_linked {
        match link(root, "Managers").map(|path| walk.members(&path)) {
            Some(Reading::Present(members)) => {
                paths.extend(members.into_iter().map(|member| member.path));
            }
            Some(other) => silent = other.map(|_| ()),
            None => {}
        }
    }
    paths.sort();
    paths.dedup();
    for path in paths {
        match walk.get(&path) {
            Reading::Present(value) => found.push((path, value)),
            // A broken link gives no information about its target.
            Reading::Absent => {
                silent = Reading::failed(format!("{path}: linked, but does not exist"))
            }
            other => silent = other.map(|_| ()),
        }
    }
    let serves = |value: &Value| {
        let linked = value.get("Links");
        let served = linked.map_or_else(Vec::new, |value| links(value, "ManagerForServers"));
        served.contains(&system.path)
    };
    let is_told = found.iter().any(|(_, value)| serves(value));
    // If one manager is unreadable, it may be the BMC, and the others only auxiliary controllers.
    if (!is_linked && is_told) || !silent.is_known() {
        found.retain(|(_, value)| serves(value));
    }
    found.sort_by_key(|(_, value)| rank_of_manager(value));
    (found, silent)
}

fn rank_of_manager(value: &Value) -> u8 {
    match string(value, "ManagerType") {
        Some("BMC") => 0,
        Some("EnclosureManager") => 1,
        Some("AuxiliaryController") => 3,
        _ => 2,
    }
}
