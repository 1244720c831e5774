//! Rolling upgrade of a fleet: agents that write an earlier schema, together with agents that write a later one and
//! publish the earlier one in addition.
//!
//! The schemas are data. Here they are three generations of the NIC class: the second one adds the rings, the third one
//! the queues. [`agent`] simulates agents without using the key table: it writes what a build of that generation reads.

use lattice_conformance::{
    Class, ClassMark, ClassRecord, ClassState, CohortKey, Digest, DriftReport, KeyVerdict, Levels,
    NodeView, Preimages, Reading, SchemaMismatch, Schemas, Scope, Value, WrittenSchemas,
    baseline::{BaselineVerdict, Constraint, Expectation},
    diff_under, drift, groups,
    keys::{KeyNeed, KeyRow, RowTest},
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const fn row(pattern: &'static str, since: u16, until: Option<u16>) -> KeyRow {
    KeyRow {
        pattern,
        unit: "",
        need: KeyNeed::Optional,
        source: "",
        meaning: "",
        test: RowTest::InFixtures,
        since,
        until,
    }
}

const ROWS: &[KeyRow] = &[
    row("nic.count", 1, None),
    row("nic.<slot>.firmware", 1, None),
    row("nic.<slot>.driver", 1, None),
    row("nic.<slot>.ring.<name>", 2, None),
    row("nic.<slot>.queues", 3, None),
];

/// The speed was in gigabits up to schema 1.
const CHANGED: &[KeyRow] = &[
    row("nic.count", 1, None),
    row("nic.<slot>.firmware", 1, None),
    row("nic.<slot>.speed", 1, Some(1)),
    row("nic.<slot>.speed", 2, None),
];

/// A build that writes `CURRENT`, and the previous schema as well.
fn written<const CURRENT: u16>(_: Class) -> WrittenSchemas {
    WrittenSchemas {
        current: CURRENT,
        earlier: CURRENT.checked_sub(1).filter(|schema| *schema > 0),
        oldest: 1,
    }
}

const SECOND: Schemas = Schemas {
    written: written::<2>,
    rows: ROWS,
};
const THIRD: Schemas = Schemas {
    written: written::<3>,
    rows: ROWS,
};
const BROKEN: Schemas = Schemas {
    written: written::<2>,
    rows: CHANGED,
};

/// One NIC of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Nic {
    firmware: Reading<Value>,
    driver: Reading<Value>,
    rx: Reading<Value>,
    queues: Reading<Value>,
}

type Machine = Vec<Nic>;

fn machine(firmware: &str) -> Machine {
    let text = |text: &str| Reading::Present(Value::from(text));
    vec![
        Nic {
            firmware: text(firmware),
            driver: text("mlx5_core"),
            rx: Reading::Present(Value::Number(1024)),
            queues: Reading::Present(Value::Number(63)),
        };
        2
    ]
}

/// The record that an agent of this generation writes for a machine.
fn agent(schema: u16, machine: &Machine) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.schema = schema;
    record.require("nic.count", Reading::Present(machine.len() as u32));
    for (slot, nic) in machine.iter().enumerate() {
        record.put(format!("nic.{slot}.firmware"), nic.firmware.clone());
        record.put(format!("nic.{slot}.driver"), nic.driver.clone());
        if schema >= 2 {
            record.put(format!("nic.{slot}.ring.rx"), nic.rx.clone());
        }
        if schema >= 3 {
            record.put(format!("nic.{slot}.queues"), nic.queues.clone());
        }
    }
    record
}

fn digest(record: &ClassRecord) -> Digest {
    record.state().digest().unwrap()
}

/// A fleet, with the records of its digests. The earlier digest of an upgraded node comes from the code under test; the
/// digests of the other nodes come from [`agent`].
#[derive(Default)]
struct Fleet {
    nodes: Vec<NodeView>,
    records: BTreeMap<Digest, ClassRecord>,
}

