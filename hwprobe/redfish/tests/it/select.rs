//! Selection of the node's own system among those of a BMC.

use crate::support;
use crate::support::{document, read, scope, tree};
use lattice_conformance::Reading;
use lattice_redfish::{Breadth, Documents, NoSystemReason, ResourcePath, Selector};
use serde_json::json;

/// Systems as `(id, uuid, serial)`.
fn bmc(systems: &[(&str, &str, &str)]) -> Documents {
    let mut documents = Documents::default();
    let mut put = |path: String, value| {
        let path = ResourcePath::parse(&path).expect("a path");
        documents.0.insert(path, Reading::Present(value));
    };
    let members: Vec<_> = systems
        .iter()
        .map(|(id, _, _)| json!({"@odata.id": format!("/redfish/v1/Systems/{id}")}))
        .collect();
    put(
        "/redfish/v1".to_owned(),
        json!({"Systems": {"@odata.id": "/redfish/v1/Systems"}}),
    );
    put(
        "/redfish/v1/Systems".to_owned(),
        json!({"Members": members}),
    );
    for (id, uuid, serial) in systems {
        let value = json!({"Id": id, "UUID": uuid, "SerialNumber": serial});
        put(format!("/redfish/v1/Systems/{id}"), value);
    }
    documents
}

fn chosen(documents: &Documents, selector: Selector) -> Result<String, NoSystemReason> {
    let (report, _) = read(documents, &scope(selector, Breadth::Systems));
    report.node().map(|node| node.system.id.clone())
}

fn like(uuid: &str, serial: &str) -> Selector {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Selector::Like {
        uuid: some(uuid),
        serial: some(serial),
    }
}

const FOUR: &[(&str, &str, &str)] = &[
    ("Node0", "36383150-3630-584d-5130-313930323042", "A0"),
    ("Node1", "36383150-3630-584d-5130-313930323043", "A1"),
    ("Node2", "", "NA"),
    ("Node3", "00000000-0000-0000-0000-000000000000", "NA"),
];

#[test]
fn the_configured_id_is_the_one() {
    let four = bmc(FOUR);
    assert_eq!(
        chosen(&four, Selector::Id("Node2".into())),
        Ok("Node2".to_owned())
    );
    let none = chosen(&four, Selector::Id("Node7".into())).expect_err("no such system");
    let ids: Vec<String> = FOUR.iter().map(|(id, _, _)| (*id).to_owned()).collect();
    assert_eq!(
        none,
        NoSystemReason::Unknown {
            id: "Node7".to_owned(),
            choices: ids.clone(),
        }
    );
    let which = chosen(&four, Selector::Only).expect_err("four of them");
    assert_eq!(which, NoSystemReason::Ambiguous { choices: ids });
    assert!(
        which.to_string().contains("\"Node0\", \"Node1\""),
        "{which}"
    );
}

#[test]
fn a_uuid_counts_in_either_byte_order() {
    let four = bmc(FOUR);
    for uuid in [
        "36383150-3630-584d-5130-313930323043",
        "50313836-3036-4d58-5130-313930323043",
        "50313836-3036-4D58-5130-313930323043",
    ] {
        assert_eq!(
            chosen(&four, like(uuid, "")),
            Ok("Node1".to_owned()),
            "{uuid}"
        );
    }
}

#[test]
fn a_serial_decides_where_no_uuid_does_and_a_placeholder_decides_nothing() {
    let four = bmc(FOUR);
    assert_eq!(chosen(&four, like("", "A1")), Ok("Node1".to_owned()));
    let zeros = "00000000-0000-0000-0000-000000000000";
    for selector in [like("", "NA"), like(zeros, ""), like("", "")] {
        let which = chosen(&four, selector).expect_err("four of them");
        assert!(matches!(which, NoSystemReason::Ambiguous { .. }));
    }
}

