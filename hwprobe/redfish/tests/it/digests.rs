//! Changes that affect a digest and changes that do not, over every version and every setting of every tree.

use crate::support;
use crate::support::{everything, fetched, tree};
use lattice_conformance::{ClassState, Digest, Reading};
use lattice_redfish::{Documents, NodeReport, Scope, interpret};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

/// Whole machines, for which both classes are complete.
const MACHINES: &[&str] = &[
    "cray-ex235a-mi250x",
    "cray-ex235n-a100",
    "hpe-dl325-ilo5",
    "hpe-dl380a-gen11-ilo6",
    "gigabyte-h262-ami",
    "supermicro-x10sdv",
];

fn nodes(documents: &Documents, scope: &Scope) -> Vec<NodeReport> {
    let read = interpret(documents, scope);
    assert!(read.wanted.is_empty(), "{:?}", read.wanted);
    read.report.nodes
}

fn digest(state: ClassState) -> Digest {
    state.digest().unwrap_or_else(|| panic!("{state:?}"))
}

/// The digests `(bmc, bios)` of every node.
fn digests(documents: &Documents) -> Vec<(Digest, Digest)> {
    let nodes = nodes(documents, &everything());
    let both = |node: &NodeReport| (digest(node.bmc.state()), digest(node.bios.state()));
    nodes.iter().map(both).collect()
}

/// Changes data that must not affect a digest: readings, dates, tags, counts, serials, host names, and the order of
/// every list.
fn disturb(value: &mut Value, turn: usize, seed: u64) {
    match value {
        Value::Object(all) => {
            for (name, value) in all.iter_mut() {
                match (name.as_str(), &*value) {
                    // Zero is not a reading, and must not become one through this change.
                    (
                        "PowerConsumedWatts" | "Reading" | "AverageConsumedWatts" | "ReadingVolts",
                        Value::Number(_),
                    ) => *value = json!(seed % 5000 + 1),
                    (
                        "@odata.etag" | "DateTime" | "LastResetTime" | "ReadingTime" | "Time"
                        | "SerialNumber" | "UUID" | "HostName" | "AssetTag" | "ETag",
                        Value::String(_),
                    ) => *value = json!(format!("changed-{seed}")),
                    ("Members@odata.count", _) if name != "Members" => {}
                    _ => disturb(value, turn, seed),
                }
            }
        }
        Value::Array(entries) => {
            let count = entries.len().max(1);
            entries.rotate_left(turn % count);
            entries
                .iter_mut()
                .for_each(|entry| disturb(entry, turn, seed));
        }
        _ => {}
    }
}

#[test]
fn order_readings_tags_dates_and_serials_do_not_count() {
    let trees: Vec<Documents> = MACHINES
        .iter()
        .map(|name| fetched(&tree(name), &everything()))
        .collect();
    let before: Vec<_> = trees.iter().map(digests).collect();
    let cases = support::cases(24);
    let mut runner = TestRunner::new(Config::with_cases(cases));
    let any = (0..trees.len(), any::<u16>(), any::<u64>());
    let run = runner.run(&any, |(at, turn, seed)| {
        let mut shaken = trees[at].clone();
        for reading in shaken.0.values_mut() {
            if let Reading::Present(value) = reading {
                disturb(value, usize::from(turn), seed);
            }
        }
        prop_assert_eq!(digests(&shaken), before[at].clone(), "{}", MACHINES[at]);
        Ok(())
    });
    run.expect("no digest moves");
}

/// The documents of one kind, found by type and not by the reader's own traversal. For every key with a present text, a
/// change in the document must change the digest.
fn of_kind<'a>(documents: &'a Documents, kind: &'a str) -> Vec<&'a lattice_redfish::ResourcePath> {
    let is_it = |reading: &Reading<Value>| {
        let state = reading
            .present()
            .and_then(|value| value["@odata.type"].as_str());
        state.is_some_and(|state| state.starts_with(kind))
    };
    let found = documents.0.iter().filter(|(_, reading)| is_it(reading));
    found.map(|(path, _)| path).collect()
}

