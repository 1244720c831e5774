//! Baselines: versions, limits, permissions, and rejection of ambiguous ones.

use crate::common::{Cluster, envelope, principal};
use lattice_quorum_state::State;
use lattice_quorum_types::{
    Applied, Command, Outcome, Refusal,
    audit::{AuditAction, verify_chain},
    baseline::{
        BaselineDefinition, ClassRule, CohortSelector, Constraint, DriftPolicy, MAX_BYTES,
        MAX_TOTAL_BYTES, MAX_VERSIONS, Rule, Scalar, SensitivePolicy,
    },
    command::{Fence, Privilege},
    event::EventKind,
    id::{BaselineName, LeaseName},
    view::{Answer, Query},
};
use std::collections::BTreeMap;

fn name(text: &str) -> BaselineName {
    BaselineName::new(text).unwrap()
}

fn rule(rule: Rule) -> ClassRule {
    ClassRule {
        policy: DriftPolicy::Warn,
        sensitive: SensitivePolicy::Strict,
        rule,
    }
}

fn firmware(version: &str) -> ClassRule {
    rule(Rule::Partial {
        constraints: vec![Constraint {
            key: "nic.*.firmware".to_owned(),
            any_of: vec![Scalar::Text(version.to_owned())],
            or_absent: false,
        }],
    })
}

fn exact(bytes: usize, fill: u8) -> ClassRule {
    rule(Rule::Exact {
        schema: 1,
        digest: [fill; 32],
        preimage: vec![fill; bytes].into(),
    })
}

fn of(nodes: &str, class: &str, rule: ClassRule) -> BaselineDefinition {
    BaselineDefinition {
        nodes: nodes.to_owned(),
        classes: BTreeMap::from([(class.to_owned(), rule)]),
        ..BaselineDefinition::default()
    }
}

fn of_cohort(product: &str, count: Option<u32>) -> BaselineDefinition {
    BaselineDefinition {
        cohort: Some(CohortSelector {
            product: Some(product.to_owned()),
            gpu_count: count,
            ..CohortSelector::default()
        }),
        ..of("", "nic", firmware("28"))
    }
}

trait Baselines {
    fn set(&mut self, at: &str, d: BaselineDefinition, on: Option<u32>)
    -> Result<Applied, Refusal>;
    fn versions(&self, of: &str) -> Vec<u32>;
}

impl Baselines for Cluster {
    fn set(
        &mut self,
        at: &str,
        d: BaselineDefinition,
        on: Option<u32>,
    ) -> Result<Applied, Refusal> {
        self.propose(
            "olga",
            Privilege::Operator,
            Command::SetBaseline {
                name: name(at),
                definition: Box::new(d),
                expected_version: on,
            },
        )
    }

    fn versions(&self, of: &str) -> Vec<u32> {
        let query = Query::BaselineVersions { name: name(of) };
        let Answer::BaselineVersions(kept) = self.state.query(&query) else {
            panic!("versions")
        };
        kept.iter().map(|version| version.version).collect()
    }
}

