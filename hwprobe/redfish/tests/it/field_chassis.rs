//! Draw of a node: the chassis that count for it, and those that never do.

use crate::field_content::{SYSTEM, bmc, link, put};
use crate::support::{document, read, scope};
use lattice_conformance::{Milliwatts, Reading};
use lattice_redfish::{Breadth, Documents, ResourcePath, Selector};
use serde_json::{Value, json};

/// The draw of system 1, on a BMC with these links of the system to chassis, and these chassis in its list. Each
/// chassis has links to systems, a type, and a draw in watts.
fn draw(linked: Value, chassis: &[(&str, Value, &str, Option<u64>)]) -> Reading<Milliwatts> {
    let mut documents = bmc();
    document(&mut documents, SYSTEM)["Links"]["Chassis"] = linked;
    for gone in ["/redfish/v1/Chassis/1", "/redfish/v1/Chassis/1/Power"] {
        documents
            .0
            .remove(&ResourcePath::parse(gone).expect("a path"));
    }
    let links = chassis
        .iter()
        .map(|(id, ..)| link(&format!("/redfish/v1/Chassis/{id}")));
    document(&mut documents, "/redfish/v1/Chassis")["Members"] = links.collect();
    for (id, systems, kind, watts) in chassis {
        let linked = json!({"ComputerSystems": systems});
        put_chassis(&mut documents, &(*id, *kind, linked, *watts));
    }
    draw_of(&documents, "1")
}

/// Id, type, links, and draw in watts of a chassis. A chassis of type `unread` does not answer.
type ChassisEntry<'a> = (&'a str, &'a str, Value, Option<u64>);

fn put_chassis(documents: &mut Documents, (id, kind, linked, watts): &ChassisEntry<'_>) {
    let at = format!("/redfish/v1/Chassis/{id}");
    let mut value = json!({"Id": id, "ChassisType": kind, "Links": linked});
    if let Some(watts) = watts {
        value["Power"] = link(&format!("{at}/Power"));
        let power = json!({"PowerControl": [{"PowerConsumedWatts": watts}]});
        put(documents, &format!("{at}/Power"), Reading::Present(power));
    }
    let reading = match *kind {
        "unread" => Reading::Timeout { after_ms: 4000 },
        _ => Reading::Present(value),
    };
    put(documents, &at, reading);
}

fn draw_of(documents: &Documents, system: &str) -> Reading<Milliwatts> {
    let scope = scope(Selector::Id(system.to_owned()), Breadth::Power);
    let (report, _) = read(documents, &scope);
    report.node().expect("one node").power.draw.clone()
}

const fn watts(watts: u64) -> Reading<Milliwatts> {
    Reading::Present(Milliwatts(watts * 1000))
}

#[test]
fn chassis_that_links_to_the_system_counts() {
    let ours = || json!([link(SYSTEM)]);
    let in_capitals = || json!([link("/redfish/v1/SYSTEMS/1")]);
    let to = |ids: &[&str]| -> Value {
        let links = ids
            .iter()
            .map(|id| link(&format!("/redfish/v1/Chassis/{id}")));
        links.collect()
    };
    let meter = ("M", ours(), "RackMount", Some(300));
    // The system has no link, an empty list, a broken one, or one to a chassis without a meter.
    for linked in [
        json!(null),
        json!([]),
        to(&["X"]),
        to(&["C"]),
        to(&["X", "C"]),
    ] {
        let cage = ("C", json!([]), "StorageEnclosure", None);
        let found = draw(linked.clone(), &[cage, meter.clone()]);
        assert_eq!(found, watts(300), "{linked}");
    }
    let found = draw(json!(null), &[("M", in_capitals(), "RackMount", Some(300))]);
    assert_eq!(found, watts(300));
    // A broken link, and one to a chassis that exists.
    let found = draw(to(&["X", "M"]), &[("M", json!([]), "RackMount", Some(300))]);
    assert_eq!(found, watts(300));
    // A broken link, and the only chassis of the only system.
    let found = draw(to(&["X"]), &[("M", json!([]), "RackMount", Some(300))]);
    assert_eq!(found, watts(300));
    // An unreadable chassis in the list.
    let silent = ("U", json!([]), "unread", None);
    assert_eq!(
        draw(json!(null), &[silent.clone(), meter.clone()]),
        watts(300)
    );
    // The chassis that the system links to has precedence.
    let own = ("O", ours(), "RackMount", Some(200));
    assert_eq!(draw(to(&["O"]), &[meter, own]), watts(200));
}

#[test]
fn chassis_of_another_system_is_never_added() {
    let theirs = || json!([link("/redfish/v1/Systems/2")]);
    let invalid = || json!([link("/redfish/v2/Systems/2")]);
    let to_x = || json!([link("/redfish/v1/Chassis/X")]);
    for linked in [json!(null), json!([]), to_x()] {
        for chassis in [
            ("M", theirs()),
            // A chassis with the system's id.
            ("1", theirs()),
            // Its links cannot be read.
            ("M", invalid()),
            ("M", json!(7)),
        ] {
            let (id, systems) = chassis.clone();
            let found = draw(linked.clone(), &[(id, systems, "RackMount", Some(300))]);
            assert!(
                matches!(found, Reading::Failed { .. }),
                "{linked} {chassis:?}: {found}"
            );
        }
        // Two chassis without links: either may belong to the system.
        let found = draw(
            linked.clone(),
            &[
                ("A", json!([]), "RackMount", Some(300)),
                ("B", json!([]), "RackMount", Some(400)),
            ],
        );
        assert!(matches!(found, Reading::Failed { .. }), "{linked}: {found}");
    }
    // Both systems are in the chassis: its reading belongs to neither.
    let both = json!([link(SYSTEM), link("/redfish/v1/Systems/2")]);
    let found = draw(json!(null), &[("M", both, "RackMount", Some(300))]);
    assert_eq!(found, Reading::Absent);
}

#[test]
fn part_does_not_replace_an_unreadable_chassis() {
    let linked = json!([link("/redfish/v1/Chassis/U"), link("/redfish/v1/Chassis/B")]);
    let board = || ("B", json!([link(SYSTEM)]), "Module", Some(300));
    let silent = ("U", json!([]), "unread", None);
    let found = draw(linked.clone(), &[silent, board()]);
    assert_eq!(found, Reading::Timeout { after_ms: 4000 });
    // If the chassis does not exist, the board is all there is.
    assert_eq!(draw(linked, &[board()]), watts(300));
}