#[test]
fn the_only_system_is_the_one_whatever_its_serial() {
    // SMBIOS and the BMC may report different serial numbers for one machine.
    let one = bmc(&[("1", "", "NA")]);
    assert_eq!(chosen(&one, like("", "MXQ019020B")), Ok("1".to_owned()));
    assert_eq!(chosen(&one, Selector::Only), Ok("1".to_owned()));
}

#[test]
fn the_only_system_of_another_machine_is_a_finding() {
    let ours = "36383150-3630-584d-5130-313930323042";
    let codes = |uuid: &str, serial: &str, selector: Selector| -> Vec<String> {
        let one = bmc(&[("1", uuid, serial)]);
        let (report, _) = read(&one, &scope(selector, Breadth::Systems));
        let found = &report.node().expect("the only one").findings;
        found.iter().map(|finding| finding.code.clone()).collect()
    };
    let other = "36383150-3630-584d-5130-313930329999";
    let wrong = codes(other, "B7", like(ours, "A0"));
    assert_eq!(wrong, ["bmc_identity_mismatch"]);
    assert!(codes(other, "A0", like(ours, "A0")).is_empty());
    assert!(codes(ours, "B7", like(ours, "A0")).is_empty());
    assert!(codes("", "NA", like(ours, "A0")).is_empty());
    assert!(codes(other, "B7", Selector::Only).is_empty());
}

#[test]
fn shared_serial_needs_id() {
    let blade = tree("cray-ex235n-a100");
    let which = chosen(&blade, like("", "DP20300012")).expect_err("both have it");
    assert!(matches!(which, NoSystemReason::Ambiguous { .. }), "{which}");
    assert_eq!(
        chosen(&blade, Selector::Id("Node1".into())),
        Ok("Node1".to_owned())
    );
}

#[test]
fn a_system_that_cannot_be_read_may_be_the_one() {
    let mut four = bmc(FOUR);
    let path = ResourcePath::parse("/redfish/v1/Systems/Node2").expect("a path");
    four.0.insert(path, Reading::Timeout { after_ms: 4000 });
    assert_eq!(
        chosen(&four, Selector::Id("Node1".into())),
        Ok("Node1".to_owned())
    );
    let why = chosen(&four, Selector::Id("Node2".into())).expect_err("unread");
    assert!(matches!(why, NoSystemReason::Unread { .. }), "{why}");
}

#[test]
fn four_nodes_of_one_bmc_keep_their_own_firmware() {
    let mut documents = tree("cray-ex235n-a100");
    let newer = "/redfish/v1/UpdateService/FirmwareInventory/Node1.HPCNet0";
    document(&mut documents, newer)["Version"] = json!("1.6.0");
    let (report, _) = read(&documents, &support::everything());
    let versions: Vec<String> = report
        .nodes
        .iter()
        .map(|node| node.bmc.get("bmc.inventory.hpcnet0.version").to_string())
        .collect();
    assert_eq!(versions, ["1.5.27", "1.6.0"]);
    // A shared component belongs to both nodes.
    let shared = "/redfish/v1/UpdateService/FirmwareInventory/FPGA1";
    document(&mut documents, shared)["Version"] = json!("2.03");
    let (report, _) = read(&documents, &support::everything());
    for node in &report.nodes {
        let version = node.bmc.get("bmc.inventory.fpga1.version");
        assert_eq!(version.to_string(), "2.03");
    }
}

#[test]
fn a_card_with_a_system_of_its_own_is_no_second_node() {
    let mut documents = bmc(&[("1", "", "A0"), ("DPU1", "", "D0")]);
    document(&mut documents, "/redfish/v1/Systems/DPU1")["SystemType"] = json!("DPU");
    assert_eq!(chosen(&documents, Selector::Only), Ok("1".to_owned()));
    assert_eq!(
        chosen(&documents, Selector::Id("DPU1".into())),
        Ok("DPU1".to_owned())
    );
}