fn set_version(applied: &Applied) -> u32 {
    match applied.outcome {
        Outcome::BaselineSet { version } => version,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn each_set_makes_a_version_and_the_last_ones_are_kept() {
    let mut c = Cluster::default();
    let first = c.set("h100", of("n[003,001-002]", "nic", firmware("1")), Some(0));
    let first = first.unwrap();
    assert_eq!(set_version(&first), 1);
    let record = first.events.iter().find_map(|event| match &event.kind {
        EventKind::Baseline { record } => Some(record),
        _ => None,
    });
    let record = record.unwrap();
    assert_eq!(record.definition.nodes, "n[001-003]", "written one way");
    assert_eq!(
        (record.by.as_str(), record.revision),
        ("olga", first.revision)
    );
    // Setting the same definition again makes no new version.
    let again = c.set("h100", of("n001,n002,n003", "nic", firmware("1")), None);
    let again = again.unwrap();
    assert_eq!((set_version(&again), again.events.len()), (1, 0));
    for n in 2..=20 {
        let next = of("n001", "nic", firmware(&n.to_string()));
        assert_eq!(set_version(&c.set("h100", next, Some(n - 1)).unwrap()), n);
    }
    assert_eq!(c.versions("h100"), (5..=20).collect::<Vec<_>>());
    assert_eq!(c.versions("h100").len(), MAX_VERSIONS);
    let query = |version| Query::Baseline {
        name: name("h100"),
        version,
    };
    assert_eq!(c.state.query(&query(Some(4))), Answer::Baseline(None));
    let Answer::Baseline(Some(kept)) = c.state.query(&query(Some(5))) else {
        panic!("version 5")
    };
    assert_eq!(kept.definition.classes["nic"], firmware("5"));
}

#[test]
fn stale_version_is_refused_and_numbers_are_unique() {
    let mut c = Cluster::default();
    c.set("h100", of("n001", "nic", firmware("1")), None)
        .unwrap();
    let stale = c.set("h100", of("n001", "nic", firmware("2")), Some(0));
    let stale = stale.unwrap_err();
    assert_eq!(stale.code(), "baseline_changed");
    assert!(
        stale.to_string().contains("exists already, at version 1"),
        "{stale}"
    );
    let delete = |expected_version| Command::DeleteBaseline {
        name: name("h100"),
        expected_version,
    };
    let wrong = c.propose("olga", Privilege::Operator, delete(Some(2)));
    assert_eq!(wrong.unwrap_err().code(), "baseline_changed");
    c.propose("olga", Privilege::Operator, delete(Some(1)))
        .unwrap();
    assert!(c.versions("h100").is_empty());
    let gone = c
        .propose("olga", Privilege::Operator, delete(None))
        .unwrap_err();
    assert_eq!(gone.code(), "unknown_baseline");
    let back = c.set("h100", of("n001", "nic", firmware("1")), Some(0));
    assert_eq!(set_version(&back.unwrap()), 2);
}

#[test]
fn operators_and_administrators_decide_and_it_is_written_down() {
    let mut c = Cluster::default();
    let command = || Command::SetBaseline {
        name: name("h100"),
        definition: Box::new(of("n001", "nic", firmware("1"))),
        expected_version: None,
    };
    for power in [Privilege::User, Privilege::Service] {
        let refused = c.propose("somebody", power, command()).unwrap_err();
        assert_eq!(refused.code(), "forbidden");
    }
    c.propose("olga", Privilege::Operator, command()).unwrap();
    c.admin(Command::DeleteBaseline {
        name: name("h100"),
        expected_version: None,
    })
    .unwrap();
    let (after, limit) = (0, 10);
    let Answer::Audit(entries) = c.state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    verify_chain(&entries).unwrap();
    assert!(
        matches!(&entries[0].action, AuditAction::BaselineSet { version: 1, classes, .. }
        if *classes == ["nic: partial, warn"])
    );
    assert!(matches!(
        &entries[1].action,
        AuditAction::BaselineDeleted { version: 1, .. }
    ));
}

#[test]
fn no_two_speak_for_the_same_nodes_and_class() {
    let mut c = Cluster::default();
    c.set("h100", of("n[001-010]", "nic", firmware("1")), None)
        .unwrap();
    let refused = c
        .set("other", of("n[009-012]", "nic", firmware("1")), None)
        .unwrap_err();
    assert_eq!(refused.code(), "baseline_ambiguous");
    assert!(
        refused
            .to_string()
            .contains("\"h100\" already applies to class nic of n[009-010]"),
        "{refused}"
    );
    // Another class, other nodes, the same baseline, or a cohort in addition to names: no conflict.
    c.set("other", of("n[009-012]", "bios", firmware("1")), None)
        .unwrap();
    c.set("third", of("n[011-012]", "nic", firmware("1")), None)
        .unwrap();
    c.set("h100", of("n[001-009]", "nic", firmware("2")), None)
        .unwrap();
    c.set("dell", of_cohort("XE9680", None), None).unwrap();
    let refused = c.set("dell2", of_cohort("XE9680", None), None).unwrap_err();
    assert!(
        refused.to_string().contains("cohort product=XE9680"),
        "{refused}"
    );
    c.set("dell8", of_cohort("XE9680", Some(8)), None).unwrap();
}

#[test]
fn bounds_are_refused_with_their_numbers() {
    let mut c = Cluster::default();
    let large = usize::try_from(MAX_BYTES).unwrap();
    let refused = c
        .set("h100", of("n001", "nic", exact(large, 1)), None)
        .unwrap_err();
    let Refusal::BaselineLimit {
        requested, limit, ..
    } = &refused
    else {
        panic!("{refused}")
    };
    assert!(*requested > *limit && *limit == MAX_BYTES);
    assert!(
        refused.to_string().contains("at most 262144 are allowed"),
        "{refused}"
    );
    let refused = c.set("h100", of("n[00001-20001]", "nic", firmware("1")), None);
    assert!(refused.unwrap_err().to_string().contains("would be 20001"));
    // Every version counts: one name holds 16 versions, then its oldest is dropped.
    let mut sets = 0;
    let full = loop {
        let at = format!("b{}", sets / (MAX_VERSIONS + 4));
        let fill = u8::try_from(sets % 200).unwrap();
        let node = format!("n{:03}", sets / (MAX_VERSIONS + 4));
        match c.set(&at, of(&node, "nic", exact(large - 200, fill)), None) {
            Ok(_) => sets += 1,
            Err(refused) => break refused,
        }
        assert!(sets < 1_000, "nothing bounds all of them together");
    };
    let Refusal::BaselineLimit {
        requested, limit, ..
    } = full
    else {
        panic!("{full}")
    };
    assert!(requested > limit && limit == MAX_TOTAL_BYTES);
    let held = usize::try_from(MAX_TOTAL_BYTES).unwrap() / large;
    assert!(sets > held, "what was forgotten does not count");
}

#[test]
fn what_can_mean_nothing_is_refused_by_its_field() {
    let mut c = Cluster::default();
    let field = |c: &mut Cluster, definition| match c.set("h100", definition, None).unwrap_err() {
        Refusal::Invalid { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(&mut c, of("", "nic", firmware("1"))), "nodes");
    assert_eq!(field(&mut c, of("n[", "nic", firmware("1"))), "nodes");
    let none = BaselineDefinition {
        cohort: Some(CohortSelector::default()),
        ..of("", "nic", firmware("1"))
    };
    assert_eq!(field(&mut c, none), "cohort");
    assert_eq!(field(&mut c, of("n1", "NIC", firmware("1"))), "classes");
    assert_eq!(
        field(&mut c, of("n1", "nic", firmware(""))),
        "classes.nic.keys.nic.*.firmware"
    );
    assert_eq!(field(&mut c, of("n1", "nic", exact(0, 1))), "classes.nic");
    let nothing = of(
        "n1",
        "nic",
        rule(Rule::Partial {
            constraints: Vec::new(),
        }),
    );
    assert_eq!(field(&mut c, nothing), "classes.nic.keys");
}

#[test]
fn brake_needs_service_lease_and_person_releases() {
    let mut c = Cluster::default();
    let lease = LeaseName::new("dispatch").unwrap();
    let acquire = Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    };
    let service = || principal("service:control/c1", Privilege::Service);
    c.apply(envelope(c.now(), service(), acquire)).unwrap();
    let hold = |reason: &str| Command::HoldBrake {
        reason: reason.to_owned(),
    };
    let bare = c.apply(envelope(c.now(), service(), hold("18 of 128")));
    assert_eq!(bare.unwrap_err().code(), "forbidden");
    let mut fenced = envelope(c.now(), service(), hold("18 of 128"));
    fenced.fence = Some(Fence { lease, epoch: 1 });
    let held = c.apply(fenced.clone()).unwrap();
    assert!(held.events.iter().any(|event| matches!(&event.kind,
        EventKind::Brake { held: Some(brake) } if brake.reason == "18 of 128")));
    fenced.command = hold("19 of 128");
    assert!(
        c.apply(fenced).unwrap().events.is_empty(),
        "the first reason stays"
    );
    let restored = State::restore(&c.state.snapshot()).unwrap();
    assert_eq!(restored.brake().unwrap().reason, "18 of 128");
    let release = |reason: &str| Command::ReleaseBrake {
        reason: reason.to_owned(),
    };
    let by_itself = c.propose("service:control/c1", Privilege::Service, release("fine"));
    assert_eq!(by_itself.unwrap_err().code(), "forbidden");
    let wordless = c.propose("olga", Privilege::Operator, release(" "));
    assert_eq!(wordless.unwrap_err().code(), "invalid");
    c.propose("olga", Privilege::Operator, release("a firmware campaign"))
        .unwrap();
    assert!(c.state.brake().is_none());
}

/// Definitions of any size are rejected by field, with a short reason, and nothing is kept.
#[test]
fn wild_sizes_are_refused_by_their_field() {
    let mut c = Cluster::default();
    let long = || "x".repeat(1 << 20);
    let keys = |constraints: Vec<Constraint>| of("n1", "nic", rule(Rule::Partial { constraints }));
    let key = |key: String, values: usize| Constraint {
        key,
        any_of: vec![Scalar::Text("28".to_owned()); values],
        or_absent: false,
    };
    let vendor = CohortSelector {
        vendor: Some(long()),
        ..CohortSelector::default()
    };
    let classes = (0..40).map(|n| ("x".repeat(n + 1), exact(1, 1)));
    let cases = [
        (
            "description",
            BaselineDefinition {
                description: long(),
                ..of("n1", "nic", exact(1, 1))
            },
        ),
        ("nodes", of(&long(), "nic", exact(1, 1))),
        (
            "nodes",
            of(&format!("n[{}", "1,".repeat(100_000)), "nic", exact(1, 1)),
        ),
        ("nodes", of("n[1-999999999]", "nic", exact(1, 1))),
        (
            "nodes",
            of(&format!("{}[1", "n".repeat(200_000)), "nic", exact(1, 1)),
        ),
        (
            "cohort",
            BaselineDefinition {
                cohort: Some(vendor),
                ..of("", "nic", exact(1, 1))
            },
        ),
        ("classes", of("n1", &long(), exact(1, 1))),
        (
            "classes",
            BaselineDefinition {
                classes: classes.collect(),
                ..of("n1", "nic", exact(1, 1))
            },
        ),
        ("classes.nic.keys", keys(Vec::new())),
        (
            "classes.nic.keys",
            keys((0..1_025).map(|n| key(n.to_string(), 1)).collect()),
        ),
        ("classes.nic.keys.a", keys(vec![key("a".to_owned(), 65)])),
        ("classes.nic.keys.a", keys(vec![key("a".to_owned(), 0)])),
    ];
    let before = c.state.digest();
    for (wanted, definition) in cases {
        let refused = c.set("wild", definition, None).unwrap_err();
        assert!(refused.to_string().len() < 2_048, "{wanted}");
        let Refusal::Invalid { field, .. } = refused else {
            panic!("{wanted}: {refused}")
        };
        assert_eq!(field, wanted);
    }
    let refused = c.set("wild", keys(vec![key(long(), 1)]), None).unwrap_err();
    let Refusal::Invalid { field, reason } = refused else {
        panic!("{refused}")
    };
    assert!(field.starts_with("classes.nic.keys.xxx") && field.len() < 100);
    assert_eq!(reason, "a key has 1 to 256 bytes");
    // Values have no limit of their own; the whole definition has one.
    let mut text = key("a".to_owned(), 0);
    text.any_of = vec![Scalar::Text(long())];
    for definition in [keys(vec![text]), of("n1", "nic", exact(1 << 20, 1))] {
        let refused = c.set("wild", definition, None).unwrap_err();
        assert!(
            matches!(&refused, Refusal::BaselineLimit { resource, .. }
            if resource == "bytes of one baseline"),
            "{refused}"
        );
    }
    assert_eq!(c.state.digest(), before);
}
