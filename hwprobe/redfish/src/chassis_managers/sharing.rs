//! Chassis with several nodes: enclosures of blades, and chassis that several systems share. Their power belongs to no
//! single node.

use super::{chassis_systems, links_to, outer_chassis};
use crate::documents::ResourcePath;
use crate::precedence::keep_better;
use crate::systems::{System, Systems};
use crate::walk::{DocumentWalk, checked_links, counted, links, string};
use lattice_conformance::Reading;
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of chassis examined inside one chassis.
const MAX_INNER: usize = 64;
/// Maximum number of chassis around the chassis of another node.
const MAX_LEVELS: usize = 4;
/// Chassis types (DSP0268) of a complete node inside a chassis with further nodes.
const NODES: &[&str] = &["Blade", "Sled"];
/// Chassis types that may contain several nodes on a BMC that reports only one of them.
const ENCLOSURES: &[&str] = &[
    "Drawer",
    "Enclosure",
    "Pod",
    "Rack",
    "RackGroup",
    "Row",
    "Shelf",
    "Zone",
];

/// Whether the chassis is a complete node, also inside another chassis.
pub(super) fn is_node_chassis(chassis: &Value) -> bool {
    string(chassis, "ChassisType").is_some_and(|kind| NODES.contains(&kind))
}

/// Evidence of nodes other than this system in a chassis: present, absent, or the reason why it is unknown. `found` is
/// every chassis found for the system. The chassis inside are read only if the BMC may have several nodes, or if the
/// chassis is an enclosure by its type: a chassis of one node may contain dozens of parts.
pub(super) fn other_nodes<'a>(
    walk: &mut DocumentWalk<'a>,
    systems: &Systems<'a>,
    system: &System<'a>,
    found: &[(ResourcePath, &'a Value)],
    (path, chassis): (&ResourcePath, &'a Value),
) -> Reading<()> {
    let contained = links_of(chassis, "Contains");
    let is_around = |(inner_path, inner): &(ResourcePath, &Value)| {
        let is_inside = outer_chassis(inner).is_some_and(|outer| outer.is_same(path))
            || contained.iter().any(|one| one.is_same(inner_path));
        is_inside && is_node_chassis(inner) && !inner_path.is_same(path)
    };
    if links_to_others(path, chassis, systems, system) || found.iter().any(is_around) {
        return Reading::Present(());
    }
    let has_others = systems.unread.is_some() || others(systems, system).next().is_some();
    let is_enclosure =
        string(chassis, "ChassisType").is_some_and(|kind| ENCLOSURES.contains(&kind));
    let mut evidence = Reading::Absent;
    if has_others {
        // An invalid link may lead to another system.
        evidence = chassis_systems(chassis).1;
        keep_better(&mut evidence, nodes_around(walk, systems, system, path));
    }
    if has_others || is_enclosure {
        let scope = InnerSearch {
            systems,
            system,
            has_others,
        };
        keep_better(&mut evidence, scope.nodes_inside(walk, path, chassis));
    }
    evidence
}

/// The other systems that may be nodes.
fn others<'s, 'a>(
    systems: &'s Systems<'a>,
    system: &'s System<'a>,
) -> impl Iterator<Item = &'s System<'a>> {
    let found = systems.found.iter();
    found.filter(move |one| one.path != system.path && one.is_node())
}

fn links_of(value: &Value, property: &str) -> Vec<ResourcePath> {
    let linked = value.get("Links");
    linked.map_or_else(Vec::new, |linked| links(linked, property))
}

/// Whether the chassis contains a system other than this one, by a link from either side, or by the number of its
/// systems.
fn links_to_others(
    path: &ResourcePath,
    chassis: &Value,
    systems: &Systems<'_>,
    system: &System<'_>,
) -> bool {
    let (listed, _) = chassis_systems(chassis);
    let is_no_node = |path: &ResourcePath| {
        let mut found = systems.found.iter();
        found.any(|one| one.path.is_same(path) && !one.is_node())
    };
    let is_other = |one: &ResourcePath| !one.is_same(&system.path) && !is_no_node(one);
    let count = chassis
        .get("Links")
        .and_then(|linked| counted(linked, "ComputerSystems"));
    let claims = |one: &System<'_>| {
        let linked = links_of(one.value, "Chassis");
        linked.iter().any(|linked| linked.is_same(path))
    };
    listed.iter().any(is_other)
        || count.is_some_and(|count| count > listed.len().max(1) as u64)
        || others(systems, system).any(claims)
}

/// Evidence that the chassis of another system is inside this chassis, by its links to the outside. A chassis that
/// cannot be read is no evidence: the failure of one node must not hide the power of another.
fn nodes_around<'a>(
    walk: &mut DocumentWalk<'a>,
    systems: &Systems<'a>,
    system: &System<'a>,
    path: &ResourcePath,
) -> Reading<()> {
    let mut evidence = Reading::Absent;
    for other in others(systems, system) {
        for mut at in links_of(other.value, "Chassis") {
            for _ in 0..MAX_LEVELS {
                let outer = match walk.get(&at) {
                    Reading::Present(chassis) => outer_chassis(chassis),
                    Reading::Disabled { why } => {
                        keep_better(&mut evidence, Reading::Disabled { why });
                        None
                    }
                    _ => None,
                };
                let Some(outer) = outer else { break };
                if outer.is_same(path) {
                    return Reading::Present(());
                }
                at = outer;
            }
        }
    }
    evidence
}

/// Search for nodes inside one chassis.
struct InnerSearch<'s, 'a> {
    systems: &'s Systems<'a>,
    system: &'s System<'a>,
    /// Whether the BMC may report further nodes. Otherwise a blade has neighbours that its BMC does not report.
    has_others: bool,
}

impl<'a> InnerSearch<'_, 'a> {
    /// Evidence of other nodes in the chassis inside this one.
    fn nodes_inside(
        &self,
        walk: &mut DocumentWalk<'a>,
        path: &ResourcePath,
        chassis: &'a Value,
    ) -> Reading<()> {
        let (mut left, mut evidence) = contained(chassis);
        let mut examined = BTreeSet::from([path.clone()]);
        while let Some(path) = left.pop() {
            if !examined.insert(path.clone()) {
                continue;
            }
            if examined.len() > MAX_INNER {
                let why = format!("{path}: not read, more than {MAX_INNER} chassis inside one");
                keep_better(&mut evidence, Reading::failed(why));
                break;
            }
            match walk.get(&path) {
                Reading::Present(inner) if self.is_other_node(&path, inner) => {
                    return Reading::Present(());
                }
                Reading::Present(inner) => {
                    let (further, unusable) = contained(inner);
                    left.extend(further);
                    keep_better(&mut evidence, unusable);
                }
                Reading::Absent => {}
                other => keep_better(&mut evidence, other.map(|_| ())),
            }
        }
        evidence
    }

    fn is_other_node(&self, path: &ResourcePath, inner: &Value) -> bool {
        let is_ours = links_to(inner, self.system)
            || links_of(self.system.value, "Chassis")
                .iter()
                .any(|own| own.is_same(path));
        links_to_others(path, inner, self.systems, self.system)
            || is_node_chassis(inner) && !(self.has_others && is_ours)
    }
}

/// The chassis that a chassis contains, and the state of its invalid links.
fn contained(chassis: &Value) -> (Vec<ResourcePath>, Reading<()>) {
    match chassis.get("Links") {
        Some(linked) => checked_links(linked, "Contains"),
        None => (Vec::new(), Reading::Absent),
    }
}
