//! Drift detection: the reference of each node, and the effects.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::BaseView;
use crate::testing;
use lattice_conformance::{ClassRecord, Digest, Identity, NodeDocument, Reading};
use lattice_placement::ConformanceKey;
use lattice_quorum_types::UnixMillis;
use lattice_quorum_types::{
    Revision,
    baseline::{Baseline, BaselineDefinition, ClassRule, CohortSelector, Constraint, Rule, Scalar},
    node::Lifecycle,
};

fn nic(firmware: &str, driver: &str) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.count", Reading::Present(1u32));
    record.put("nic.0.firmware", Reading::Present(firmware));
    record.put("nic.0.driver", Reading::Present(driver));
    record
}

/// Nodes of one cohort with these records, and the baselines.
struct Fleet {
    view: View,
    records: BTreeMap<Digest, ClassRecord>,
}

impl Fleet {
    fn new(nodes: &[(&str, Option<ClassRecord>)], baselines: Vec<Baseline>) -> Self {
        let mut records = BTreeMap::new();
        let entries = nodes.iter().map(|(name, record)| {
            let mut entry = testing::entry(name);
            let mark = record
                .as_ref()
                .map_or(ClassMark::Incomplete, |r| r.state().mark());
            if let (Some(digest), Some(record)) = (mark.digest(), record) {
                records.insert(digest, record.clone());
            }
            entry
                .gossip
                .as_mut()
                .unwrap()
                .marks
                .insert(Class::Nic, mark);
            testing::settle(&mut entry, UnixMillis(7_000));
            entry.document = Some(Arc::new(NodeDocument {
                version: 1,
                node: (*name).to_owned(),
                topology_group: None,
                identity: Identity {
                    vendor: Reading::Present("Dell Inc.".to_owned()),
                    product: Reading::Present("XE9680".to_owned()),
                    gpu_model: Reading::Absent,
                    gpu_count: Reading::Absent,
                    ..Identity::default()
                },
                resources: Default::default(),
            }));
            (entry.id.clone(), Arc::new(entry))
        });
        let mut view = View::from(BaseView {
            nodes: Arc::new(entries.collect()),
            ..BaseView::default()
        });
        Arc::make_mut(&mut view.baselines).replace(baselines);
        Self { view, records }
    }

    fn judge(&self) -> ComparisonResult {
        compare(&self.view, &|digest: &Digest| {
            self.records.get(digest).cloned()
        })
    }
}

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn rule(policy: DriftPolicy, rule: Rule) -> ClassRule {
    ClassRule {
        policy,
        sensitive: SensitivePolicy::Strict,
        rule,
    }
}

fn exact(record: &ClassRecord) -> Rule {
    Rule::Exact {
        schema: record.schema,
        digest: record.state().digest().unwrap().0,
        preimage: record.encode().into(),
    }
}

fn firmware(version: &str) -> Rule {
    Rule::Partial {
        constraints: vec![Constraint {
            key: "nic.*.firmware".to_owned(),
            any_of: vec![Scalar::Text(version.to_owned())],
            or_absent: false,
        }],
    }
}

fn baseline(name: &str, nodes: &str, of: ClassRule) -> Baseline {
    Baseline {
        name: BaselineName::new(name).unwrap(),
        version: 3,
        definition: BaselineDefinition {
            nodes: nodes.to_owned(),
            classes: BTreeMap::from([("nic".to_owned(), of)]),
            ..BaselineDefinition::default()
        },
        by: "olga".to_owned(),
        at: UnixMillis(0),
        revision: Revision(1),
        bytes: 1,
    }
}

fn rows_of(judged: &ComparisonResult) -> Vec<(String, String, String, String)> {
    let drifted = judged.report.drifted.iter();
    drifted
        .map(|d| {
            let by = match &d.by {
                DriftReference::Cohort { of, like } => format!("cohort {like}/{of}"),
                DriftReference::Baseline { name, version, .. } => format!("{name} v{version}"),
            };
            (d.node.to_string(), d.key.clone(), d.found.clone(), by)
        })
        .collect()
}

fn row(node: &str, key: &str, found: &str, by: &str) -> (String, String, String, String) {
    (
        node.to_owned(),
        key.to_owned(),
        found.to_owned(),
        by.to_owned(),
    )
}

