//! Selection of the baseline that applies.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use lattice_quorum_types::{
    Revision, UnixMillis,
    baseline::{BaselineDefinition, CohortSelector},
};

pub(crate) fn firmware(version: &str) -> Rule {
    Rule::Partial {
        constraints: vec![baseline::Constraint {
            key: "nic.*.firmware".to_owned(),
            any_of: vec![Scalar::Text(version.to_owned())],
            or_absent: false,
        }],
    }
}

fn record(name: &str, nodes: &str, cohort: Option<CohortSelector>, class: &str) -> Baseline {
    let rule = ClassRule {
        policy: DriftPolicy::Warn,
        sensitive: SensitivePolicy::Strict,
        rule: firmware("28"),
    };
    Baseline {
        name: BaselineName::new(name).unwrap(),
        version: 1,
        definition: BaselineDefinition {
            description: String::new(),
            nodes: nodes.to_owned(),
            cohort,
            classes: BTreeMap::from([(class.to_owned(), rule)]),
        },
        by: "olga".to_owned(),
        at: UnixMillis(0),
        revision: Revision(1),
        bytes: 1,
    }
}

fn product(count: Option<u32>) -> Option<CohortSelector> {
    Some(CohortSelector {
        product: Some("XE9680".to_owned()),
        gpu_count: count,
        ..CohortSelector::default()
    })
}

fn vendor() -> Option<CohortSelector> {
    Some(CohortSelector {
        vendor: Some("Dell Inc.".to_owned()),
        ..CohortSelector::default()
    })
}

fn cohort() -> CohortKey {
    CohortKey {
        vendor: Some("Dell Inc.".to_owned()),
        product: Some("XE9680".to_owned()),
        gpu_model: Some("H100".to_owned()),
        gpu_count: Some(8),
    }
}

fn speaks(baselines: &Baselines, node: &str, cohort: Option<&CohortKey>) -> String {
    let node = NodeId::new(node).unwrap();
    match baselines.choose_for(&node, cohort).get(&Class::Nic) {
        None => "none".to_owned(),
        Some(BaselineChoice::One(kept)) => kept.record.name.to_string(),
        Some(BaselineChoice::Ambiguous(both)) => {
            let names: Vec<_> = both.iter().map(|k| k.record.name.to_string()).collect();
            format!("ambiguous: {}", names.join(" "))
        }
    }
}

#[test]
fn a_name_goes_before_a_cohort_and_more_parts_before_fewer() {
    let mut baselines = Baselines::default();
    baselines.replace(vec![
        record("a-few", "gpu[001-002]", None, "nic"),
        record("cohort", "", product(None), "nic"),
        record("narrow", "", product(Some(8)), "nic"),
        record("others", "", product(Some(4)), "nic"),
        record("bios", "gpu003", None, "bios"),
    ]);
    let cohort = cohort();
    assert_eq!(speaks(&baselines, "gpu001", Some(&cohort)), "a-few");
    assert_eq!(speaks(&baselines, "gpu003", Some(&cohort)), "narrow");
    assert_eq!(speaks(&baselines, "gpu003", None), "none");
    assert_eq!(speaks(&baselines, "gpu001", None), "a-few");
    let before = baselines.generation;
    baselines.remove(&BaselineName::new("narrow").unwrap());
    assert_eq!(speaks(&baselines, "gpu003", Some(&cohort)), "cohort");
    assert!(baselines.generation > before);
}

#[test]
fn where_two_of_a_rank_meet_neither_speaks() {
    let mut baselines = Baselines::default();
    baselines.replace(vec![
        record("dell", "", vendor(), "nic"),
        record("xe", "", product(None), "nic"),
        record("named", "gpu009", None, "nic"),
    ]);
    let cohort = cohort();
    assert_eq!(
        speaks(&baselines, "gpu001", Some(&cohort)),
        "ambiguous: dell xe"
    );
    assert_eq!(speaks(&baselines, "gpu009", Some(&cohort)), "named");
}

#[test]
fn reports_unreadable_rule() {
    let mut damaged = record("x", "gpu001", None, "nic");
    let rule = damaged.definition.classes.get_mut("nic").unwrap();
    rule.rule = Rule::Exact {
        schema: 1,
        digest: [1; 32],
        preimage: b"LCR1".to_vec().into(),
    };
    let kept = ParsedBaseline::new(damaged);
    assert!(kept.classes()[&Class::Nic].expectation.is_err());
    let kept = ParsedBaseline::new(record("x", "gpu001", None, "flux"));
    assert_eq!(kept.unknown_classes, ["flux"]);
}
