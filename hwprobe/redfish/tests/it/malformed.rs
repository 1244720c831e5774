//! A BMC with false, broken or cyclic data loses its values, and affects nothing else.

use crate::support::{document, everything, read, scope, tree};
use lattice_conformance::{ClassState, LimitState, Reading};
use lattice_redfish::{Breadth, Documents, NoSystemReason, ResourcePath, Selector, interpret};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn path(text: &str) -> ResourcePath {
    ResourcePath::parse(text).expect("a path")
}

fn members(of: &str, count: usize) -> Value {
    let links: Vec<Value> = (0..count)
        .map(|at| json!({"@odata.id": format!("{of}/{at}")}))
        .collect();
    json!({"Members": links})
}

#[test]
fn one_member_that_is_not_there_is_named_and_the_rest_is_known() {
    let mut documents = tree("cray-ex235n-a100");
    let gone = "/redfish/v1/UpdateService/FirmwareInventory/FPGA2";
    documents.0.remove(&path(gone));
    let (report, _) = read(&documents, &everything());
    for node in &report.nodes {
        assert_eq!(node.bmc.get("bmc.inventory.fpga2.version"), Reading::Absent);
        assert!(matches!(node.bmc.state(), ClassState::Complete { .. }));
        let finding = node.findings.first().expect("it is found");
        assert_eq!(finding.code, "bmc_dead_link");
        assert!(finding.detail.ends_with(": FPGA2"), "{}", finding.detail);
    }
}

#[test]
fn silent_member_makes_class_incomplete() {
    for silent in [
        Reading::Timeout { after_ms: 4000 },
        Reading::denied("403"),
        Reading::failed("not valid JSON: expected value at line 1 column 1"),
    ] {
        let mut documents = tree("gigabyte-h262-ami");
        let member = path("/redfish/v1/UpdateService/FirmwareInventory/MB_CPLD1");
        documents.0.insert(member, silent.clone());
        let (report, _) = read(&documents, &everything());
        let node = report.node().expect("one node");
        let ClassState::Incomplete { missing } = node.bmc.state() else {
            panic!("it is not complete");
        };
        let keys: Vec<&String> = missing.keys().collect();
        assert_eq!(keys, ["bmc.inventory.mb_cpld1.version"]);
        assert_eq!(
            missing["bmc.inventory.mb_cpld1.version"].state(),
            silent.state()
        );
        assert!(matches!(node.bios.state(), ClassState::Complete { .. }));
        assert!(node.power.draw.present().is_some());
    }
}

#[test]
fn a_root_or_a_list_that_cannot_be_read_is_its_own_reason() {
    for (at, silent) in [
        ("/redfish/v1", Reading::denied("401")),
        ("/redfish/v1", Reading::Present(json!(["no", "object"]))),
        ("/redfish/v1/Systems", Reading::failed("not valid JSON")),
        (
            "/redfish/v1/Systems",
            Reading::Present(json!({"Members": "many"})),
        ),
        (
            "/redfish/v1/Systems",
            Reading::Present(json!({"Name": "Systems"})),
        ),
    ] {
        let mut documents = tree("hpe-dl325-ilo5");
        documents.0.insert(path(at), silent);
        let (report, _) = read(&documents, &everything());
        let why = report.node().expect_err("nobody knows");
        assert!(matches!(why, NoSystemReason::Unread { .. }), "{at}: {why}");
    }
}

#[test]
fn a_million_members_are_refused_with_a_reason_and_in_time() {
    let at = "/redfish/v1/UpdateService/FirmwareInventory";
    let mut documents = tree("gigabyte-h262-ami");
    documents
        .0
        .insert(path(at), Reading::Present(members(at, 1_000_000)));
    let started_at = Instant::now();
    let (report, took) = read(&documents, &everything());
    assert!(took < 40, "{took} requests");
    // Debug builds on a busy machine: the limit checks the order of magnitude.
    assert!(started_at.elapsed() < Duration::from_secs(40));
    let names = report
        .node()
        .expect("one node")
        .bmc
        .get("bmc.inventory.names");
    assert!(names.to_string().contains("1000000 members"), "{names}");
}