#[test]
fn a_baseline_goes_before_the_cohort_and_speaks_only_for_its_nodes() {
    let like = || Some(nic("28.41", "mlx5"));
    let old = || Some(nic("28.39", "mlx5"));
    let nodes = [
        ("a", like()),
        ("b", like()),
        ("c", like()),
        ("d", old()),
        ("e", old()),
    ];
    let without = Fleet::new(&nodes, Vec::new()).judge();
    assert_eq!(
        rows_of(&without),
        [
            row("d", "nic.0.firmware", "28.39", "cohort 3/5"),
            row("e", "nic.0.firmware", "28.39", "cohort 3/5")
        ]
    );
    assert_eq!(without.report.drifted[0].since, Some(UnixMillis(7_000)));
    assert!(without.effects.is_empty());
    // The baseline of these nodes expects the older firmware, so `a` of them differs.
    let of = rule(DriftPolicy::Warn, exact(&nic("28.39", "mlx5")));
    let with = Fleet::new(&nodes, vec![baseline("old", "a,d,e", of)]).judge();
    assert_eq!(
        rows_of(&with),
        [row("a", "nic.0.firmware", "28.41", "old v3")]
    );
    let judged = &with.report.judged[&BaselineName::new("old").unwrap()];
    assert_eq!(judged.len(), 3);
}

#[test]
fn a_partial_baseline_leaves_the_rest_to_the_cohort() {
    let like = || Some(nic("28.41", "mlx5"));
    let nodes = [
        ("a", like()),
        ("b", like()),
        ("c", like()),
        ("d", Some(nic("28.39", "other"))),
    ];
    let of = rule(DriftPolicy::Warn, firmware("28.39"));
    let judged = Fleet::new(&nodes, vec![baseline("fw", "c,d", of)]).judge();
    assert_eq!(
        rows_of(&judged),
        [
            row("c", "nic.0.firmware", "28.41", "fw v3"),
            row("d", "nic.0.driver", "other", "cohort 3/4")
        ]
    );
}

#[test]
fn what_follows_is_as_far_as_the_policy_goes() {
    let nodes = [
        ("a", Some(nic("28.41", "x"))),
        ("b", Some(nic("28.39", "x"))),
    ];
    let effect = |policy, node: &str| {
        let of = rule(policy, firmware("28.41"));
        let fleet = Fleet::new(&nodes, vec![baseline("fw", "a,b", of)]);
        BaselineEffect::clone(&fleet.judge().effects[&id(node)])
    };
    for policy in [
        DriftPolicy::Warn,
        DriftPolicy::Deprioritise,
        DriftPolicy::Drain,
    ] {
        let conforms = effect(policy, "a");
        assert!(conforms.no_sensitive.is_none() && !conforms.deprioritised);
        assert!(conforms.drain.is_none());
        let differs = effect(policy, "b");
        let why = differs.no_sensitive.unwrap();
        assert_eq!(
            why,
            "it differs from baseline fw v3: nic.0.firmware is 28.39, not 28.41"
        );
        assert_eq!(differs.deprioritised, policy >= DriftPolicy::Deprioritise);
        assert_eq!(differs.drain.is_some(), policy == DriftPolicy::Drain);
    }
}

#[test]
fn sensitive_job_avoids_unknown_without_drain() {
    let nodes = [("a", None), ("b", Some(nic("28.41", "x")))];
    let of = rule(DriftPolicy::Drain, firmware("28.41"));
    let mut fleet = Fleet::new(&nodes, vec![baseline("fw", "a,b", of)]);
    let judged = fleet.judge();
    assert!(judged.report.drifted.is_empty());
    assert_eq!(judged.report.unknown.len(), 1);
    let effect = &judged.effects[&id("a")];
    assert!(effect.drain.is_none() && effect.drain_unknown && !effect.deprioritised);
    assert!(
        effect
            .no_sensitive
            .as_ref()
            .unwrap()
            .contains("cannot be checked")
    );
    // The record of the digest is not fetched yet.
    fleet.records.clear();
    let judged = fleet.judge();
    assert!(judged.effects[&id("b")].no_sensitive.is_some());
    assert!(judged.report.drifted.is_empty());
}