impl Fleet {
    /// Adds a node that publishes no earlier digest.
    fn alone(mut self, name: &str, record: ClassRecord) -> Self {
        let mark = record.state().mark();
        self.records.extend(mark.digest().map(|d| (d, record)));
        self.nodes.push(NodeView {
            node: name.to_owned(),
            cohort: Some(CohortKey {
                vendor: Some("Dell Inc.".to_owned()),
                product: Some("XE9680".to_owned()),
                gpu_model: None,
                gpu_count: Some(0),
            }),
            classes: [(Class::Nic, mark)].into(),
            earlier: BTreeMap::new(),
        });
        self
    }

    fn upgraded(self, name: &str, schemas: &Schemas, record: ClassRecord) -> Self {
        let said = schemas.earlier(&record);
        let mut fleet = self.alone(name, record);
        if let Some((earlier, record)) = said {
            fleet.records.insert(earlier.digest, record);
            let last = fleet.nodes.last_mut().unwrap();
            last.earlier.insert(Class::Nic, earlier);
        }
        fleet
    }

    /// `a` to `d` are not upgraded yet, `e` to `h` are.
    fn half(old: &Machine, new: &Machine) -> Self {
        let olds = ["a", "b", "c", "d"].into_iter();
        let fleet = olds.fold(Self::default(), |fleet, name| {
            fleet.alone(name, agent(1, old))
        });
        let news = ["e", "f", "g", "h"].into_iter();
        news.fold(fleet, |fleet, name| {
            fleet.upgraded(name, &SECOND, agent(2, new))
        })
    }

    fn drift(&self) -> DriftReport {
        drift(&self.nodes, &|digest: &Digest| {
            self.records.get(digest).cloned()
        })
    }

    fn groups(&self, scope: &Scope) -> Vec<Vec<String>> {
        let found = groups(&self.nodes, scope).groups.into_iter();
        found.map(|group| group.nodes).collect()
    }
}

fn any_reading() -> impl Strategy<Value = Reading<Value>> {
    prop_oneof![
        "[a-z0-9.]{1,6}".prop_map(|text| Reading::Present(Value::Text(text))),
        any::<i64>().prop_map(|number| Reading::Present(Value::Number(number))),
        Just(Reading::Absent),
        Just(Reading::Unsupported),
        Just(Reading::failed("input/output error")),
        Just(Reading::Timeout { after_ms: 10 }),
    ]
}

fn any_machine() -> impl Strategy<Value = Machine> {
    let nic = (any_reading(), any_reading(), any_reading(), any_reading());
    let nic = nic.prop_map(|(firmware, driver, rx, queues)| Nic {
        firmware,
        driver,
        rx,
        queues,
    });
    prop::collection::vec(nic, 0..6)
}