#[test]
fn a_bmc_that_always_has_one_more_is_left_after_so_many() {
    for list in [
        "/redfish/v1/UpdateService/FirmwareInventory",
        "/redfish/v1/Systems",
    ] {
        let mut documents = tree("gigabyte-h262-ami");
        let value = members(list, 4000);
        documents.0.insert(path(list), Reading::Present(value));
        let (_, took) = read(&documents, &everything());
        assert!(took <= 512, "{list}: {took} requests");
    }
}

#[test]
fn pages_that_go_round_in_circles_end() {
    let at = "/redfish/v1/UpdateService/FirmwareInventory";
    let mut documents = tree("gigabyte-h262-ami");
    let list = document(&mut documents, at);
    list["Members@odata.nextLink"] = json!(format!("{at}/Page2"));
    let second = json!({"Members": [], "Members@odata.nextLink": at});
    documents
        .0
        .insert(path(&format!("{at}/Page2")), Reading::Present(second));
    let (report, took) = read(&documents, &everything());
    assert!(took < 40, "{took} requests");
    let names = report
        .node()
        .expect("one node")
        .bmc
        .get("bmc.inventory.names");
    assert!(names.to_string().contains("form a loop"), "{names}");
}

#[test]
fn pages_are_read_to_their_end() {
    let at = "/redfish/v1/UpdateService/FirmwareInventory";
    let mut documents = tree("gigabyte-h262-ami");
    let list = document(&mut documents, at);
    let mut links = list["Members"].as_array().cloned().expect("a list");
    let rest = links.split_off(1);
    list["Members"] = json!(links);
    list["Members@odata.nextLink"] = json!(format!("{at}/Page2"));
    // No next page, in the form of some BMCs.
    let second = json!({"Members": rest, "Members@odata.nextLink": ""});
    documents
        .0
        .insert(path(&format!("{at}/Page2")), Reading::Present(second));
    let digest = |documents: &Documents| {
        let (report, _) = read(documents, &everything());
        report.node().expect("one node").bmc.state()
    };
    assert_eq!(digest(&documents), digest(&tree("gigabyte-h262-ami")));
}

#[test]
fn resources_that_link_to_each_other_are_each_read_once() {
    let system = "/redfish/v1/Systems/Self";
    let mut documents = tree("gigabyte-h262-ami");
    // The system is its own chassis, manager, settings, list of logs and firmware.
    let own = json!({"@odata.id": system});
    let value = document(&mut documents, system);
    value["Links"] = json!({"Chassis": [own], "ManagedBy": [own]});
    for property in [
        "Bios",
        "SecureBoot",
        "LogServices",
        "Processors",
        "Power",
        "Controls",
        "Sensors",
    ] {
        value[property] = own.clone();
    }
    let root = document(&mut documents, "/redfish/v1");
    root["UpdateService"] = own.clone();
    root["Chassis"] = own.clone();
    let (report, took) = read(&documents, &everything());
    assert!(took < 10, "{took} requests");
    let node = report.node().expect("one node");
    assert!(node.power.draw.present().is_none());
}

/// Change of a document.
type Change = fn(&mut Value);