#[test]
fn a_class_that_sensitive_work_ignores_keeps_nothing_away() {
    let nodes = [("a", Some(nic("28.39", "x")))];
    let mut of = rule(DriftPolicy::Warn, firmware("28.41"));
    of.sensitive = SensitivePolicy::Ignore;
    let judged = Fleet::new(&nodes, vec![baseline("fw", "a", of)]).judge();
    assert!(judged.effects[&id("a")].no_sensitive.is_none());
    assert_eq!(judged.report.drifted.len(), 1);
}

#[test]
fn unknown_cohort_blocks_sensitive_job_where_relevant() {
    let nodes = [("a", Some(nic("28.41", "x")))];
    let mut cohort = baseline("fw", "", rule(DriftPolicy::Warn, firmware("28.41")));
    cohort.definition.cohort = Some(CohortSelector {
        product: Some("XE9680".to_owned()),
        ..CohortSelector::default()
    });
    let mut fleet = Fleet::new(&nodes, vec![cohort]);
    assert!(fleet.judge().effects[&id("a")].no_sensitive.is_none());
    let nodes = Arc::make_mut(&mut fleet.view.nodes);
    Arc::make_mut(nodes.get_mut(&id("a")).unwrap()).document = None;
    let why = fleet.judge().effects[&id("a")]
        .no_sensitive
        .clone()
        .unwrap();
    assert!(why.contains("its baseline is unknown"), "{why}");
}

#[test]
fn unreadable_cohort_may_have_draining_baseline() {
    let nodes = [("a", Some(nic("28.41", "x")))];
    for policy in [DriftPolicy::Warn, DriftPolicy::Drain] {
        let mut cohort = baseline("fw", "", rule(policy, firmware("28.41")));
        cohort.definition.cohort = Some(CohortSelector {
            product: Some("XE9680".to_owned()),
            ..CohortSelector::default()
        });
        let mut fleet = Fleet::new(&nodes, vec![cohort]);
        assert!(!fleet.judge().effects[&id("a")].drain_unknown);
        // The driver did not load: the document reports an unknown number of GPUs.
        let nodes = Arc::make_mut(&mut fleet.view.nodes);
        let entry = Arc::make_mut(nodes.get_mut(&id("a")).unwrap());
        let document = Arc::make_mut(entry.document.as_mut().unwrap());
        document.identity.gpu_count = Reading::failed("no driver library");
        let effect = fleet.judge().effects[&id("a")].clone();
        assert_eq!(effect.drain_unknown, policy == DriftPolicy::Drain);
        assert_eq!(effect.drain, None, "unknown is not different");
    }
}

#[test]
fn placement_sees_what_follows() {
    let mut entry = testing::entry("a");
    let digest = Digest([1; 32]);
    let mark = ClassMark::Complete { schema: 1, digest };
    entry
        .gossip
        .as_mut()
        .unwrap()
        .marks
        .insert(Class::Nic, mark);
    testing::settle(&mut entry, UnixMillis(1));
    assert!(matches!(
        entry.facts().conformance,
        ConformanceKey::Known(_)
    ));
    entry.baseline_effect = Some(Arc::new(BaselineEffect {
        no_sensitive: Some("it differs".to_owned()),
        deprioritised: true,
        ..BaselineEffect::default()
    }));
    testing::settle(&mut entry, UnixMillis(1));
    let facts = entry.facts();
    assert_eq!(facts.conformance, ConformanceKey::Unknown);
    assert!(facts.deprioritised);
    assert_eq!(
        facts.health,
        testing::entry("a").facts().health,
        "its health is another matter"
    );
}

#[test]
fn what_was_judged_on_something_else_does_not_count_as_judged() {
    let nodes = [("a", Some(nic("28.41", "x")))];
    let of = || rule(DriftPolicy::Warn, firmware("28.41"));
    let mut fleet = Fleet::new(&nodes, vec![baseline("fw", "a", of())]);
    let effect = fleet.judge().effects[&id("a")].clone();
    let entry = |view: &View| NodeEntry::clone(view.node(&id("a")).unwrap());
    let mut judged = entry(&fleet.view);
    assert!(!fleet.view.is_judged(&judged), "not yet");
    judged.baseline_effect = Some(effect);
    assert!(fleet.view.is_judged(&judged));
    let mut other = judged.clone();
    other
        .gossip
        .as_mut()
        .unwrap()
        .marks
        .insert(Class::Nic, ClassMark::Incomplete);
    testing::settle(&mut other, UnixMillis(1));
    assert!(
        !fleet.view.is_judged(&other),
        "the node publishes another mark now"
    );
    Arc::make_mut(&mut fleet.view.baselines).set(baseline("fw", "a", of()));
    assert!(
        !fleet.view.is_judged(&judged),
        "it is meant to be something else by now"
    );
}

