//! Firmware inventory: running entries, and their names for comparisons between nodes of one design.

use crate::support::{document, everything, read, tree};
use lattice_conformance::{Class, ClassRecord, ClassState, Reading, Value};
use lattice_redfish::{Documents, NodeReport, ResourcePath, contradictions, unread_records};
use serde_json::{Value as Json, json};

const LIST: &str = "/redfish/v1/UpdateService/FirmwareInventory";

/// A Gigabyte tree with these entries in its inventory, by the last part of their paths.
fn with(entries: &[(&str, Json)]) -> Documents {
    let mut documents = tree("gigabyte-h262-ami");
    let links: Vec<Json> = entries
        .iter()
        .map(|(id, _)| json!({"@odata.id": format!("{LIST}/{id}")}))
        .collect();
    let list = document(&mut documents, LIST);
    list["Members@odata.count"] = json!(links.len());
    list["Members"] = json!(links);
    for (id, entry) in entries {
        let mut entry = entry.clone();
        if entry.get("Id").is_none() {
            entry["Id"] = json!(id);
        }
        let path = ResourcePath::parse(&format!("{LIST}/{id}")).expect("a path");
        documents.0.insert(path, Reading::Present(entry));
    }
    documents
}

fn node(documents: &Documents) -> NodeReport {
    let (report, _) = read(documents, &everything());
    report.node().expect("one node").clone()
}

/// `component=version` of every counted entry.
fn components(documents: &Documents) -> Vec<String> {
    let node = node(documents);
    let entries = node.bmc.entries.iter().filter_map(|(key, reading)| {
        let component = key
            .strip_prefix("bmc.inventory.")?
            .strip_suffix(".version")?;
        Some(format!("{component}={reading}"))
    });
    entries.collect()
}

#[test]
fn of_what_idrac_lists_the_installed_counts_under_its_devices_name() {
    let nic = |version: &str| json!({"Name": "Intel(R) Ethernet 10G X710", "Version": version});
    let bmc = json!({"Name": "Integrated Dell Remote Access Controller", "Version": "4.40.00.00"});
    let documents = with(&[
        (
            "Installed-25227-4.40.00.00__iDRAC.Embedded.1-1",
            bmc.clone(),
        ),
        ("Current-25227-4.40.00.00__iDRAC.Embedded.1-1", bmc),
        (
            "Previous-25227-4.22.00.00__iDRAC.Embedded.1-1",
            json!({"Version": "4.22.00.00"}),
        ),
        (
            "Installed-101560-19.5.12__NIC.Integrated.1-1-1",
            nic("19.5.12"),
        ),
        (
            "Installed-101560-19.5.12__NIC.Integrated.1-2-1",
            nic("19.5.12"),
        ),
        (
            "Available-101560-20.0.1__NIC.Integrated.1-1-1",
            nic("20.0.1"),
        ),
        (
            "Installed-159-2.2.4__BIOS.Setup.1-1",
            json!({"Name": "BIOS", "Version": "2.2.4"}),
        ),
        (
            "Previous-159-2.1.0__BIOS.Setup.1-1",
            json!({"Name": "BIOS", "Version": "2.1.0"}),
        ),
    ]);
    assert_eq!(
        components(&documents),
        [
            "idrac_embedded_1_1=4.40.00.00",
            "nic_integrated_1_1_1=19.5.12",
            "nic_integrated_1_2_1=19.5.12",
        ]
    );
    let bios = node(&documents).bios.get("bios.inventory.version");
    assert_eq!(bios, Reading::Present(Value::from("2.2.4")));
}

