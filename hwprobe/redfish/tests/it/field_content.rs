//! One unusable part of a BMC's documents costs that part: a list entry, a link, a manager, a chassis. Settings outside
//! of `Attributes`.

use crate::support::{document, everything, read, scope};
use lattice_conformance::{ClassRecord, ClassState, Milliwatts, Reading};
use lattice_redfish::{
    Breadth, Documents, NoSystemReason, NodeReport, ResourcePath, Selector, recorded,
};
use serde_json::{Value, json};
use std::path::Path;

const SYSTEM: &str = "/redfish/v1/Systems/1";
const BIOS: &str = "/redfish/v1/Systems/1/Bios";
const LIST: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const REGISTRIES: &str = "/redfish/v1/Registries";

/// The small BMC of the field cases.
fn bmc() -> Documents {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bmc/field");
    recorded::load(&folder).expect("tree loads")
}

fn node(documents: &Documents) -> NodeReport {
    let (report, _) = read(documents, &everything());
    report.node().expect("one node").clone()
}

fn put(documents: &mut Documents, path: &str, reading: Reading<Value>) {
    let path = ResourcePath::parse(path).expect("a path");
    documents.0.insert(path, reading);
}

fn add_member(documents: &mut Documents, list: &str, member: Value) {
    let members = document(documents, list)["Members"].as_array_mut();
    members.expect("a list").push(member);
}

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

