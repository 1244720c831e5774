//! One unusable part of a BMC's documents costs that part: a list entry, a link, a manager. Lists that count more
//! entries than they contain, and lists of several pages.

use crate::support::{document, everything, read, scope};
use lattice_conformance::{ClassRecord, ClassState, Reading};
use lattice_redfish::{
    Breadth, Documents, NoSystemReason, NodeReport, ResourcePath, Selector, recorded,
};
use serde_json::{Value, json};
use std::path::Path;

pub const SYSTEM: &str = "/redfish/v1/Systems/1";
pub const BIOS: &str = "/redfish/v1/Systems/1/Bios";
const LIST: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const REGISTRIES: &str = "/redfish/v1/Registries";

/// The small BMC of the field cases.
pub fn bmc() -> Documents {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bmc/field");
    recorded::load(&folder).expect("tree loads")
}

pub fn node(documents: &Documents) -> NodeReport {
    let (report, _) = read(documents, &everything());
    report.node().expect("one node").clone()
}

pub fn put(documents: &mut Documents, path: &str, reading: Reading<Value>) {
    let path = ResourcePath::parse(path).expect("a path");
    documents.0.insert(path, reading);
}

fn add_member(documents: &mut Documents, list: &str, member: Value) {
    let members = document(documents, list)["Members"].as_array_mut();
    members.expect("a list").push(member);
}

pub fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