#[test]
fn broken_member_costs_that_member_alone() {
    let list = "/redfish/v1/UpdateService/FirmwareInventory";
    let key = "bmc.inventory.mb_cpld1.version";
    let known = tree("gigabyte-h262-ami");
    let (report, _) = read(&known, &everything());
    let whole = report.node().expect("one node");
    assert!(whole.bmc.get(key).is_known() && whole.bmc.entries.contains_key(key));
    // The member that breaks, or none if a further page does, and the change.
    let odd: &[(Option<&str>, Change)] = &[
        (Some(key), |list| {
            list["Members"][1]["@odata.id"] = json!("https://192.0.2.1/redfish/v1/MB_CPLD1");
        }),
        (Some(key), |list| {
            list["Members"][1]["@odata.id"] = json!("/redfish/v1/MB\rCPLD1");
        }),
        (Some(key), |list| {
            list["Members"][1]["@odata.id"] = json!("/redfish/v1/MB\u{fffd}CPLD1");
        }),
        (Some(key), |list| {
            list["Members"][1] = json!({"Id": "MB_CPLD1", "Version": "1"});
        }),
        (Some(key), |list| list["Members"][1] = Value::Null),
        (Some(key), |list| list["Members"][1] = json!([7])),
        (None, |list| {
            list["Members@odata.nextLink"] = json!("https://192.0.2.1/redfish/v1/next");
        }),
        (None, |list| list["Members@odata.nextLink"] = json!(7)),
        (None, |list| {
            list["Members@odata.nextLink"] = json!("/redfish/v1/MissingPage");
        }),
    ];
    for (at, (broken, make_odd)) in odd.iter().enumerate() {
        let mut documents = known.clone();
        make_odd(document(&mut documents, list));
        let (report, _) = read(&documents, &everything());
        let node = report.node().expect("one node");
        let ClassState::Incomplete { missing } = node.bmc.state() else {
            panic!("{at}: complete");
        };
        let missing: Vec<&String> = missing.keys().collect();
        assert_eq!(missing, ["bmc.inventory.names"], "{at}");
        for (key, reading) in &whole.bmc.entries {
            let is_lost = *broken == Some(key.as_str()) || key == "bmc.inventory.names";
            let found = node.bmc.get(key);
            assert_eq!(found == *reading, !is_lost, "{at} {key}: {found}");
            assert_eq!(found.is_known(), !is_lost, "{at} {key}: {found}");
        }
        assert_eq!(node.bios, whole.bios, "{at}");
        assert_eq!(node.power, whole.power, "{at}");
    }
    // Without its members, the list is unknown, although its count suggests that one member is enough.
    let mut documents = known.clone();
    let value = document(&mut documents, list);
    value["Members@odata.count"] = json!(1);
    value["Members"] = Value::Null;
    let (report, _) = read(&documents, &everything());
    let node = report.node().expect("one node");
    assert!(!node.bmc.get("bmc.inventory.names").is_known());
    assert!(!node.bmc.get(key).is_known());
    // A list with an explicit count of zero needs no members.
    let mut documents = known;
    *document(&mut documents, list) = json!({"Members@odata.count": 0});
    let (report, _) = read(&documents, &everything());
    let node = report.node().expect("one node");
    assert!(matches!(node.bmc.state(), ClassState::Complete { .. }));
}

#[test]
fn links_that_lead_elsewhere_are_no_links() {
    for target in [
        "http://192.0.2.1/redfish/v1/Systems",
        "//192.0.2.1/redfish/v1/Systems",
        "/redfish/v1/../../etc/passwd",
        "/login",
        "/redfish/v1/Systems\r\nHost: other",
    ] {
        let mut documents = tree("gigabyte-h262-ami");
        document(&mut documents, "/redfish/v1")["Systems"] = json!({"@odata.id": target});
        let wanted = interpret(&documents, &everything()).wanted;
        assert!(wanted.is_empty(), "{target:?}: {wanted:?}");
    }
}

#[test]
fn a_wrong_type_in_any_field_is_a_reason_and_never_a_value() {
    let wrong = [
        json!(null),
        json!(7),
        json!(true),
        json!(["x"]),
        json!({"x": [{}]}),
    ];
    let fields = [
        (
            "/redfish/v1/Systems/Self",
            "BiosVersion",
            "bios.redfish.version",
        ),
        (
            "/redfish/v1/Managers/Self",
            "FirmwareVersion",
            "bmc.firmware",
        ),
        ("/redfish/v1/Managers/Self", "Model", "bmc.model"),
        (
            "/redfish/v1/Systems/Self/Bios",
            "AttributeRegistry",
            "bios.registry",
        ),
        (
            "/redfish/v1/Systems/Self/Bios",
            "Attributes",
            "bios.setting.names",
        ),
        (
            "/redfish/v1/Systems/Self/SecureBoot",
            "SecureBootCurrentBoot",
            "bios.redfish.secure_boot",
        ),
        (
            "/redfish/v1/UpdateService/FirmwareInventory/BMC",
            "Version",
            "bmc.inventory.bmc.version",
        ),
    ];
    for (at, property, key) in fields {
        for wrong in &wrong {
            let mut documents = tree("gigabyte-h262-ami");
            // Otherwise the inventory would provide the value missing in the system and the manager.
            if matches!(key, "bios.redfish.version" | "bmc.firmware") {
                document(&mut documents, "/redfish/v1")["UpdateService"] = json!(null);
            }
            document(&mut documents, at)[property] = wrong.clone();
            let (report, _) = read(&documents, &everything());
            let node = report.node().expect("one node");
            let record = if key.starts_with("bmc") {
                &node.bmc
            } else {
                &node.bios
            };
            let found = record.get(key);
            let is_object = wrong.is_object() && property == "Attributes";
            assert!(
                found.present().is_none() || is_object,
                "{key} {wrong}: {found}"
            );
            if !wrong.is_null() && !is_object {
                assert!(
                    matches!(found, Reading::Failed { .. }),
                    "{key} {wrong}: {found}"
                );
            }
        }
    }
}