/// The unknown keys of a class.
fn missing(record: &ClassRecord) -> Vec<String> {
    match record.state() {
        ClassState::Incomplete { missing } => missing.into_keys().collect(),
        ClassState::Complete { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn text(record: &ClassRecord, key: &str) -> String {
    record.get(key).to_string()
}

/// Entries of a list that are not links to a resource of the BMC.
fn unusable_entries() -> Vec<Value> {
    vec![
        link("https://192.0.2.1/redfish/v1/UpdateService/X"),
        link("/redfish/v1/../X"),
        link("/redfish/v1/UpdateService/a\rb"),
        link(""),
        json!({"Id": "X", "Version": "1"}),
        json!(null),
        json!(7),
        json!([]),
    ]
}

#[test]
fn unusable_entry_costs_itself() {
    let whole = node(&bmc());
    assert_eq!(missing(&whole.bmc), Vec::<String>::new());
    for entry in unusable_entries() {
        let mut documents = bmc();
        add_member(&mut documents, LIST, entry.clone());
        let node = node(&documents);
        assert_eq!(missing(&node.bmc), ["bmc.inventory.names"], "{entry}");
        let why = text(&node.bmc, "bmc.inventory.names");
        assert!(
            why.starts_with(&format!("<failed: {LIST}: a member")),
            "{why}"
        );
        assert_eq!(text(&node.bmc, "bmc.inventory.nic.version"), "28.41.1000");
        assert_eq!(
            (node.bios, node.power),
            (whole.bios.clone(), whole.power.clone())
        );
    }
    // Several are counted.
    let mut documents = bmc();
    for entry in unusable_entries() {
        add_member(&mut documents, LIST, entry);
    }
    let why = text(&node(&documents).bmc, "bmc.inventory.names");
    assert!(why.ends_with("and 7 more such entries>"), "{why}");
}

#[test]
fn entry_as_plain_text_is_a_link() {
    let mut documents = bmc();
    add_member(&mut documents, LIST, json!(format!("{LIST}/PSU 1")));
    let psu = json!({"Id": "PSU 1", "Version": "1.2"});
    put(
        &mut documents,
        &format!("{LIST}/PSU 1"),
        Reading::Present(psu),
    );
    let node = node(&documents);
    assert_eq!(missing(&node.bmc), Vec::<String>::new());
    assert_eq!(text(&node.bmc, "bmc.inventory.psu_1.version"), "1.2");
}

#[test]
fn unreadable_member_or_page_costs_itself() {
    let at = format!("{LIST}/Page2");
    for (answer, unknown) in [
        (
            Reading::Timeout { after_ms: 4000 },
            "<timeout after 4000 ms>",
        ),
        (Reading::denied("403"), "<denied: 403>"),
        (Reading::Absent, "linked, but does not exist>"),
        (Reading::Present(json!({"Name": "Page"})), "no members>"),
    ] {
        let mut documents = bmc();
        document(&mut documents, LIST)["Members@odata.nextLink"] = json!(at);
        put(&mut documents, &at, answer);
        let node = node(&documents);
        assert_eq!(missing(&node.bmc), ["bmc.inventory.names"]);
        let why = text(&node.bmc, "bmc.inventory.names");
        assert!(why.ends_with(unknown), "{why}");
        assert_eq!(text(&node.bmc, "bmc.inventory.nic.version"), "28.41.1000");
        assert_eq!(missing(&node.bios), Vec::<String>::new());
    }
}

#[test]
fn version_of_bios_is_unknown_if_its_entry_may_be_the_unusable_one() {
    let mut documents = bmc();
    let members = json!([link(&format!("{LIST}/BMC")), link("/redfish/v2/BIOS")]);
    document(&mut documents, LIST)["Members"] = members;
    let node = node(&documents);
    assert_eq!(missing(&node.bios), ["bios.inventory.version"]);
    assert_eq!(text(&node.bios, "bios.redfish.version"), "A1 v1.00");
}

#[test]
fn unusable_entry_does_not_hide_the_system() {
    let chosen = |documents: &Documents, selector: Selector| {
        let (report, _) = read(documents, &scope(selector, Breadth::Systems));
        report.node().map(|node| node.system.id.clone())
    };
    let by_serial = || Selector::Like {
        uuid: None,
        serial: Some("CASE000001".to_owned()),
    };
    let other_serial = || Selector::Like {
        uuid: None,
        serial: Some("CASE000002".to_owned()),
    };
    let own = Ok("1".to_owned());
    for entry in unusable_entries() {
        let mut documents = bmc();
        add_member(&mut documents, "/redfish/v1/Systems", entry.clone());
        assert_eq!(
            chosen(&documents, Selector::Id("1".to_owned())),
            own,
            "{entry}"
        );
        assert_eq!(chosen(&documents, by_serial()), own, "{entry}");
        // Without evidence of its identity, the readable system may be another node.
        for selector in [Selector::Only, other_serial()] {
            let why = chosen(&documents, selector);
            let is_unread = matches!(why, Err(NoSystemReason::Unread { .. }));
            assert!(is_unread, "{entry}: {why:?}");
        }
    }
    // A link to nothing is no other node.
    let mut documents = bmc();
    add_member(
        &mut documents,
        "/redfish/v1/Systems",
        link("/redfish/v1/Systems/GPU"),
    );
    assert_eq!(chosen(&documents, Selector::Only), own);
    // An invalid link to the list is not the absence of systems.
    document(&mut documents, "/redfish/v1")["Systems"] = link("/redfish/v2/Systems");
    let why = chosen(&documents, Selector::Only);
    assert!(matches!(why, Err(NoSystemReason::Unread { .. })), "{why:?}");
}

#[test]
fn unusable_entry_does_not_hide_the_registry() {
    let whole = node(&bmc());
    for entry in unusable_entries() {
        let mut documents = bmc();
        add_member(&mut documents, REGISTRIES, entry);
        assert_eq!(node(&documents).bios, whole.bios);
    }
    // With the version raised in the BIOS alone, the unusable entry may be the registry, unless it has another name.
    let newer = "BiosAttributeRegistryA1.v1_0_1";
    for (entry, is_known) in [
        (link("/redfish/v2/NetworkAttributeRegistry.v1_0_0"), true),
        (link("/redfish/v2/BiosAttributeRegistryA1.v1_0_1"), false),
        (json!(null), false),
    ] {
        let mut documents = bmc();
        document(&mut documents, BIOS)["AttributeRegistry"] = json!(newer);
        add_member(&mut documents, REGISTRIES, entry.clone());
        let names = node(&documents).bios.get("bios.setting.names");
        assert_eq!(names.is_known(), is_known, "{entry}: {names}");
    }
}

#[test]
fn dead_link_does_not_hide_the_manager() {
    let whole = node(&bmc());
    let manager = "/redfish/v1/Managers/1";
    let mut documents = bmc();
    let links = &mut document(&mut documents, SYSTEM)["Links"];
    links["ManagedBy"] = json!([link("/redfish/v1/Managers/Gone"), link(manager)]);
    assert_eq!(node(&documents), whole);
    // An auxiliary controller does not take the place of the BMC.
    document(&mut documents, manager)["ManagerType"] = json!("AuxiliaryController");
    let firmware = node(&documents).bmc.get("bmc.model");
    assert!(!firmware.is_known(), "{firmware}");
    // A link that is not valid may lead to the BMC.
    let mut documents = bmc();
    let links = &mut document(&mut documents, SYSTEM)["Links"];
    links["ManagedBy"] = json!([link("/redfish/v2/Managers/2"), link(manager)]);
    let model = node(&documents).bmc.get("bmc.model");
    assert!(!model.is_known(), "{model}");
}

#[test]
fn invalid_link_is_not_the_absence_of_its_target() {
    let elsewhere = link("https://192.0.2.1/redfish/v1/X");
    for (at, property, keys) in [
        (
            "/redfish/v1",
            "Registries",
            &["bios.registry", "bios.setting.names"][..],
        ),
        (SYSTEM, "Bios", &["bios.registry", "bios.setting.names"]),
        (
            "/redfish/v1/UpdateService",
            "FirmwareInventory",
            &["bios.inventory.version"],
        ),
    ] {
        let mut documents = bmc();
        document(&mut documents, at)[property] = elsewhere.clone();
        assert_eq!(missing(&node(&documents).bios), keys, "{property}");
    }
    for property in ["Power", "EnvironmentMetrics", "Controls", "Sensors"] {
        let mut documents = bmc();
        let chassis = document(&mut documents, "/redfish/v1/Chassis/1");
        chassis.as_object_mut().expect("an object").remove("Power");
        chassis[property] = elsewhere.clone();
        let draw = node(&documents).power.draw;
        assert!(matches!(draw, Reading::Failed { .. }), "{property}: {draw}");
    }
}

/// A BIOS with its settings directly in the resource, as on an iLO 4.
fn direct_settings(changed: &[(&str, Value)]) -> Documents {
    let mut bios = json!({
        "@odata.id": BIOS,
        "@odata.type": "#HpBios.1.2.0.HpBios",
        "AttributeRegistry": "HpBiosAttributeRegistryA1.1.1.00",
        "Id": "Bios",
        "Name": "BIOS Current Settings",
        "Description": "This is the Platform/BIOS Configuration (RBSU) Current Settings",
        "Type": "HpBios.1.2.0",
        "Modified": "2015-02-11T12:00:00+00:00",
        "SettingsResult": {"ETag": "1", "Messages": []},
        "Links": {"Settings": {"@odata.id": format!("{BIOS}/Settings")}},
        "links": {"self": {"href": "/rest/v1/systems/1/bios"}},
        "AdminPassword": null,
        "SerialNumber": "CASE000001",
        "ProcHyperthreading": "Enabled",
        "SubNumaClustering": "Disabled",
        "WorkloadProfile": "Custom",
    });
    for (name, value) in changed {
        bios[*name] = value.clone();
    }
    let mut documents = bmc();
    put(&mut documents, BIOS, Reading::Present(bios));
    documents
}

#[test]
fn settings_directly_in_the_resource_are_compared() {
    let digest = |changed: &[(&str, Value)]| {
        let node = node(&direct_settings(changed));
        let names = text(&node.bios, "bios.setting.names");
        assert_eq!(
            names,
            "ProcHyperthreading SubNumaClustering WorkloadProfile"
        );
        assert_eq!(missing(&node.bios), Vec::<String>::new());
        node.bios.state().digest()
    };
    let before = digest(&[]);
    assert!(before.is_some());
    for other in [
        ("ProcHyperthreading", json!("Disabled")),
        ("SubNumaClustering", json!(true)),
        ("WorkloadProfile", json!(2)),
    ] {
        assert_ne!(digest(std::slice::from_ref(&other)), before, "{other:?}");
    }
    for same in [
        ("SerialNumber", json!("CASE000002")),
        ("Modified", json!("2026-02-11T12:00:00+00:00")),
        ("@odata.etag", json!("2")),
        ("Description", json!("x")),
        ("SettingsResult", json!({"ETag": "2"})),
    ] {
        assert_eq!(digest(std::slice::from_ref(&same)), before, "{same:?}");
    }
    // The settings of the next boot have the same form.
    let mut documents = direct_settings(&[]);
    let pending = json!({"@odata.type": "#HpBios.1.2.0.HpBios", "WorkloadProfile": "HPC"});
    put(
        &mut documents,
        &format!("{BIOS}/Settings"),
        Reading::Present(pending),
    );
    let node = node(&documents);
    assert_eq!(node.bios.state().digest(), before);
    let found: Vec<_> = node
        .findings
        .iter()
        .map(|one| one.detail.as_str())
        .collect();
    assert_eq!(found, ["WorkloadProfile"]);
}

#[test]
fn resource_without_settings_is_not_a_bios_without_settings() {
    let bare = json!({"@odata.id": BIOS, "@odata.type": "#Bios.v1_1_0.Bios", "Id": "BIOS"});
    let registry = json!("BiosAttributeRegistryA1.v1_0_0");
    for (attributes, registry, is_known) in [
        (None, None, true),
        (Some(json!({})), None, true),
        (None, Some(&registry), false),
        // As before the first boot of the host.
        (Some(json!({})), Some(&registry), false),
        (Some(json!(null)), Some(&registry), false),
    ] {
        let mut bios = bare.clone();
        if let Some(attributes) = &attributes {
            bios["Attributes"] = attributes.clone();
        }
        if let Some(registry) = registry {
            bios["AttributeRegistry"] = registry.clone();
        }
        let mut documents = bmc();
        put(&mut documents, BIOS, Reading::Present(bios));
        let names = node(&documents).bios.get("bios.setting.names");
        assert_eq!(
            names == Reading::Unsupported,
            is_known,
            "{attributes:?}: {names}"
        );
        assert_eq!(names.is_known(), is_known, "{attributes:?}: {names}");
    }
}

#[test]
fn damaged_setting_is_unknown() {
    let mut documents = bmc();
    let settings = &mut document(&mut documents, BIOS)["Attributes"];
    settings["WorkloadProfile"] = json!("Cust\u{fffd}m");
    settings["Na\u{fffd}me"] = json!("Enabled");
    assert_eq!(
        missing(&node(&documents).bios),
        ["bios.setting.Na_me", "bios.setting.WorkloadProfile"]
    );
}

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
        let at = format!("/redfish/v1/Chassis/{id}");
        let mut value = json!({"Id": id, "ChassisType": kind});
        value["Links"] = json!({"ComputerSystems": systems});
        if let Some(watts) = watts {
            value["Power"] = link(&format!("{at}/Power"));
            let power = json!({"PowerControl": [{"PowerConsumedWatts": watts}]});
            put(
                &mut documents,
                &format!("{at}/Power"),
                Reading::Present(power),
            );
        }
        let is_unread = *kind == "unread";
        let silent = Reading::Timeout { after_ms: 4000 };
        let reading = if is_unread {
            silent
        } else {
            Reading::Present(value)
        };
        put(&mut documents, &at, reading);
    }
    let scope = scope(Selector::Id("1".to_owned()), Breadth::Power);
    let (report, _) = read(&documents, &scope);
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