proptest! {
    #[test]
    fn an_older_agent_writes_the_same_of_the_same_machine(machine in any_machine()) {
        for (from, to) in [(3, 3), (3, 2), (3, 1), (2, 1)] {
            let converted = THIRD.under(&agent(from, &machine), to).unwrap();
            let wrote = agent(to, &machine);
            prop_assert_eq!(converted.encode(), wrote.encode());
            prop_assert_eq!(converted.state(), wrote.state());
            prop_assert_eq!(converted, wrote);
        }
        let twice = THIRD.under(&THIRD.under(&agent(3, &machine), 2).unwrap(), 1);
        prop_assert_eq!(twice, THIRD.under(&agent(3, &machine), 1));
    }

    /// Four generations of builds, with their current and earlier schemas.
    #[test]
    fn groups_are_a_partition_whatever_the_order(
        nodes in prop::collection::vec((0usize..4, 0usize..3), 1..12),
        turn in any::<prop::sample::Index>(),
    ) {
        let machines = [machine("28.39"), machine("28.41"), machine("28.43")];
        let mut fleet = Fleet::default();
        for (n, (build, of)) in nodes.iter().enumerate() {
            let (name, machine) = (format!("n{n:02}"), &machines[*of]);
            fleet = match build {
                0 => fleet.alone(&name, agent(1, machine)),
                1 => fleet.upgraded(&name, &SECOND, agent(2, machine)),
                2 => fleet.upgraded(&name, &THIRD, agent(3, machine)),
                _ => fleet.alone(&name, agent(3, machine)),
            };
        }
        let scope = Scope::Class(Class::Nic);
        let found = groups(&fleet.nodes, &scope);
        let all: Vec<&String> = found.groups.iter().flat_map(|g| &g.nodes).collect();
        prop_assert_eq!(all.len(), nodes.len());
        prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), nodes.len());
        // Members of a group are equal machines; equal machines of one build are in one group.
        let number = |node: &String| node[1..].parse::<usize>().unwrap();
        for group in &found.groups {
            let of: BTreeSet<usize> = group.nodes.iter().map(|n| nodes[number(n)].1).collect();
            prop_assert_eq!(of.len(), 1);
        }
        for (n, one) in nodes.iter().enumerate() {
            for (m, other) in nodes.iter().enumerate().filter(|(_, other)| *other == one) {
                let has = |n: usize| {
                    let name = format!("n{n:02}");
                    found.groups.iter().position(|group| group.nodes.contains(&name))
                };
                prop_assert_eq!(has(n), has(m), "{:?} {:?}", one, other);
            }
        }
        // If all nodes publish a common schema, all equal machines are in one group.
        let builds: BTreeSet<usize> = nodes.iter().map(|(build, _)| *build).collect();
        if !builds.contains(&0) && !builds.contains(&3) {
            let machines: BTreeSet<usize> = nodes.iter().map(|(_, of)| *of).collect();
            prop_assert_eq!(found.groups.len(), machines.len());
        }
        let mut turned = fleet.nodes.clone();
        turned.rotate_left(turn.index(nodes.len()));
        prop_assert_eq!(&groups(&turned, &scope), &found);
        turned.reverse();
        prop_assert_eq!(&groups(&turned, &scope), &found);
    }
}

#[test]
fn what_cannot_be_known_is_refused_with_the_reason() {
    let machine = machine("28.41");
    let mut record = agent(2, &machine);
    let class = Class::Nic;
    let refused = |schemas: &Schemas, record: &ClassRecord, schema| {
        let refused = schemas.under(record, schema).unwrap_err();
        assert_eq!(schemas.earlier(record), None, "and nothing is said");
        refused
    };
    assert_eq!(
        THIRD.under(&record, 3),
        Err(SchemaMismatch::Later {
            class,
            from: 2,
            to: 3
        })
    );
    assert_eq!(
        THIRD.under(&record, 0),
        Err(SchemaMismatch::Unknown { class, schema: 0 })
    );
    // A record of a later build, read by an older one.
    let later = agent(3, &machine);
    assert_eq!(
        refused(&SECOND, &later, 2),
        SchemaMismatch::Unknown { class, schema: 3 }
    );
    record.put("nic.0.colour", Reading::Present("green"));
    assert_eq!(
        refused(&SECOND, &record, 1),
        SchemaMismatch::Unlisted {
            key: "nic.0.colour".to_owned()
        }
    );
    // Whether or not this machine has such a key: a key with this name may have existed before.
    for with_speed in [true, false] {
        let mut record = ClassRecord::new(class);
        record.require("nic.count", Reading::Present(1u32));
        if with_speed {
            record.put("nic.0.speed", Reading::Present(100u32));
        }
        let changed = refused(&BROKEN, &record, 1);
        let pattern = "nic.<slot>.speed";
        assert_eq!(
            changed,
            SchemaMismatch::Changed {
                class,
                pattern,
                until: 1
            }
        );
        assert_eq!(
            changed.to_string(),
            "nic.<slot>.speed has another meaning since schema 1 of nic"
        );
    }
}

#[test]
fn class_without_digest_has_no_extension() {
    let mut record = agent(2, &machine("28.41"));
    assert!(SECOND.earlier(&record).is_some());
    let hung: Reading<u32> = Reading::Timeout { after_ms: 10 };
    record.require("nic.1.ring.rx", hung);
    assert!(matches!(record.state(), ClassState::Incomplete { .. }));
    assert_eq!(SECOND.earlier(&record), None);
}