#[test]
fn a_firmware_version_changes_exactly_the_digest_of_its_class() {
    for name in MACHINES {
        let documents = fetched(&tree(name), &everything());
        let before = digests(&documents);
        for path in of_kind(&documents, "#SoftwareInventory.") {
            let mut changed = documents.clone();
            let entry = support::document(&mut changed, path.as_str());
            entry["Version"] = json!("99.9-changed");
            let id = entry["Id"].as_str().unwrap_or_default().to_owned();
            let words = [entry["Name"].as_str(), entry["Description"].as_str()];
            let words = words.map(Option::unwrap_or_default).join(" ");
            let after = digests(&changed);
            let is_bios =
                id == "BIOS" || id.ends_with(".BIOS") || words.contains("SystemRomActive");
            let is_copy = words.contains("Redundant");
            let mut moved = 0;
            for (before, after) in before.iter().zip(&after) {
                let (bmc, bios) = (before.0 != after.0, before.1 != after.1);
                assert!(!bmc || !is_bios, "{name} {id}: the BIOS is not the BMC's");
                assert!(!bios || is_bios, "{name} {id}: no BIOS");
                moved += usize::from(bmc || bios);
            }
            assert_eq!(moved > 0, !is_copy, "{name} {id} {words}");
        }
    }
}

#[test]
fn the_bmcs_own_version_changes_its_digest_alone() {
    for name in ["hpe-dl325-ilo5", "gigabyte-h262-ami", "supermicro-x10sdv"] {
        let mut documents = fetched(&tree(name), &everything());
        let before = digests(&documents);
        let path = of_kind(&documents, "#Manager.")[0].clone();
        support::document(&mut documents, path.as_str())["FirmwareVersion"] = json!("99.9");
        let after = digests(&documents);
        assert_ne!(before[0].0, after[0].0, "{name}");
        assert_eq!(before[0].1, after[0].1, "{name}");
    }
}

#[test]
fn a_setting_changes_exactly_the_bios_digest() {
    for name in MACHINES {
        let documents = fetched(&tree(name), &everything());
        let before = digests(&documents);
        let all = nodes(&documents, &everything());
        for (at, node) in all.iter().enumerate() {
            let bios = support::document(&mut documents.clone(), &system_bios(&documents, node))
                ["Attributes"]
                .clone();
            let Some(attributes) = bios.as_object() else {
                continue;
            };
            // Each test reads the whole tree, so a sample of the settings suffices.
            let step = (attributes.len() / 40).max(1);
            for attribute in attributes.keys().step_by(step) {
                let mut changed = documents.clone();
                let path = system_bios(&documents, node);
                let setting = &mut support::document(&mut changed, &path)["Attributes"][attribute];
                match setting.get_mut("current_value") {
                    Some(current) => *current = json!("changed"),
                    None => *setting = json!("changed"),
                }
                let after = digests(&changed);
                let key: String = attribute
                    .chars()
                    .map(|c| if c == ' ' { '_' } else { c })
                    .collect();
                let is_compared = node
                    .bios
                    .entries
                    .contains_key(&format!("bios.setting.{key}"));
                let at_node = format!("{name} {} {attribute}", node.system.id);
                assert_eq!(after[at].1 != before[at].1, is_compared, "{at_node}");
                assert!(
                    after.iter().zip(&before).all(|(a, b)| a.0 == b.0),
                    "{at_node}"
                );
            }
        }
    }
}

/// Path of a node's settings, as linked by its system; the system itself without such a link.
fn system_bios(documents: &Documents, node: &NodeReport) -> String {
    let path = node.system.path.clone().expect("a path");
    let system = documents.get(&path).and_then(Reading::present);
    let linked = system.and_then(|system| system["Bios"]["@odata.id"].as_str());
    let linked = linked.map(|linked| linked.trim_end_matches('/').to_owned());
    linked.unwrap_or_else(|| path.to_string())
}

#[test]
fn what_waits_for_a_reboot_is_named_and_never_hashed() {
    let mut documents = tree("hpe-dl325-ilo5");
    let before = digests(&fetched(&documents, &everything()));
    let pending = support::document(&mut documents, "/redfish/v1/systems/1/bios/settings");
    pending["Attributes"]["ProcVirtualization"] = json!("Disabled");
    pending["Attributes"]["AdminPassword"] = json!("hunter2");
    let documents = fetched(&documents, &everything());
    assert_eq!(digests(&documents), before);
    let found = &nodes(&documents, &everything())[0].findings;
    let pending: Vec<&str> = found
        .iter()
        .filter(|finding| finding.code == "bios_settings_pending")
        .map(|finding| finding.detail.as_str())
        .collect();
    assert_eq!(pending, ["ProcVirtualization"]);
}

