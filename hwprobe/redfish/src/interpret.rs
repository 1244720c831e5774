//! Interpretation of a BMC's documents for the selected systems.

use crate::chassis_managers::{self, Chassis, ChassisExtent, ChassisSearch};
use crate::documents::{Documents, ResourcePath};
use crate::precedence::keep_better;
use crate::report::{BmcReport, Breadth, Interpretation, NodeReport, Scope};
use crate::selection::NoSystemReason;
use crate::systems::{self, System, Systems};
use crate::walk::DocumentWalk;
use crate::{bios, firmware, power, vitals};
use lattice_conformance::{
    Class, ClassRecord, Finding, FindingCode, LimitState, Power, Reading, Vitals,
};
use serde_json::Value;

/// Extracts the requested data from the available documents, following links and types from the service root.
/// [`Interpretation::wanted`] lists the documents that are still missing. The caller fetches each of them once and
/// calls again, until the list is empty. The result depends on the documents only, not on the order in which they
/// arrived.
#[must_use]
pub fn interpret(documents: &Documents, scope: &Scope) -> Interpretation {
    let mut walk = DocumentWalk::new(documents);
    let report = report(&mut walk, scope);
    Interpretation {
        report,
        wanted: walk.wanted(),
    }
}

fn report(walk: &mut DocumentWalk<'_>, scope: &Scope) -> BmcReport {
    let root = match walk.get(&ResourcePath::root()) {
        Reading::Present(root) => root,
        other => {
            return BmcReport {
                unselected: Some(NoSystemReason::unread(&other)),
                ..BmcReport::default()
            };
        }
    };
    let systems = match systems::systems(walk, root) {
        Ok(systems) => systems,
        Err(why) => {
            return BmcReport {
                unselected: Some(why),
                ..BmcReport::default()
            };
        }
    };
    let names = systems.found.iter().map(|system| system.name.clone());
    let mut report = BmcReport {
        systems: names.collect(),
        ..BmcReport::default()
    };
    match systems::select(&systems, &scope.systems) {
        Ok(chosen) => {
            for at in chosen {
                if let Some(system) = systems.found.get(at) {
                    let node = node(walk, root, &systems, system, scope);
                    report.nodes.push(node);
                }
            }
        }
        Err(why) => report.unselected = Some(why),
    }
    report
}

fn node<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &'a Value,
    systems: &Systems<'a>,
    system: &System<'a>,
    scope: &Scope,
) -> NodeReport {
    let mut node = NodeReport {
        system: system.name.clone(),
        bmc: ClassRecord::new(Class::Bmc),
        bios: ClassRecord::new(Class::Bios),
        power: Power::default(),
        route: power::Route::default(),
        vitals: Vitals::default(),
        findings: Vec::new(),
    };
    let mismatch = systems::mismatch(&system.name, &scope.systems);
    node.findings
        .extend(mismatch.map(|detail| Finding::new(FindingCode::BmcIdentityMismatch, detail)));
    if scope.breadth == Breadth::Systems {
        return node;
    }
    let NodePower {
        chassis,
        route,
        readout,
    } = node_power(walk, root, systems, system);
    let silent = route.unread.clone();
    node.power = readout.power.clone();
    if chassis.is_empty() && silent == Reading::Absent {
        let why = "the BMC links no chassis to this system";
        node.power.limit_state = LimitState::Unknown;
        node.power.draw = Reading::failed(why);
        node.power.limit = Reading::failed(why);
    }
    power::mark_absent_unknown(&mut node.power, &silent);
    node.route = power::Route {
        sources: readout.used.clone(),
        ..route
    };
    if scope.breadth == Breadth::Everything {
        let inventory = firmware::inventory(walk, root, systems, system);
        firmware::record(walk, root, system, &inventory, &node.power, &mut node.bmc);
        node.findings.extend(inventory.findings());
        bios::record(
            walk,
            root,
            system,
            &inventory,
            &mut node.bios,
            &mut node.findings,
        );
        vitals::collect(walk, root, system, &chassis, &readout, &mut node.vitals);
    }
    node
}

/// The chassis of a node, and its power.
struct NodePower<'a> {
    chassis: Vec<Chassis<'a>>,
    route: power::Route,
    readout: power::SourceReadings,
}

/// Reads the power of a node from the chassis that its system links to. If they report no draw, every chassis of the
/// BMC is examined: a chassis may link to a system that has no link to the chassis.
fn node_power<'a>(
    walk: &mut DocumentWalk<'a>,
    root: &Value,
    systems: &Systems<'a>,
    system: &System<'a>,
) -> NodePower<'a> {
    let nearest = ChassisExtent::Nearest;
    let search = chassis_managers::chassis(walk, root, systems, system, nearest);
    let is_pending = matches!(search.unread, Reading::Disabled { .. });
    let power = power_of_chassis(walk, system, search);
    let has_draw = power.readout.power.draw.present().is_some();
    if has_draw || is_pending || power.readout.is_pending {
        return power;
    }
    let search = chassis_managers::chassis(walk, root, systems, system, ChassisExtent::All);
    power_of_chassis(walk, system, search)
}

fn power_of_chassis<'a>(
    walk: &mut DocumentWalk<'a>,
    system: &System<'a>,
    search: ChassisSearch<'a>,
) -> NodePower<'a> {
    let mut route = power::find_route(walk, system, &search.found);
    let readout = power::read(walk, Some(&system.path), &route.sources);
    keep_better(&mut route.unread, search.unread);
    if readout.power.draw.present().is_none() {
        // The chassis that does not exist may be the one with the meter.
        keep_better(&mut route.unread, search.missing);
    }
    NodePower {
        chassis: search.found,
        route,
        readout,
    }
}