#[test]
fn half_of_a_fleet_upgraded_is_one_group_and_nothing_drifts() {
    let machine = machine("28.41");
    let fleet = Fleet::half(&machine, &machine);
    let all: Vec<String> = fleet.nodes.iter().map(|n| n.node.clone()).collect();
    for scope in [Scope::Class(Class::Nic), Scope::All] {
        assert_eq!(fleet.groups(&scope), std::slice::from_ref(&all), "{scope}");
    }
    assert_eq!(fleet.drift(), DriftReport::default());
    // A node with an unknown class, and one with a disabled class, do not restrict the schema of the others.
    let mut more = agent(1, &machine);
    more.require("nic.count", Reading::<u32>::Timeout { after_ms: 10 });
    let off = ClassRecord::disabled(Class::Nic, "switched off");
    let fleet = fleet.alone("x", more).alone("y", off);
    assert_eq!(fleet.groups(&Scope::Class(Class::Nic)), [all]);
}

#[test]
fn what_differs_is_found_across_both_halves() {
    let (machine, other) = (machine("28.41"), machine("28.39"));
    let fleet = Fleet::half(&machine, &machine)
        .alone("old", agent(1, &other))
        .upgraded("new", &SECOND, agent(2, &other));
    let found = fleet.drift();
    let differences: Vec<_> = found
        .drifts
        .iter()
        .map(|d| (d.node.as_str(), d.key.as_str(), d.of, d.like))
        .collect();
    assert_eq!(
        differences,
        [
            ("new", "nic.0.firmware", 10, 8),
            ("new", "nic.1.firmware", 10, 8),
            ("old", "nic.0.firmware", 10, 8),
            ("old", "nic.1.firmware", 10, 8),
        ]
    );
    assert!(found.unknown.is_empty() && found.no_majority.is_empty());
    assert_eq!(
        fleet.groups(&Scope::Class(Class::Nic))[1],
        ["new", "old"],
        "the odd ones are like each other"
    );
}

#[test]
fn after_the_roll_the_earlier_digest_is_no_more_needed() {
    let machine = machine("28.41");
    let fleet = Fleet::default()
        .upgraded("a", &SECOND, agent(2, &machine))
        .upgraded("b", &SECOND, agent(2, &machine));
    let now = digest(&agent(2, &machine));
    let found = groups(&fleet.nodes, &Scope::Class(Class::Nic));
    assert_eq!(found.groups[0].digest, now, "everybody says the newest");
    let mut without = fleet.nodes.clone();
    without.iter_mut().for_each(|node| node.earlier.clear());
    assert_eq!(groups(&without, &Scope::Class(Class::Nic)), found);
    // A key of the new schema counts from then on, and not before.
    let mut other = machine.clone();
    other[0].rx = Reading::Present(Value::Number(512));
    let names = ["a", "b", "c", "d", "e"];
    let all = names.into_iter().fold(Fleet::default(), |fleet, name| {
        let of = if name == "e" { &other } else { &machine };
        fleet.upgraded(name, &SECOND, agent(2, of))
    });
    let drifts = all.drift().drifts;
    assert_eq!(drifts.len(), 1);
    assert_eq!(
        (drifts[0].node.as_str(), drifts[0].key.as_str()),
        ("e", "nic.0.ring.rx")
    );
    let rolling = all.alone("f", agent(1, &machine));
    assert_eq!(rolling.drift(), DriftReport::default());
}

#[test]
fn unknown_node_forms_own_group() {
    let machine = machine("28.41");
    // Schema 1 is two behind the third, so no build of the third publishes it.
    let news = ["a", "b", "c", "d"].into_iter();
    let fleet = news.fold(Fleet::default(), |fleet, name| {
        fleet.upgraded(name, &THIRD, agent(3, &machine))
    });
    let fleet = fleet
        .upgraded("e", &SECOND, agent(2, &machine))
        .alone("f", agent(1, &machine));
    let scope = Scope::Class(Class::Nic);
    assert_eq!(
        fleet.groups(&scope),
        [vec!["a", "b", "c", "d", "e"], vec!["f"]]
    );
    let found = fleet.drift();
    assert!(found.drifts.is_empty() && found.no_majority.is_empty());
    let unknown: Vec<_> = found.unknown.iter().map(|u| (&*u.node, &*u.why)).collect();
    assert_eq!(unknown, [("f", "another schema")]);
}