#[test]
fn samples_of_a_bios_with_pending_settings_name_the_four() {
    let mut documents = tree("sushy-samples");
    // The sample system links to `…/Bios`, but the sample settings are at `…/BIOS`.
    let bios = "/redfish/v1/Systems/437XR1138R2/BIOS";
    let system = support::document(&mut documents, "/redfish/v1/Systems/437XR1138R2");
    system["Bios"]["@odata.id"] = json!(bios);
    let node = &nodes(&fetched(&documents, &everything()), &everything())[0];
    let pending = node
        .findings
        .iter()
        .find(|f| f.code == "bios_settings_pending");
    let names = pending.map(|finding| finding.detail.as_str());
    assert_eq!(
        names,
        Some("AdminPhone, EmbeddedSata, NicBoot2, ProcTurboMode")
    );
    let turbo = node.bios.get("bios.setting.ProcTurboMode");
    assert_eq!(turbo, Reading::Present("Enabled".into()));
    // A person's telephone number is not a setting of the machine.
    assert_eq!(node.bios.get("bios.setting.AdminPhone"), Reading::Absent);
}

#[test]
fn drops_unsettable_registry_attributes() {
    let mut documents = tree("hpe-dl325-ilo5");
    let registry = json!({
        "Id": "BiosAttributeRegistryA43.v1_2_52",
        "RegistryVersion": "1.2.52",
        "RegistryEntries": {"Attributes": [
            {"AttributeName": "AcpiRootBridgePxm", "ReadOnly": true},
            {"AttributeName": "F11BootMenu", "Hidden": true},
            {"AttributeName": "UsbBoot", "Type": "Password"},
            {"AttributeName": "BootMode", "ReadOnly": false, "Type": "Enumeration"},
        ]},
    });
    let file = json!({
        "Id": "BiosAttributeRegistryA43.v1_2_52",
        "Location": [
            {"Language": "ja", "Uri": "/redfish/v1/registrystore/ja"},
            {"Language": "en", "Uri": "/redfish/v1/registrystore/en"},
        ],
    });
    let at = "/redfish/v1/Registries/BiosAttributeRegistryA43.v1_2_52";
    let list = json!({"Members": [{"@odata.id": at}]});
    for (path, value) in [
        ("/redfish/v1/Registries", list),
        (at, file),
        ("/redfish/v1/registrystore/en", registry),
    ] {
        let path = lattice_redfish::ResourcePath::parse(path).expect("a path");
        documents.0.insert(path, Reading::Present(value));
    }
    let root = support::document(&mut documents, "/redfish/v1");
    root["Registries"] = json!({"@odata.id": "/redfish/v1/Registries"});
    let node = nodes(&fetched(&documents, &everything()), &everything()).remove(0);
    for dropped in [
        "AcpiRootBridgePxm",
        "F11BootMenu",
        "UsbBoot",
        "SerialNumber",
        "ServerName",
    ] {
        let key = format!("bios.setting.{dropped}");
        assert_eq!(node.bios.get(&key), Reading::Absent, "{dropped}");
    }
    let kept = node.bios.get("bios.setting.BootMode");
    assert_eq!(kept, Reading::Present("Uefi".into()));
    let registry = node.bios.get("bios.registry");
    let wanted = "BiosAttributeRegistryA43.v1_2_52";
    assert_eq!(registry, Reading::Present(wanted.into()));
}

const BIOS: &str = "/redfish/v1/systems/1/bios";
const REGISTRIES: &str = "/redfish/v1/Registries";