#[test]
fn an_update_keeps_the_components_name() {
    let name = |id: &str, version: &str| {
        let documents = with(&[(id, json!({"Name": "NIC firmware", "Version": version}))]);
        components(&documents)[0]
            .split('=')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let pairs = [
        // The id contains the version, a hash of it, or only a number.
        (
            "Installed-7-19.5.12",
            "19.5.12",
            "Installed-7-20.0.1",
            "20.0.1",
        ),
        ("a1b2c3d4", "v2.9", "0f9e8d7c", "v2.10"),
        ("NIC-19.5", "19.5", "NIC-20.0", "20.0"),
        ("12", "1.0", "12", "1.1"),
    ];
    for (id, version, later_id, later) in pairs {
        assert_eq!(name(id, version), name(later_id, later), "{id}");
    }
}

#[test]
fn spares_and_what_waits_do_not_run() {
    let entry = |version: &str| json!({"Name": "Firmware", "Version": version});
    let documents = with(&[
        ("BMC-Primary", entry("3.1")),
        ("BMC-Backup", entry("3.0")),
        ("UEFI", entry("1.2")),
        ("UEFI-Pending", entry("1.3")),
        ("Backup_BMC", entry("2.9")),
        ("Golden_BIOS", entry("1.0")),
        ("Staging_BIOS", entry("1.4")),
        (
            "CPLD_Motherboard",
            json!({
                "Name": "CPLD", "Version": "F1", "Description": "Firmware that is available here",
            }),
        ),
        (
            "6",
            json!({"Name": "Redundant System ROM", "Description": "SystemRomBackup", "Version": "9"}),
        ),
    ]);
    assert_eq!(
        components(&documents),
        ["bmc_primary=3.1", "cpld_motherboard=F1"]
    );
    let bios = node(&documents).bios.get("bios.inventory.version");
    assert_eq!(bios, Reading::Present(Value::from("1.2")));
}

#[test]
fn active_image_is_the_running_one() {
    let image = |version: &str| json!({"Name": "Software Inventory", "Description": "BMC image", "Version": version});
    let mut documents = with(&[("7c7ab4d1", image("2.9.0")), ("a61fe2b0", image("2.10.0"))]);
    let to = |id: &str| json!({"@odata.id": format!("{LIST}/{id}")});
    let manager = document(&mut documents, "/redfish/v1/Managers/Self");
    manager["Links"]["ActiveSoftwareImage"] = to("a61fe2b0");
    manager["Links"]["SoftwareImages"] = json!([to("7c7ab4d1"), to("a61fe2b0")]);
    manager["FirmwareVersion"] = json!("");
    assert_eq!(components(&documents), ["bmc_image=2.10.0"]);
    let version = node(&documents).bmc.get("bmc.firmware");
    assert_eq!(version, Reading::Present(Value::from("2.10.0")));
}

#[test]
fn names_equal_parts_by_place_or_number() {
    let card = |place: &str, version: &str| {
        json!({
            "Name": "25GbE Adapter", "Version": version,
            "Oem": {"Hpe": {"DeviceContext": place}},
        })
    };
    let supply = |version: &str| json!({"Name": "Power Supply", "Version": version});
    let one = with(&[
        ("1", card("PCI-E Slot 1", "8.50")),
        ("2", card("OCP 3.0 Slot 10", "8.60")),
        ("3", supply("2.0")),
        ("4", supply("1.0")),
    ]);
    let wanted = [
        "25gbe_adapter.ocp_3_0_slot_10=8.60",
        "25gbe_adapter.pci_e_slot_1=8.50",
        "power_supply.0=1.0",
        "power_supply.1=2.0",
    ];
    assert_eq!(components(&one), wanted);
    // The same parts with other numbers give the same result.
    let other = with(&[
        ("9", supply("1.0")),
        ("3", card("OCP 3.0 Slot 10", "8.60")),
        ("5", supply("2.0")),
        ("7", card("PCI-E Slot 1", "8.50")),
    ]);
    assert_eq!(components(&other), wanted);
}

#[test]
fn a_report_becomes_two_probes_and_a_contradiction_in_band_a_finding() {
    let report = node(&tree("hpe-dl325-ilo5"));
    let [bmc, bios] = report.to_probe_results();
    assert_eq!(
        (bmc.record.class, bios.record.class),
        (Class::Bmc, Class::Bios)
    );
    assert!(bmc.power.is_some() && bios.power.is_none());
    let in_band = |class, key, version: &str| {
        let mut record = ClassRecord::new(class);
        record.require(key, Reading::Present(version));
        record
    };
    // DMI contains only the family, IPMI only the first two numbers.
    for (dmi, ipmi, codes) in [
        ("A43", "2.46", &[][..]),
        ("A43 v2.52 (10/29/2021)", "2.46", &[]),
        ("U32", "2.46", &["bios_version_mismatch"]),
        ("A43", "2.47", &["bmc_version_mismatch"]),
    ] {
        let host = in_band(Class::Bios, "bios.version", dmi);
        let bios = host.merge(bios.record.clone());
        let host = in_band(Class::Bmc, "bmc.ipmi.firmware", ipmi);
        let bmc = host.merge(bmc.record.clone());
        let found = contradictions(Some(&bios), Some(&bmc));
        let found: Vec<&str> = found.iter().map(|finding| &*finding.code).collect();
        assert_eq!(found, codes, "{dmi} {ipmi}");
    }
    // A value missing on one side causes no finding.
    assert_eq!(contradictions(Some(&bios.record), Some(&bmc.record)), []);
    assert_eq!(contradictions(None, None), []);

    let silent = node(&tree("bmclib/dell"));
    let [bmc, _] = silent.to_probe_results();
    assert!(
        bmc.power.is_none(),
        "what is not known hides no other source"
    );
}

#[test]
fn unread_bmc_leaves_both_classes_unknown() {
    let denied = Reading::denied("401");
    let [bmc, bios] = unread_records(&denied);
    for (record, class) in [(bmc, Class::Bmc), (bios, Class::Bios)] {
        assert_eq!(record.class, class);
        let ClassState::Incomplete { missing } = record.state() else {
            panic!("{record:?}");
        };
        assert!(missing.values().all(|why| *why == Reading::denied("401")));
    }
}
