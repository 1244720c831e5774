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

#[test]
fn link_of_a_chassis_may_be_written_in_every_form() {
    for systems in [
        json!([link("/redfish/v1/Systems/1/")]),
        json!([link("/redfish/v1/systems/1")]),
        json!([link("/redfish/v1/SYSTEMS/1/")]),
        json!([link("/redfish/v1/Systems/1#/Processors")]),
        json!(["/redfish/v1/Systems/1/"]),
        link("/redfish/v1/Systems/1"),
    ] {
        // A second chassis without links, so that the only one is not chosen without its link.
        let other = ("C", json!([]), "StorageEnclosure", Some(70));
        let chassis = ("M", systems.clone(), "RackMount", Some(300));
        assert_eq!(
            draw(json!(null), &[other, chassis]),
            watts(300),
            "{systems}"
        );
    }
}

fn links_to(kind: &str, ids: &[&str]) -> Value {
    let ids = ids.iter();
    ids.map(|id| link(&format!("/redfish/v1/{kind}/{id}")))
        .collect()
}

/// A BMC with these systems, by id and with the ids of the chassis to which they link, and with these chassis.
fn blades(systems: &[(&str, &[&str])], chassis: &[ChassisEntry<'_>]) -> Documents {
    let mut documents = bmc();
    let template = document(&mut documents, SYSTEM).clone();
    for (id, linked) in systems {
        let mut system = template.clone();
        system["Id"] = json!(id);
        system["Links"] = json!({"Chassis": links_to("Chassis", linked)});
        let at = format!("/redfish/v1/Systems/{id}");
        put(&mut documents, &at, Reading::Present(system));
    }
    for one in chassis {
        put_chassis(&mut documents, one);
    }
    let ids: Vec<&str> = systems.iter().map(|(id, _)| *id).collect();
    document(&mut documents, "/redfish/v1/Systems")["Members"] = links_to("Systems", &ids);
    let ids: Vec<&str> = chassis.iter().map(|(id, ..)| *id).collect();
    document(&mut documents, "/redfish/v1/Chassis")["Members"] = links_to("Chassis", &ids);
    documents
}

fn of_systems(ids: &[&str]) -> Value {
    json!({"ComputerSystems": links_to("Systems", ids)})
}

#[test]
fn power_of_an_enclosure_is_of_no_single_node() {
    let systems: &[(&str, &[&str])] = &[("1", &["E"]), ("2", &["B2"])];
    let own = || of_systems(&["1"]);
    let with = |property: &str, value: Value| {
        let mut linked = own();
        linked[property] = value;
        linked
    };
    // The enclosure itself, and the chassis of the other node in it.
    for (kind, enclosure, inner) in [
        ("Enclosure", of_systems(&["1", "2"]), of_systems(&["2"])),
        ("RackMount", of_systems(&["1", "2"]), of_systems(&["2"])),
        (
            "RackMount",
            with("ComputerSystems@odata.count", json!(2)),
            of_systems(&["2"]),
        ),
        (
            "RackMount",
            with("Contains", links_to("Chassis", &["B2"])),
            of_systems(&["2"]),
        ),
        (
            "RackMount",
            with("Contains", links_to("CHASSIS", &["b2/"])),
            of_systems(&["2"]),
        ),
        // Only the system links to its chassis.
        (
            "RackMount",
            with("Contains", links_to("Chassis", &["B2"])),
            json!({}),
        ),
        // Only the inner chassis links to the outer one.
        (
            "Enclosure",
            own(),
            json!({"ContainedBy": link("/redfish/v1/Chassis/E/")}),
        ),
        (
            "RackMount",
            own(),
            json!({"ContainedBy": link("/redfish/v1/chassis/e")}),
        ),
        // With a drawer between them.
        (
            "RackMount",
            with("Contains", links_to("Chassis", &["D"])),
            of_systems(&["2"]),
        ),
        (
            "RackMount",
            own(),
            json!({"ContainedBy": link("/redfish/v1/Chassis/D")}),
        ),
    ] {
        let drawer = json!({
            "Contains": links_to("Chassis", &["B2"]),
            "ContainedBy": link("/redfish/v1/Chassis/E"),
        });
        let mut documents = blades(
            systems,
            &[
                ("E", kind, enclosure.clone(), Some(2000)),
                ("D", "Other", drawer, None),
                ("B2", "RackMount", inner.clone(), Some(500)),
            ],
        );
        // The BMC answers to its own spelling.
        let path = |path: &str| ResourcePath::parse(path).expect("a path");
        let same = documents.get(&path("/redfish/v1/Chassis/B2")).cloned();
        put(
            &mut documents,
            "/redfish/v1/CHASSIS/b2",
            same.expect("a chassis"),
        );
        let at = format!("{kind} {enclosure} {inner}");
        assert_eq!(draw_of(&documents, "1"), Reading::Absent, "{at}");
        assert_eq!(draw_of(&documents, "2"), watts(500), "{at}");
    }
}

#[test]
fn blade_has_its_own_power_inside_an_enclosure() {
    let inside = |system: &str| {
        let mut linked = of_systems(&[system]);
        linked["ContainedBy"] = link("/redfish/v1/Chassis/E");
        linked
    };
    let around = |systems: &[&str]| {
        let mut linked = of_systems(systems);
        linked["Contains"] = links_to("Chassis", &["B1", "B2"]);
        linked
    };
    for linked in [&["B1", "E"][..], &["E", "B1"], &["B1"], &["E"], &[]] {
        for enclosed in [&["1", "2"][..], &["1"], &[]] {
            let documents = blades(
                &[("1", linked), ("2", &["B2"])],
                &[
                    ("E", "Enclosure", around(enclosed), Some(2000)),
                    ("B1", "Blade", inside("1"), Some(300)),
                    ("B2", "Blade", inside("2"), Some(500)),
                ],
            );
            let at = format!("{linked:?} {enclosed:?}");
            assert_eq!(draw_of(&documents, "1"), watts(300), "{at}");
            assert_eq!(draw_of(&documents, "2"), watts(500), "{at}");
        }
        // The BMC of one blade knows neither the other blades nor their systems.
        for kind in ["Enclosure", "RackMount"] {
            let mut outer = of_systems(&["1"]);
            outer["Contains"] = links_to("Chassis", &["B1"]);
            let documents = blades(
                &[("1", linked)],
                &[
                    ("E", kind, outer, Some(2000)),
                    ("B1", "Blade", inside("1"), Some(300)),
                ],
            );
            // Chassis of other types are not opened for their contents.
            let is_whole = linked == ["E"] && kind != "Enclosure";
            let expected = watts(if is_whole { 2000 } else { 300 });
            assert_eq!(draw_of(&documents, "1"), expected, "{linked:?} {kind}");
        }
    }
}

#[test]
fn enclosure_of_one_node_is_its_chassis() {
    let around = |inner: &str| {
        let mut linked = of_systems(&["1"]);
        linked["Contains"] = links_to("Chassis", &[inner]);
        linked
    };
    let draw = |inner: ChassisEntry<'_>| {
        let outer = ("E", "Enclosure", around(inner.0), Some(2000));
        draw_of(&blades(&[("1", &["E"])], &[outer, inner]), "1")
    };
    assert_eq!(
        draw(("S", "StorageEnclosure", json!({}), Some(70))),
        watts(2000)
    );
    assert_eq!(
        draw(("M", "Module", of_systems(&["1"]), Some(70))),
        watts(2000)
    );
    // A blade of unknown owner, and a chassis that may be one.
    assert_eq!(draw(("B", "Blade", json!({}), None)), Reading::Absent);
    let silent = draw(("U", "unread", json!({}), None));
    assert_eq!(silent, Reading::Timeout { after_ms: 4000 });
    // A broken link is no chassis.
    let outer = ("E", "Enclosure", around("X"), Some(2000));
    assert_eq!(
        draw_of(&blades(&[("1", &["E"])], &[outer]), "1"),
        watts(2000)
    );
}

#[test]
fn silent_chassis_of_one_node_does_not_hide_the_power_of_another() {
    let documents = blades(
        &[("1", &["A"]), ("2", &["U"])],
        &[
            ("A", "RackMount", of_systems(&["1"]), Some(300)),
            ("U", "unread", json!({}), None),
        ],
    );
    assert_eq!(draw_of(&documents, "1"), watts(300));
    let silent = Reading::Timeout { after_ms: 4000 };
    assert_eq!(draw_of(&documents, "2"), silent);
}

#[test]
fn chassis_that_contain_each_other_end() {
    let round = |inner: &str| {
        json!({
            "ComputerSystems": links_to("Systems", &["1"]),
            "Contains": links_to("Chassis", &[inner, "E", "F"]),
            "ContainedBy": link(&format!("/redfish/v1/Chassis/{inner}")),
        })
    };
    let documents = blades(
        &[("1", &["E"]), ("2", &["F"])],
        &[
            ("E", "Enclosure", round("F"), Some(2000)),
            ("F", "Enclosure", round("E"), Some(500)),
        ],
    );
    assert_eq!(draw_of(&documents, "1"), Reading::Absent);
}