/// A node with a BIOS that names one registry, on a BMC that lists these registries with their own ids. The text of the
/// first one excludes the setting `UsbBoot`.
fn with_registries(named: &str, listed: &[(&str, &str)]) -> NodeReport {
    let mut documents = tree("hpe-dl325-ilo5");
    support::document(&mut documents, BIOS)["AttributeRegistry"] = json!(named);
    let root = support::document(&mut documents, "/redfish/v1");
    root["Registries"] = json!({"@odata.id": REGISTRIES});
    let mut put = |at: &str, value: Value| {
        let path = lattice_redfish::ResourcePath::parse(at).expect("a path");
        documents.0.insert(path, Reading::Present(value));
    };
    let links = listed.iter();
    let links = links.map(|(at, _)| json!({"@odata.id": format!("{REGISTRIES}/{at}")}));
    put(REGISTRIES, json!({"Members": links.collect::<Vec<_>>()}));
    for (rank, (at, own)) in listed.iter().enumerate() {
        let text = format!("/redfish/v1/registrystore/{rank}");
        let location = json!([{"Language": "en", "Uri": text}]);
        put(
            &format!("{REGISTRIES}/{at}"),
            json!({"Id": own, "Registry": own, "Location": location}),
        );
        let drops = if rank == 0 { "UsbBoot" } else { "BootMode" };
        let entries = json!([{"AttributeName": drops, "ReadOnly": true}]);
        put(
            &text,
            json!({"Id": own, "RegistryEntries": {"Attributes": entries}}),
        );
    }
    nodes(&fetched(&documents, &everything()), &everything()).remove(0)
}

#[test]
fn the_registry_is_found_however_its_version_is_written() {
    for (named, listed) in [
        // As on an iDRAC9: the version is raised in the BIOS only.
        (
            "BiosAttributeRegistry.v1_0_3",
            &[
                (
                    "BiosAttributeRegistry.v1_0_0",
                    "BiosAttributeRegistry.v1_0_0",
                ),
                (
                    "ManagerAttributeRegistry.v1_0_0",
                    "ManagerAttributeRegistry.v1_0_0",
                ),
                (
                    "NetworkAttributesRegistry_NIC.Slot.1-1-1.v1_0_0",
                    "NetworkAttributesRegistry_NIC.Slot.1-1-1.v1_0_0",
                ),
                ("BaseMessages", "Base.1.12"),
            ][..],
        ),
        // As on a Supermicro X14: listed without a version.
        (
            "BiosAttributeRegistry.v1_0_0",
            &[
                ("BiosAttributeRegistry", "BiosAttributeRegistry"),
                ("Base.v1_4_0", "Base.1.4.0"),
            ],
        ),
        // Only the registry's own id matches.
        (
            "BiosAttributeRegistry.v1_0_3",
            &[
                ("SystemAttributes", "BiosAttributeRegistry.v1_0_3"),
                ("ManagerAttributes", "ManagerAttributeRegistry.v1_0_3"),
            ],
        ),
        // Two versions, one of them with the id that the BIOS names.
        (
            "BiosAttributeRegistry.v1_0_3",
            &[
                (
                    "BiosAttributeRegistry.v1_0_9",
                    "BiosAttributeRegistry.v1_0_3",
                ),
                (
                    "BiosAttributeRegistry.v1_0_0",
                    "BiosAttributeRegistry.v1_0_0",
                ),
            ],
        ),
    ] {
        let node = with_registries(named, listed);
        assert!(
            matches!(node.bios.state(), ClassState::Complete { .. }),
            "{named}"
        );
        assert_eq!(
            node.bios.get("bios.registry"),
            Reading::Present(named.into())
        );
        assert_eq!(
            node.bios.get("bios.setting.UsbBoot"),
            Reading::Absent,
            "{listed:?}"
        );
        assert!(node.bios.get("bios.setting.BootMode").present().is_some());
    }
}

#[test]
fn ambiguous_registry_compares_no_setting() {
    let node = with_registries(
        "BiosAttributeRegistry.v1_0_3",
        &[
            (
                "BiosAttributeRegistry.v1_0_0",
                "BiosAttributeRegistry.v1_0_0",
            ),
            (
                "BiosAttributeRegistry.v1_0_1",
                "BiosAttributeRegistry.v1_0_1",
            ),
        ],
    );
    assert!(matches!(node.bios.state(), ClassState::Incomplete { .. }));
    assert!(!node.bios.get("bios.setting.names").is_known());
    // A BMC without such a registry reports that as before.
    let none = with_registries(
        "BiosAttributeRegistry.v1_0_3",
        &[("Base.v1_4_0", "Base.1.4.0")],
    );
    assert!(none.bios.get("bios.setting.UsbBoot").present().is_some());
}