/// The record as an agent of another schema writes it.
fn of_schema(schema: u16, mut record: ClassRecord) -> ClassRecord {
    record.schema = schema;
    record
}

/// Effects for nodes `a` and `b` with the same record, where one of them publishes different marks.
fn odd_one_out(
    odd: &str,
    record: &ClassRecord,
    baseline_of: &ClassRecord,
    says: impl Fn(&mut crate::GossipedNode, bool),
) -> BTreeMap<String, BaselineEffect> {
    let nodes = [("a", Some(record.clone())), ("b", Some(record.clone()))];
    let of = rule(DriftPolicy::Drain, exact(baseline_of));
    let mut fleet = Fleet::new(&nodes, vec![baseline("fw", "a,b", of)]);
    let before = of_schema(1, record.clone());
    for record in [before, baseline_of.clone()] {
        let digest = record.state().digest().unwrap();
        fleet.records.insert(digest, record);
    }
    for (name, node) in Arc::make_mut(&mut fleet.view.nodes) {
        let entry = Arc::make_mut(node);
        says(entry.gossip.as_mut().unwrap(), name.as_str() == odd);
        testing::settle(entry, UnixMillis(7_000));
    }
    let effects = fleet.judge().effects.into_iter();
    effects
        .map(|(name, effect)| (name.to_string(), BaselineEffect::clone(&effect)))
        .collect()
}

#[test]
fn mark_extension_affects_only_its_node() {
    let meant = nic("28.41", "x");
    let found = nic("28.39", "x");
    let meant_before = of_schema(1, meant.clone());
    let found_before = of_schema(1, found.clone());
    let beside = |record: &ClassRecord| EarlierDigest {
        schema: record.schema,
        digest: record.state().digest().unwrap(),
    };
    for (odd, honest) in [("a", "b"), ("b", "a")] {
        // One node publishes its own schema a second time, with the expected digest.
        let effects = odd_one_out(odd, &found, &meant, |seen, is_odd| {
            let said = is_odd.then(|| (Class::Nic, beside(&meant)));
            seen.earlier.extend(said);
        });
        for (name, effect) in &effects {
            assert!(effect.drain.is_some(), "{odd} is odd, {name}: {effect:?}");
            assert!(effect.no_sensitive.is_some());
        }
        // During an upgrade: one node publishes the expected record as its earlier mark, the other its actual one.
        let effects = odd_one_out(odd, &found, &meant_before, |seen, is_odd| {
            let said = if is_odd { &meant_before } else { &found };
            let said = beside(&of_schema(1, said.clone()));
            seen.earlier.insert(Class::Nic, said);
        });
        assert_eq!(effects[odd].drain, None, "it is taken at its word");
        assert!(effects[honest].drain.is_some(), "{odd} is odd");
        // One node publishes a digest without a preimage.
        let effects = odd_one_out(odd, &meant, &meant_before, |seen, is_odd| {
            let mut said = beside(&meant_before);
            if is_odd {
                said.digest = Digest([9; 32]);
            }
            seen.earlier.insert(Class::Nic, said);
        });
        let why = effects[odd].no_sensitive.as_ref().unwrap();
        assert!(why.contains("preimage not at hand"), "{why}");
        assert_eq!(effects[honest].no_sensitive, None, "{odd} is odd");
        // One node publishes its record under a schema that the record does not have.
        let effects = odd_one_out(odd, &found_before, &meant_before, |seen, is_odd| {
            if is_odd {
                let digest = found_before.state().digest().unwrap();
                let mark = ClassMark::Complete { schema: 0, digest };
                seen.marks.insert(Class::Nic, mark);
            }
        });
        assert!(effects[honest].drain.is_some());
    }
}

