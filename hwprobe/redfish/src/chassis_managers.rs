//! Chassis that contain a system, and managers that serve it.

mod sharing;

use crate::documents::ResourcePath;
use crate::precedence::keep_better;
use crate::systems::{System, Systems};
use crate::walk::{DocumentWalk, Member, checked_links, link, links, string, target};
use lattice_conformance::Reading;
use serde_json::Value;

/// Maximum number of chassis examined in one list. A BMC with eight GPUs lists about sixty.
const MAX_CHASSIS: usize = 128;

/// A chassis that contains the system.
pub(crate) struct Chassis<'a> {
    pub(crate) value: &'a Value,
    /// Whether other systems are in the chassis too.
    pub(crate) is_shared: bool,
}

/// Extent of the search for the chassis of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChassisExtent {
    /// The chassis that the system links to. Without any, the chassis with the system's `Id`, or those that link to the
    /// system.
    Nearest,
    /// Also every other chassis that links to the system. Reads the complete list of chassis.
    All,
}

/// Result of a search for the chassis of a system.
pub(crate) struct ChassisSearch<'a> {
    /// The chassis, shared ones last.
    pub(crate) found: Vec<Chassis<'a>>,
    /// State of the chassis that could not be read and may belong to the system; absent if there is none.
    pub(crate) unread: Reading<()>,
    /// A chassis that the system links to and that does not exist; absent if there is none.
    pub(crate) missing: Reading<()>,
}

/// Searches the chassis of a system.
///
/// A chassis belongs to the system if either side links to the other. If neither side has a link, it is the chassis
/// with the system's `Id`, if every system has such a chassis, or the only chassis of the only system. A chassis that
/// links to other systems only never belongs to the system.
pub(crate) fn chassis<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    systems: &Systems<'a>,
    system: &System<'a>,
    extent: ChassisExtent,
) -> ChassisSearch<'a> {
    let mut missing = Reading::Absent;
    let mut found: FoundChassis<'a> = Vec::new();
    let mut silent_paths = Vec::new();
    let (linked, mut unread) = match system.value.get("Links") {
        Some(value) => checked_links(value, "Chassis"),
        None => (Vec::new(), Reading::Absent),
    };
    for path in linked {
        match walk.get(&path) {
            Reading::Present(value) => found.push((path, value)),
            // A broken link gives no information about its target.
            Reading::Absent => {
                missing = Reading::failed(format!("{path}: linked, but does not exist"));
            }
            other => {
                keep_better(&mut unread, other.map(|_| ()));
                silent_paths.push(path);
            }
        }
    }
    // A part of a chassis does not replace a chassis that is linked and unreadable.
    let may_be_inside = unread != Reading::Absent;
    let is_pending = matches!(unread, Reading::Disabled { .. });
    if !is_pending && (found.is_empty() || extent == ChassisExtent::All) {
        let may_guess = found.is_empty() && unread == Reading::Absent;
        let (listed, silent) = listed_chassis(walk, root, systems, system, extent, may_guess);
        keep_better(&mut unread, silent);
        for (path, value) in listed {
            if !found.iter().any(|(known, _)| known.is_same(&path)) {
                found.push((path, value));
            }
        }
    }
    if found.is_empty() {
        keep_better(&mut unread, missing.clone());
    }
    let mut shared = Vec::new();
    for (path, value) in &found {
        let others = sharing::other_nodes(walk, systems, system, &found, (path, *value));
        // Until the contents of the chassis are known, its power is not attributed to this system.
        shared.push(others != Reading::Absent);
        if !others.is_known() {
            keep_better(&mut unread, others);
        }
    }
    let found = found.into_iter().zip(shared);
    let found = found.map(|((path, value), is_shared)| (path, Chassis { value, is_shared }));
    let mut found = without_parts(found.collect(), &silent_paths, may_be_inside);
    found.sort_by_key(|one| one.is_shared);
    ChassisSearch {
        found,
        unread,
        missing,
    }
}

/// The chassis that contain the complete system, if there are any. A baseboard or a card inside such a chassis measures
/// only a part of the node. A blade is a node, also inside its enclosure. If a linked chassis could not be read
/// (`may_be_inside`), parts may be inside it.
fn without_parts<'a>(
    found: Vec<(ResourcePath, Chassis<'a>)>,
    silent_paths: &[ResourcePath],
    may_be_inside: bool,
) -> Vec<Chassis<'a>> {
    const PARTS: &[&str] = &["Module", "Component", "Card", "Cartridge", "Expansion"];
    // A chassis with several nodes does not measure the node inside it.
    let whole = found.iter().filter(|(_, one)| !one.is_shared);
    let whole = whole.map(|(path, _)| path).chain(silent_paths);
    let whole: Vec<ResourcePath> = whole.cloned().collect();
    let is_part = |one: &Chassis<'_>| {
        let outer = outer_chassis(one.value);
        let is_inside = outer.is_some_and(|outer| whole.iter().any(|path| path.is_same(&outer)));
        is_inside && !sharing::is_node_chassis(one.value)
            || string(one.value, "ChassisType").is_some_and(|kind| PARTS.contains(&kind))
    };
    let found = found.into_iter().map(|(_, one)| one);
    let (parts, whole): (Vec<_>, Vec<_>) = found.partition(is_part);
    if whole.is_empty() && !may_be_inside {
        parts
    } else {
        whole
    }
}

/// The chassis around a chassis, if it links to one.
fn outer_chassis(chassis: &Value) -> Option<ResourcePath> {
    link(chassis.get("Links")?, "ContainedBy")
}

type FoundChassis<'a> = Vec<(ResourcePath, &'a Value)>;