#[test]
fn a_version_missing_at_the_system_is_found_in_the_inventory() {
    for empty in [json!(""), json!("N/A"), json!(null)] {
        let mut documents = tree("gigabyte-h262-ami");
        document(&mut documents, "/redfish/v1/Systems/Self")["BiosVersion"] = empty.clone();
        document(&mut documents, "/redfish/v1/Managers/Self")["FirmwareVersion"] = empty;
        let (report, _) = read(&documents, &everything());
        let node = report.node().expect("one node");
        let version =
            |record: &lattice_conformance::ClassRecord, key: &str| record.get(key).to_string();
        assert_eq!(version(&node.bios, "bios.redfish.version"), "C27");
        assert_eq!(version(&node.bmc, "bmc.firmware"), "12.84.13");
    }
}

#[test]
fn sources_that_contradict_each_other_are_a_finding() {
    let mut documents = tree("gigabyte-h262-ami");
    let entry = "/redfish/v1/UpdateService/FirmwareInventory/BIOS";
    document(&mut documents, entry)["Version"] = json!("C28");
    let (report, _) = read(&documents, &everything());
    let found = &report.node().expect("one node").findings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].code, "bios_version_mismatch");
}

#[test]
fn bare_system_reports_absence() {
    let mut documents = Documents::default();
    let mut put = |at: &str, value: Value| {
        documents.0.insert(path(at), Reading::Present(value));
    };
    put(
        "/redfish/v1",
        json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}}),
    );
    put("/redfish/v1/Systems", members("/redfish/v1/Systems", 1));
    put("/redfish/v1/Systems/0", json!({}));
    let (report, took) = read(&documents, &scope(Selector::Only, Breadth::Everything));
    assert_eq!(took, 3);
    let node = report.node().expect("one node");
    assert_eq!(node.system.id, "0");
    assert_eq!(node.bmc.get("bmc.firmware"), Reading::Absent);
    assert_eq!(node.bios.get("bios.redfish.version"), Reading::Absent);
    assert_eq!(node.power.limit_state, LimitState::Unknown);
    assert!(matches!(node.power.draw, Reading::Failed { .. }));
}

#[test]
fn a_manager_or_a_chassis_that_is_silent_is_not_replaced_by_another() {
    // The BMC among five managers; the others are auxiliary controllers.
    let mut documents = tree("cray-ex235n-a100");
    document(&mut documents, "/redfish/v1/Managers/MCU0")["Model"] = json!("helper");
    let silent = Reading::Timeout { after_ms: 4000 };
    documents
        .0
        .insert(path("/redfish/v1/Managers/BMC"), silent.clone());
    let (report, _) = read(&documents, &everything());
    for node in &report.nodes {
        let model = node.bmc.get("bmc.model");
        assert_eq!(model.state(), silent.state(), "{model}");
        assert!(matches!(node.bmc.state(), ClassState::Incomplete { .. }));
    }
    // A second chassis without values gives no information about the first one.
    let mut documents = tree("gigabyte-h262-ami");
    let other = "/redfish/v1/Chassis/Other";
    let links = [other, "/redfish/v1/Chassis/Self"].map(|at| json!({"@odata.id": at}));
    let system = document(&mut documents, "/redfish/v1/Systems/Self");
    system["Links"]["Chassis"] = json!(links);
    documents
        .0
        .insert(path(other), Reading::Present(json!({"Id": "Other"})));
    documents
        .0
        .insert(path("/redfish/v1/Chassis/Self"), silent.clone());
    let (report, _) = read(&documents, &everything());
    let node = report.node().expect("one node");
    assert_eq!(node.power.limit_state, LimitState::Unknown);
    assert_eq!(node.power.draw.state(), silent.state());
    assert!(matches!(node.bmc.state(), ClassState::Incomplete { .. }));
}