#[test]
fn down_node_keeps_its_place() {
    let like = || Some(nic("28.41", "mlx5"));
    let nodes = [
        ("a", like()),
        ("b", like()),
        ("c", like()),
        ("d", Some(nic("28.39", "mlx5"))),
    ];
    let of = rule(DriftPolicy::Drain, firmware("28.41"));
    for baselines in [Vec::new(), vec![baseline("fw", "a,d", of)]] {
        let mut fleet = Fleet::new(&nodes, baselines);
        let before = fleet.judge();
        assert_eq!(before.report.drifted.len(), 1);
        let entries = Arc::make_mut(&mut fleet.view.nodes);
        let entry = Arc::make_mut(entries.get_mut(&id("d")).unwrap());
        entry.leave();
        testing::settle(entry, UnixMillis(1));
        let after = fleet.judge();
        assert_eq!(after.report.drifted, before.report.drifted);
        assert!(!after.effects.contains_key(&id("d")));
        assert!(after.report.compared.contains(&id("d")));
        // The node counts until it is retired.
        let entries = Arc::make_mut(&mut fleet.view.nodes);
        let entry = Arc::make_mut(entries.get_mut(&id("d")).unwrap());
        entry.record.as_mut().unwrap().lifecycle = Lifecycle::Retired;
        assert_eq!(fleet.judge().report.drifted, []);
    }
}

#[test]
fn what_is_not_known_yet_is_no_zero() {
    let like = || Some(nic("28.41", "mlx5"));
    let names = ["a", "b", "c", "d"];
    let mut fleet = Fleet::new(&names.map(|name| (name, like())), Vec::new());
    assert_eq!(fleet.view.drifted_keys(&id("a")), None, "not compared yet");
    let judge = |fleet: &mut Fleet| fleet.view.cluster_drift = Arc::new(fleet.judge().report);
    judge(&mut fleet);
    assert_eq!(fleet.view.drifted_keys(&id("a")), Some(0));
    // A node that was never seen, and a node with a document still to be fetched, have no known data.
    let entries = Arc::make_mut(&mut fleet.view.nodes);
    let mut silent = testing::entry("e");
    silent.gossip = None;
    entries.insert(id("e"), Arc::new(silent));
    let entry = Arc::make_mut(entries.get_mut(&id("d")).unwrap());
    entry.document = None;
    entry.gossip.as_mut().unwrap().document = Some(Digest([3; 32]));
    judge(&mut fleet);
    let report = &fleet.view.cluster_drift;
    assert_eq!(report.pending, BTreeSet::from([id("d"), id("e")]));
    assert_eq!(report.alone, ["a", "b", "c"], "three are no cohort");
    for name in ["a", "d", "e"] {
        assert_eq!(fleet.view.drifted_keys(&id(name)), None, "{name}");
    }
}

#[test]
fn a_class_of_which_nothing_is_known_is_no_zero_either() {
    let like = || Some(nic("28.41", "mlx5"));
    let differs = Some(nic("28.39", "mlx5"));
    let nodes = [
        ("a", like()),
        ("b", like()),
        ("c", like()),
        ("d", differs),
        ("e", None),
    ];
    let of = rule(DriftPolicy::Warn, firmware("28.41"));
    for baselines in [Vec::new(), vec![baseline("fw", "a,d,e", of)]] {
        let mut fleet = Fleet::new(&nodes, baselines);
        // A second class of a drifted node is unknown, which does not reduce the known drift.
        let entries = Arc::make_mut(&mut fleet.view.nodes);
        let entry = Arc::make_mut(entries.get_mut(&id("d")).unwrap());
        let marks = &mut entry.gossip.as_mut().unwrap().marks;
        marks.insert(Class::Bios, ClassMark::Incomplete);
        testing::settle(entry, UnixMillis(1));
        fleet.view.cluster_drift = Arc::new(fleet.judge().report);
        let report = &fleet.view.cluster_drift;
        assert!(report.unknown.iter().any(|u| u.node == id("e")));
        assert!(report.pending.is_empty() && report.compared.contains(&id("e")));
        assert_eq!(fleet.view.drifted_keys(&id("e")), None);
        assert_eq!(fleet.view.drifted_keys(&id("d")), Some(1));
    }
    // Where everything is known, the count is zero.
    let fleet = Fleet::new(&nodes[..4], Vec::new());
    let mut view = fleet.view.clone();
    view.cluster_drift = Arc::new(fleet.judge().report);
    assert_eq!(view.drifted_keys(&id("a")), Some(0));
}