/// The unknown keys of a class.
pub fn missing(record: &ClassRecord) -> Vec<String> {
    match record.state() {
        ClassState::Incomplete { missing } => missing.into_keys().collect(),
        ClassState::Complete { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}

pub fn text(record: &ClassRecord, key: &str) -> String {
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
fn members_that_are_only_counted_are_missing() {
    let whole = node(&bmc());
    for count in [4, 5] {
        let mut documents = bmc();
        document(&mut documents, LIST)["Members@odata.count"] = json!(count);
        let node = node(&documents);
        assert_eq!(missing(&node.bmc), ["bmc.inventory.names"]);
        let why = text(&node.bmc, "bmc.inventory.names");
        let words = format!("<failed: {LIST}: contains 3 of {count} entries, and no link");
        assert!(why.starts_with(&words), "{why}");
        assert_eq!(text(&node.bmc, "bmc.inventory.nic.version"), "28.41.1000");
        assert_eq!(
            (node.bios, node.power),
            (whole.bios.clone(), whole.power.clone())
        );
    }
    // None at all, and an entry that is not one of the missing.
    let mut documents = bmc();
    document(&mut documents, LIST)["Members"] = json!([]);
    assert_eq!(missing(&node(&documents).bmc), ["bmc.inventory.names"]);
    let mut documents = bmc();
    add_member(&mut documents, LIST, link("/redfish/v2/PSU"));
    document(&mut documents, LIST)["Members@odata.count"] = json!(5);
    let why = text(&node(&documents).bmc, "bmc.inventory.names");
    assert!(why.ends_with("and 1 more such entries>"), "{why}");
    // A count that is too low, or not a count.
    for count in [json!(0), json!(2), json!(null), json!("5"), json!(-1)] {
        let mut documents = bmc();
        document(&mut documents, LIST)["Members@odata.count"] = count.clone();
        assert_eq!(node(&documents), whole, "{count}");
    }
    // A system that is only counted may be another node.
    let mut documents = bmc();
    document(&mut documents, "/redfish/v1/Systems")["Members@odata.count"] = json!(2);
    let chosen = |selector: Selector| {
        let (report, _) = read(&documents, &scope(selector, Breadth::Systems));
        report.node().map(|node| node.system.id.clone())
    };
    assert_eq!(chosen(Selector::Id("1".to_owned())), Ok("1".to_owned()));
    let why = chosen(Selector::Only);
    assert!(matches!(why, Err(NoSystemReason::Unread { .. })), "{why:?}");
}

#[test]
fn links_that_are_only_counted_are_missing() {
    let mut documents = bmc();
    let links = &mut document(&mut documents, SYSTEM)["Links"];
    links["ManagedBy@odata.count"] = json!(2);
    let model = text(&node(&documents).bmc, "bmc.model");
    let words = "<failed: ManagedBy: contains 1 of 2 entries";
    assert!(model.starts_with(words), "{model}");
    // The manager that is linked serves the system.
    let manager = document(&mut documents, "/redfish/v1/Managers/1");
    manager["Links"] = json!({"ManagerForServers": [link(SYSTEM)]});
    assert_eq!(text(&node(&documents).bmc, "bmc.firmware"), "BMC 2.10");
    // The chassis that is only counted does not hide the draw of the other one.
    let mut documents = bmc();
    let whole = node(&documents);
    let links = &mut document(&mut documents, SYSTEM)["Links"];
    links["Chassis@odata.count"] = json!(2);
    let node = node(&documents);
    assert_eq!(node.power.draw, whole.power.draw);
    assert!(node.route.is_partial());
}

/// The inventory with its last entry on a second page at `at`, and with this link to the page.
fn two_pages(name: &str, next: Value, at: &str) -> Documents {
    let mut documents = bmc();
    let list = document(&mut documents, LIST);
    let last = list["Members"].as_array_mut().and_then(Vec::pop);
    list[name] = next;
    let page = json!({"Members": [last], "Members@odata.count": 3});
    put(&mut documents, at, Reading::Present(page));
    documents
}

#[test]
fn every_form_of_link_to_the_next_page_is_followed() {
    let whole = node(&bmc());
    let absolute = format!("{LIST}/Page2");
    let query = format!("{LIST}?$skip=2");
    for name in ["Members@odata.nextLink", "@odata.nextLink"] {
        for (next, at) in [
            (json!(absolute), &absolute),
            (json!(format!("{absolute}/")), &absolute),
            (link(&absolute), &absolute),
            (json!(query), &query),
            (json!("?$skip=2"), &query),
            (json!("FirmwareInventory?$skip=2"), &query),
            (json!("./FirmwareInventory/Page2"), &absolute),
            (json!("../UpdateService/FirmwareInventory/Page2"), &absolute),
        ] {
            let documents = two_pages(name, next.clone(), at);
            assert_eq!(node(&documents), whole, "{name} {next}");
        }
        for next in [
            json!("../../../../../etc/passwd"),
            json!("//192.0.2.1/redfish/v1/Page2"),
            json!(7),
            json!({}),
        ] {
            let documents = two_pages(name, next.clone(), &absolute);
            let names = text(&node(&documents).bmc, "bmc.inventory.names");
            assert!(names.contains("the next page is"), "{name} {next}: {names}");
        }
    }
}

#[test]
fn pages_that_repeat_members_are_not_the_missing_ones() {
    // A loop of one page, and of two.
    for next in [LIST, "?page=2"] {
        let mut documents = bmc();
        document(&mut documents, LIST)["@odata.nextLink"] = json!(next);
        let page = json!({"Members": [], "@odata.nextLink": LIST});
        let second = format!("{LIST}?page=2");
        put(&mut documents, &second, Reading::Present(page));
        let names = text(&node(&documents).bmc, "bmc.inventory.names");
        assert!(names.contains("form a loop"), "{next}: {names}");
    }
    // The BMC ignores the position, and sends the first page again.
    let second = format!("{LIST}?$skip=2");
    let mut documents = two_pages("@odata.nextLink", json!(second), &second);
    let mut again = document(&mut documents, LIST).clone();
    again["@odata.nextLink"] = json!(null);
    document(&mut documents, LIST)["Members@odata.count"] = json!(4);
    put(&mut documents, &second, Reading::Present(again));
    let names = text(&node(&documents).bmc, "bmc.inventory.names");
    assert!(names.contains("contains 2 of 4 entries"), "{names}");
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