/// The chassis in the BMC's list that belong to the system, and the state of the others. `may_guess` permits a chassis
/// without a link in either direction.
fn listed_chassis<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    systems: &Systems<'a>,
    system: &System<'a>,
    extent: ChassisExtent,
    may_guess: bool,
) -> (FoundChassis<'a>, Reading<()>) {
    let list = match target(root, "Chassis").and_then(|path| walk.members(&path)) {
        Reading::Present(list) => list,
        other => return (Vec::new(), other.map(|_| ())),
    };
    let namesake = namesake(&list.members, systems, system).filter(|_| may_guess);
    let is_of_system = |value: &Value| links_to(value, system) || links_to_none(value);
    if let Some(member) = namesake
        && extent == ChassisExtent::Nearest
    {
        match walk.member(member) {
            Reading::Present(value) if is_of_system(value) => {
                return (vec![(member.path.clone(), value)], Reading::Absent);
            }
            // The chassis of another system, or a broken link.
            Reading::Present(_) | Reading::Absent => {}
            other => return (Vec::new(), other.map(|_| ())),
        }
    }
    let mut unread = list.unread();
    let mut all: FoundChassis<'a> = Vec::new();
    let count = list.members.len();
    if count > MAX_CHASSIS {
        let why = format!("{count} chassis, the first {MAX_CHASSIS} were examined");
        keep_better(&mut unread, Reading::failed(why));
    }
    for member in list.members.iter().take(MAX_CHASSIS) {
        match walk.member(member) {
            Reading::Present(value) => all.push((member.path.clone(), value)),
            Reading::Absent => {}
            other => keep_better(&mut unread, other.map(|_| ())),
        }
    }
    let is_namesake = |path: &ResourcePath| namesake.is_some_and(|member| member.path == *path);
    let mut own = all.clone();
    own.retain(|(path, value)| {
        links_to(value, system) || is_namesake(path) && links_to_none(value)
    });
    if !own.is_empty() {
        return match extent {
            ChassisExtent::Nearest => (own, Reading::Absent),
            ChassisExtent::All => (own, unread),
        };
    }
    if may_guess && systems.found.len() == 1 {
        // A system that could not be read may be the one in the chassis.
        keep_better(
            &mut unread,
            systems.unread.clone().unwrap_or(Reading::Absent),
        );
        if let [(_, value)] = all.as_slice()
            && unread == Reading::Absent
            && links_to_none(value)
        {
            return (all, unread);
        }
    }
    (Vec::new(), unread)
}

/// The chassis with the system's `Id`, if every system has such a chassis. For systems 1 to 4 in a chassis 1, the
/// chassis does not belong to system 1 alone.
fn namesake<'m, 'a>(
    members: &'m [Member<'a>],
    systems: &Systems<'_>,
    system: &System<'_>,
) -> Option<&'m Member<'a>> {
    let of = |system: &System<'_>| {
        let mut members = members.iter();
        members.find(|member| {
            let name = member.path.decoded_last();
            name.eq_ignore_ascii_case(&system.name.id)
        })
    };
    let own = of(system)?;
    systems
        .found
        .iter()
        .all(|one| of(one).is_some())
        .then_some(own)
}

/// The systems that a chassis links to, and the state of its invalid links.
fn chassis_systems(chassis: &Value) -> (Vec<ResourcePath>, Reading<()>) {
    match chassis.get("Links") {
        Some(value) => checked_links(value, "ComputerSystems"),
        None => (Vec::new(), Reading::Absent),
    }
}

fn links_to(chassis: &Value, system: &System<'_>) -> bool {
    let (linked, _) = chassis_systems(chassis);
    linked.iter().any(|path| path.is_same(&system.path))
}

fn links_to_none(chassis: &Value) -> bool {
    chassis_systems(chassis) == (Vec::new(), Reading::Absent)
}

/// The managers of a system, BMCs first, and the state of the managers that could not be read.
pub(crate) fn managers<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    system: &System<'a>,
) -> (Vec<(ResourcePath, &'a Value)>, Reading<()>) {
    let (mut paths, mut silent) = match system.value.get("Links") {
        Some(value) => checked_links(value, "ManagedBy"),
        None => (Vec::new(), Reading::Absent),
    };
    let is_linked = !paths.is_empty() || silent != Reading::Absent;
    let mut missing = Reading::Absent;
    let mut found = Vec::new();
    if !is_linked {
        match target(root, "Managers").and_then(|path| walk.members(&path)) {
            Reading::Present(list) => {
                silent = list.unread();
                paths.extend(list.members.into_iter().map(|member| member.path));
            }
            other => silent = other.map(|_| ()),
        }
    }
    paths.sort();
    paths.dedup();
    for path in paths {
        match walk.get(&path) {
            Reading::Present(value) => found.push((path, value)),
            Reading::Absent => {
                missing = Reading::failed(format!("{path}: linked, but does not exist"));
            }
            other => keep_better(&mut silent, other.map(|_| ())),
        }
    }
    let serves = |value: &Value| {
        let linked = value.get("Links");
        let served = linked.map_or_else(Vec::new, |value| links(value, "ManagerForServers"));
        served.iter().any(|path| path.is_same(&system.path))
    };
    let is_served = found.iter().any(|(_, value)| serves(value));
    // If one manager is unreadable, it may be the BMC, and the others only auxiliary controllers.
    if (!is_linked && is_served) || !silent.is_known() {
        found.retain(|(_, value)| serves(value));
    } else if missing != Reading::Absent {
        // A broken link does not hide the BMC, and an auxiliary controller does not take the BMC's place.
        found.retain(|(_, value)| serves(value) || rank_of_manager(value) == 0);
    }
    if found.is_empty() {
        keep_better(&mut silent, missing);
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
