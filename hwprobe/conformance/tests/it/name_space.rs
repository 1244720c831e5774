//! Settings of two BIOS generations are one difference, not four hundred.

use lattice_conformance::{
    Class, ClassRecord, CohortKey, Digest, KeyVerdict, NodeView, Reading, diff, drift,
};
use std::collections::BTreeMap;

/// A record with BIOS settings under an attribute registry.
fn record(registry: Reading<&str>, settings: &[(&str, &str)]) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Bios);
    record.require("bios.registry", registry);
    let names: Vec<String> = settings
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    record.require("bios.setting.names", Reading::Present(names));
    for (name, value) in settings {
        record.require(format!("bios.setting.{name}"), Reading::Present(*value));
    }
    record
}

fn keys(left: &ClassRecord, right: &ClassRecord) -> Vec<(String, KeyVerdict)> {
    let found = diff(left, right).into_iter();
    found.map(|one| (one.key, one.verdict)).collect()
}

#[test]
fn settings_of_one_registry_differ_key_by_key() {
    let old = record(
        Reading::Present("A43.v1"),
        &[("Smt", "On"), ("Numa", "NPS1")],
    );
    let new = record(
        Reading::Present("A43.v1"),
        &[("Smt", "Off"), ("Iommu", "On")],
    );
    let differs = |key: &str| (key.to_owned(), KeyVerdict::Differs);
    // A setting missing from a complete record is absent there, not unknown.
    let wanted = [
        differs("bios.setting.Iommu"),
        differs("bios.setting.Numa"),
        differs("bios.setting.Smt"),
        differs("bios.setting.names"),
    ];
    assert_eq!(keys(&old, &new), wanted);
}

#[test]
fn settings_of_two_registries_are_the_one_difference_of_the_registry() {
    let old = record(
        Reading::Present("A43.v1"),
        &[("Smt", "On"), ("Numa", "NPS1")],
    );
    let new = record(Reading::Present("A43.v2"), &[("Smt", "Off")]);
    let wanted = [("bios.registry".to_owned(), KeyVerdict::Differs)];
    assert_eq!(keys(&old, &new), wanted);
}

#[test]
fn settings_without_registry_compare() {
    let mut old = record(Reading::Absent, &[("Smt", "On")]);
    let mut new = record(Reading::Absent, &[("Smt", "Off")]);
    let wanted = [("bios.setting.Smt".to_owned(), KeyVerdict::Differs)];
    assert_eq!(keys(&old, &new), wanted);
    // The kernel provides settings without any registry.
    for record in [&mut old, &mut new] {
        record.entries.remove("bios.registry");
        record.required.remove("bios.registry");
    }
    assert_eq!(keys(&old, &new), wanted);
}

#[test]
fn under_an_unknown_registry_settings_are_neither_equal_nor_different() {
    let old = record(Reading::Present("A43.v1"), &[("Smt", "On")]);
    let unread = record(Reading::Timeout { after_ms: 5000 }, &[("Smt", "Off")]);
    let wanted = [("bios.registry".to_owned(), KeyVerdict::Unknown)];
    assert_eq!(keys(&old, &unread), wanted);
}

#[test]
fn a_node_of_another_bios_generation_drifts_in_its_registry_alone() {
    let cohort = CohortKey {
        vendor: Some("HPE".to_owned()),
        product: Some("DL325".to_owned()),
        gpu_model: None,
        gpu_count: Some(0),
    };
    let like = record(
        Reading::Present("A43.v1"),
        &[("Smt", "On"), ("Numa", "NPS1")],
    );
    let set = record(
        Reading::Present("A43.v1"),
        &[("Smt", "Off"), ("Numa", "NPS1")],
    );
    let newer = record(
        Reading::Present("A43.v2"),
        &[("Smt", "Off"), ("Numa", "NPS4")],
    );
    let mut records: BTreeMap<Digest, ClassRecord> = BTreeMap::new();
    let mut nodes = Vec::new();
    for (name, record) in [
        ("a", &like),
        ("b", &like),
        ("c", &like),
        ("d", &set),
        ("e", &newer),
    ] {
        let mark = record.state().mark();
        records.extend(mark.digest().map(|digest| (digest, record.clone())));
        nodes.push(NodeView {
            node: name.to_owned(),
            cohort: Some(cohort.clone()),
            classes: [(Class::Bios, mark)].into(),
            earlier: BTreeMap::new(),
        });
    }
    let report = drift(&nodes, &|digest: &Digest| records.get(digest).cloned());
    let found: Vec<(&str, &str)> = report
        .drifts
        .iter()
        .map(|drift| (drift.node.as_str(), drift.key.as_str()))
        .collect();
    assert_eq!(found, [("d", "bios.setting.Smt"), ("e", "bios.registry")]);
    assert!(report.no_majority.is_empty());
}