#[test]
fn later_schema_is_ignored() {
    let machine = machine("28.41");
    let mut fleet = Fleet::half(&machine, &machine);
    let honest = fleet.groups(&Scope::All);
    let said = fleet.nodes[7].earlier[&Class::Nic];
    for node in &mut fleet.nodes[..4] {
        let mut later = said;
        later.schema = 2;
        node.earlier.insert(Class::Nic, later);
    }
    assert_eq!(fleet.groups(&Scope::All), honest);
    let levels = Levels::of(fleet.nodes.iter().map(NodeView::published_digests));
    let mark = ClassMark::Incomplete;
    assert_eq!(levels.mark(Class::Nic, mark, Some(&said)), mark);
    // Nor does an earlier digest make a node match a baseline.
    let meant = agent(2, &self::machine("28.43"));
    let node = &Fleet::half(&machine, &machine).nodes[7];
    let at_hand = AvailableRecords(&fleet.records, SECOND);
    for schema in [1, 2, 3] {
        let mut said = said;
        (said.schema, said.digest) = (schema, digest(&meant));
        let standing = exact(meant.clone()).verdict_for_mark(
            node.classes.get(&Class::Nic),
            Some(&said),
            &at_hand,
        );
        match schema {
            1 => assert_eq!(standing, BaselineVerdict::Conforms, "its own word"),
            _ => assert_eq!(keys(standing), ["nic.0.firmware", "nic.1.firmware"]),
        }
    }
}

/// Available records, interpreted with the schemas of a given generation.
struct AvailableRecords<'a>(&'a BTreeMap<Digest, ClassRecord>, Schemas);

impl Preimages for AvailableRecords<'_> {
    fn record(&self, digest: &Digest) -> Option<ClassRecord> {
        self.0.get(digest).cloned()
    }

    fn under(&self, record: &ClassRecord, schema: u16) -> Option<ClassRecord> {
        self.1.under(record, schema).ok()
    }
}

fn exact(record: ClassRecord) -> Expectation {
    Expectation::Exact {
        digest: digest(&record),
        record: Box::new(record),
    }
}

