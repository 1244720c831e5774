//! BIOS settings in every form that BMCs write: in `Attributes`, directly in the resource, in groups, and damaged.

use crate::field_content::{BIOS, SYSTEM, bmc, missing, node, put, text};
use crate::support::document;
use lattice_conformance::Reading;
use lattice_redfish::{Documents, NodeReport};
use serde_json::{Value, json};

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

/// An iLO 4 has versions under `Bios`, and links to BIOS and secure boot in its own part of the system.
#[test]
fn links_in_the_part_of_a_vendor_are_followed() {
    let secure_boot = format!("{SYSTEM}/SecureBoot");
    let bios_of = |part: &Value, changed: &[(&str, Value)], is_secure: bool| {
        let mut documents = direct_settings(changed);
        let system = document(&mut documents, SYSTEM);
        system["Bios"] = json!({"Current": {"VersionString": "I36 v2.40 (02/17/2017)"}});
        system["Oem"] = json!({"Hp": part});
        let state = json!({
            "@odata.id": secure_boot,
            "@odata.type": "#HpSecureBoot.1.0.0.HpSecureBoot",
            "SecureBootCurrentState": is_secure,
        });
        put(&mut documents, &secure_boot, Reading::Present(state));
        node(&documents).bios
    };
    let (bios, boot) = (format!("{BIOS}/"), format!("{secure_boot}/"));
    for part in [
        json!({"Bios": {"Current": {}}, "links": {"BIOS": {"href": bios}, "SecureBoot": {"href": boot}}}),
        json!({"Links": {"BIOS": {"@odata.id": bios}, "SecureBoot": {"@odata.id": boot}}}),
        json!({"BIOS": {"@odata.id": bios}, "SecureBoot": {"@odata.id": boot}}),
    ] {
        let before = bios_of(&part, &[], false);
        assert_eq!(
            text(&before, "bios.setting.names"),
            "ProcHyperthreading SubNumaClustering WorkloadProfile",
            "{part}"
        );
        assert_eq!(text(&before, "bios.redfish.secure_boot"), "no", "{part}");
        assert_eq!(missing(&before), Vec::<String>::new(), "{part}");
        let other = bios_of(&part, &[("ProcHyperthreading", json!("Disabled"))], false);
        assert_ne!(other.state().digest(), before.state().digest(), "{part}");
        let other = bios_of(&part, &[], true);
        assert_ne!(other.state().digest(), before.state().digest(), "{part}");
    }
    let elsewhere = json!({"links": {"BIOS": {"href": "/rest/v1/systems/1/bios"}}});
    let unknown = bios_of(&elsewhere, &[], false);
    assert_eq!(missing(&unknown), ["bios.registry", "bios.setting.names"]);
}

/// A BIOS with some of its settings in groups.
fn grouped(changed: &[(&str, Value)]) -> NodeReport {
    let mut all = vec![
        (
            "Processor",
            json!({"@odata.id": format!("{BIOS}#/Processor"), "Cores": {"Active": 32},
                   "ProcHyperthreading": "Enabled"}),
        ),
        ("Targets", json!(["Hd", {"Kind": "Usb", "Slot": null}])),
        (
            "Oem",
            json!({"Hpe": {"@odata.type": "#HpeBios.v1_0_0.HpeBios", "Mode": true}}),
        ),
    ];
    all.extend(changed.iter().cloned());
    node(&direct_settings(&all))
}

#[test]
fn settings_in_groups_are_compared() {
    let before = grouped(&[]);
    let names = text(&before.bios, "bios.setting.names");
    assert_eq!(
        names,
        "Oem_Hpe_Mode ProcHyperthreading Processor_Cores_Active Processor_ProcHyperthreading \
         SubNumaClustering Targets_0 Targets_1_Kind Targets_1_Slot WorkloadProfile"
    );
    assert_eq!(missing(&before.bios), Vec::<String>::new());
    for other in [
        (
            "Processor",
            json!({"Cores": {"Active": 32}, "ProcHyperthreading": "Disabled"}),
        ),
        (
            "Processor",
            json!({"Cores": {"Active": 16}, "ProcHyperthreading": "Enabled"}),
        ),
        ("Processor", json!({"ProcHyperthreading": "Enabled"})),
        ("Targets", json!([{"Kind": "Usb", "Slot": null}, "Hd"])),
        ("Targets", json!(["Hd", {"Kind": "Usb", "Slot": 1}])),
        ("Targets", json!(["Hd"])),
        ("Oem", json!({"Hpe": {"Mode": false}})),
        ("Memory", json!({"Speed": "Auto"})),
        // The name of a group with its setting is another setting than one with a dot.
        ("Processor.Cores.Active", json!(32)),
    ] {
        let after = grouped(std::slice::from_ref(&other));
        let digest = after.bios.state().digest();
        assert!(digest.is_some(), "{other:?}");
        assert_ne!(digest, before.bios.state().digest(), "{other:?}");
    }
    // Links and annotations of a group are not settings, nor are those of one host.
    for same in [
        (
            "Processor",
            json!({"@odata.id": "x", "Cores": {"Active": 32}, "ProcHyperthreading": "Enabled"}),
        ),
        (
            "Asset",
            json!({"SerialNumber": "CASE000007", "AdminPassword": "x"}),
        ),
        ("Empty", json!({"Inner": {}, "List": []})),
    ] {
        let after = grouped(std::slice::from_ref(&same));
        assert_eq!(after.bios.state(), before.bios.state(), "{same:?}");
    }
}

#[test]
fn groups_within_attributes_are_compared() {
    let digest = |active: u64| {
        let mut documents = bmc();
        document(&mut documents, BIOS)["Attributes"]["Processor"] = json!({
            "Cores": {"current_value": active, "default_value": 0},
            "ProcHyperthreading": "Enabled",
        });
        // The registry excludes the setting by its own name.
        let registry = "/redfish/v1/registrystore/registries/en/biosattributeregistrya1.v1_0_0";
        let entries = &mut document(&mut documents, registry)["RegistryEntries"]["Attributes"];
        entries[0]["ReadOnly"] = json!(true);
        let node = node(&documents);
        let names = text(&node.bios, "bios.setting.names");
        assert_eq!(names, "Processor_Cores SubNumaClustering WorkloadProfile");
        node.bios.state().digest()
    };
    assert!(digest(32).is_some());
    assert_ne!(digest(32), digest(16));
}

#[test]
fn endless_groups_of_settings_are_refused() {
    let wide: Value = (0..5000).map(|at| json!(at)).collect();
    let deep = (0..120).fold(
        json!(1),
        |inner, _| json!({"a_long_name_of_a_group": inner}),
    );
    for (value, words) in [(wide, "more than 4096 settings"), (deep, "a group name of")] {
        let node = node(&direct_settings(&[("Group", value)]));
        let names = text(&node.bios, "bios.setting.names");
        assert!(names.contains(words), "{names}");
    }
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