fn keys(standing: BaselineVerdict) -> Vec<String> {
    match standing {
        BaselineVerdict::Differs(found) => {
            let differ = found
                .into_iter()
                .filter(|d| d.verdict == KeyVerdict::Differs);
            differ.map(|deviation| deviation.key).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_baseline_of_before_judges_nodes_of_after_and_the_other_way_round() {
    let (machine, other) = (machine("28.41"), machine("28.39"));
    let fleet = Fleet::half(&machine, &other);
    let at_hand = AvailableRecords(&fleet.records, SECOND);
    let judge = |rule: &Expectation, node: &NodeView| {
        let (mark, earlier) = (node.classes.get(&Class::Nic), node.earlier.get(&Class::Nic));
        rule.verdict_for_mark(mark, earlier, &at_hand)
    };
    let [old, new] = [&fleet.nodes[0], &fleet.nodes[7]];
    let firmware = ["nic.0.firmware", "nic.1.firmware"];
    for (schema, likes) in [(1, machine.clone()), (2, machine.clone())] {
        let rule = exact(agent(schema, &likes));
        assert_eq!(
            judge(&rule, old),
            BaselineVerdict::Conforms,
            "schema {schema}"
        );
        assert_eq!(keys(judge(&rule, new)), firmware, "schema {schema}");
        let rule = exact(agent(schema, &other));
        assert_eq!(
            judge(&rule, new),
            BaselineVerdict::Conforms,
            "schema {schema}"
        );
        assert_eq!(keys(judge(&rule, old)), firmware, "schema {schema}");
    }
    // A node with a newer schema than the reader publishes one that the reader supports.
    let mut ahead = new.clone();
    let unread = Digest([9; 32]);
    let mark = ClassMark::Complete {
        schema: 7,
        digest: unread,
    };
    ahead.classes.insert(Class::Nic, mark);
    let rule = exact(agent(1, &machine));
    assert_eq!(keys(judge(&rule, &ahead)), firmware);
    let rule = exact(agent(1, &other));
    assert_eq!(judge(&rule, &ahead), BaselineVerdict::Conforms);
}

#[test]
fn what_a_baseline_names_and_a_node_cannot_say_is_not_known() {
    let record = agent(1, &machine("28.41"));
    let records = BTreeMap::from([(digest(&record), record.clone())]);
    let rule = Expectation::Partial(vec![Constraint {
        key: "nic.*.ring.rx".parse().unwrap(),
        any_of: vec![Value::Number(1024)],
        or_absent: false,
    }]);
    let mark = record.state().mark();
    let standing = rule.verdict_for_mark(Some(&mark), None, &AvailableRecords(&records, SECOND));
    assert!(
        matches!(standing, BaselineVerdict::Unknown { .. }),
        "{standing:?}"
    );
}

#[test]
fn a_changed_meaning_is_neither_equal_nor_different() {
    let record = |schema: u16, firmware: &str, speed: u32| {
        let mut record = ClassRecord::new(Class::Nic);
        record.schema = schema;
        record.require("nic.count", Reading::Present(1u32));
        record.put("nic.0.firmware", Reading::Present(firmware));
        record.put("nic.0.speed", Reading::Present(speed));
        record
    };
    let (old, new) = (record(1, "28.39", 100), record(2, "28.41", 100));
    let shown = |left: &ClassRecord, right: &ClassRecord| -> Vec<_> {
        let found = diff_under(&BROKEN, left, right).into_iter();
        let texts = found.map(|d| (d.key, d.left.to_string(), d.right.to_string(), d.verdict));
        texts.collect()
    };
    let row = |key: &str, left: &str, right: &str, verdict| {
        (key.to_owned(), left.to_owned(), right.to_owned(), verdict)
    };
    assert_eq!(
        shown(&old, &new),
        [
            row("nic.0.firmware", "28.39", "28.41", KeyVerdict::Differs),
            row(
                "nic.0.speed",
                "100",
                "<disabled: has another meaning in schema 2>",
                KeyVerdict::Unknown
            ),
        ]
    );
    // A record of an unknown schema is not comparable.
    let [unread] = &shown(&old, &record(7, "28.41", 100))[..] else {
        panic!("one difference");
    };
    assert_eq!(
        (unread.0.as_str(), unread.3),
        ("schema", KeyVerdict::Unknown)
    );
}

#[test]
fn records_of_two_schemas_compare_in_the_keys_of_both() {
    let (old, new) = (agent(1, &machine("28.41")), agent(2, &machine("28.41")));
    for (left, right) in [(&old, &new), (&new, &old)] {
        let found = diff_under(&SECOND, left, right);
        assert_eq!(found.len(), 2, "{found:?}");
        for difference in found {
            assert!(difference.key.ends_with(".ring.rx"));
            assert_eq!(difference.verdict, KeyVerdict::Unknown);
            let older = if left.schema == 1 {
                &difference.left
            } else {
                &difference.right
            };
            assert_eq!(older.to_string(), "<disabled: not in schema 1>");
        }
    }
}

#[test]
fn no_class_uses_schema_1() {
    // Schema 1 was written by agents with these differences. They did not read the firmware of Ethernet ports, had the
    // microcode in the cpu class, and took a sum over DIMMs of unknown size as the memory. They recognised fewer
    // firmware placeholders, and covered fewer kernel modules and settings. `tests/child/hosts.rs` contains what they
    // wrote.
    for class in Class::ALL {
        let written = class.written_schemas();
        assert_eq!(written, WrittenSchemas::only(class.schema()), "{class}");
        assert_eq!(Schemas::SHIPPED.earlier(&ClassRecord::new(class)), None);
        let under = ClassRecord::new(class).in_schema(1);
        match class.schema() {
            1 => assert!(under.is_ok(), "{class}"),
            _ => assert_eq!(under, Err(SchemaMismatch::Unknown { class, schema: 1 })),
        }
    }
}
