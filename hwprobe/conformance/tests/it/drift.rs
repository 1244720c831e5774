//! Drift from the majority of a cohort, and conformance groups.

use lattice_conformance::{
    Class, ClassMark, ClassRecord, CohortKey, Digest, Drift, GpuIdentity, Identity, NodeView,
    Reading, Scope, Value, drift, groups,
};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A fleet written as `(node, cohort, firmwares by slot)`.
#[derive(Default)]
struct Fleet {
    nodes: Vec<NodeView>,
    preimages: BTreeMap<Digest, Vec<u8>>,
    opened: RefCell<Vec<Digest>>,
}

fn cohort(product: &str) -> CohortKey {
    CohortKey {
        vendor: Some("Dell Inc.".to_owned()),
        product: Some(product.to_owned()),
        gpu_model: Some("NVIDIA H100 80GB HBM3".to_owned()),
        gpu_count: Some(8),
    }
}

fn nic_record(firmware: &[&str]) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    let count = u32::try_from(firmware.len()).unwrap();
    record.require("nic.count", Reading::Present(count));
    for (slot, version) in firmware.iter().enumerate() {
        let reading = match *version {
            "?" => Reading::failed("input/output error"),
            version => Reading::Present(Value::from(version)),
        };
        record.put(format!("nic.{slot}.firmware"), reading);
    }
    record
}

impl Fleet {
    fn node(mut self, name: &str, product: &str, firmware: &[&str]) -> Self {
        let record = nic_record(firmware);
        let mark = record.state().mark();
        self.preimages
            .insert(mark.digest().unwrap(), record.encode());
        self.view(name, Some(cohort(product)), mark)
    }

    fn nodes(self, names: &[&str], product: &str, firmware: &[&str]) -> Self {
        names
            .iter()
            .fold(self, |fleet, name| fleet.node(name, product, firmware))
    }

    fn view(mut self, name: &str, cohort: Option<CohortKey>, mark: ClassMark) -> Self {
        self.nodes.push(NodeView {
            node: name.to_owned(),
            cohort,
            classes: BTreeMap::from([(Class::Nic, mark)]),
            earlier: BTreeMap::new(),
        });
        self
    }

    fn report(&self) -> lattice_conformance::DriftReport {
        drift(&self.nodes, &|digest: &Digest| {
            self.opened.borrow_mut().push(*digest);
            let bytes = self.preimages.get(digest)?;
            lattice_conformance::verify(digest, bytes).ok()
        })
    }
}

/// Drift of one node: `like` of `of` nodes have the expected value.
fn drifted(
    node: &str,
    key: &str,
    (expected, like): (&str, usize),
    found: &str,
    of: usize,
) -> Drift {
    Drift {
        node: node.to_owned(),
        class: Class::Nic,
        key: key.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        of,
        like,
    }
}

#[test]
fn the_odd_one_of_a_cohort_is_named_with_key_and_values() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2", "a3", "a4"], "XE9680", &["28.41", "28.41"])
        .node("a5", "XE9680", &["28.41", "28.39"]);
    let report = fleet.report();
    assert_eq!(
        report.drifts,
        [drifted("a5", "nic.1.firmware", ("28.41", 4), "28.39", 5)]
    );
    assert_eq!(fleet.opened.borrow().len(), 2, "each digest is opened once");
}

#[test]
fn equal_digests_are_never_opened() {
    let fleet = Fleet::default().nodes(&["a1", "a2", "a3", "a4"], "XE9680", &["28.41"]);
    assert!(fleet.report().drifts.is_empty());
    assert!(fleet.opened.borrow().is_empty());
}

#[test]
fn cohorts_are_not_compared_with_each_other() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2", "a3", "a4"], "XE9680", &["28.41"])
        .nodes(&["b1", "b2", "b3", "b4"], "DGX H100", &["28.39"]);
    assert!(fleet.report().drifts.is_empty());
}

#[test]
fn fewer_than_four_nodes_have_no_majority_to_differ_from() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2"], "XE9680", &["28.41"])
        .node("a3", "XE9680", &["28.39"]);
    let report = fleet.report();
    assert!(report.drifts.is_empty());
    assert_eq!(report.alone, ["a1", "a2", "a3"]);
}

#[test]
fn half_is_no_majority_and_is_reported_as_such() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2"], "XE9680", &["28.41"])
        .nodes(&["a3", "a4"], "XE9680", &["28.39"]);
    let report = fleet.report();
    assert!(report.drifts.is_empty());
    let [split] = report.no_majority.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(split.key, "nic.0.firmware");
    assert_eq!(split.values["28.41"], ["a1", "a2"]);
    assert_eq!(split.values["28.39"], ["a3", "a4"]);
}

#[test]
fn unreadable_value_is_no_drift() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2", "a3"], "XE9680", &["28.41"])
        .node("a4", "XE9680", &["?"]);
    let report = fleet.report();
    assert!(report.drifts.is_empty(), "{report:?}");
    assert!(report.no_majority.is_empty());
}

#[test]
fn an_incomplete_class_is_unknown_and_does_not_vote() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2", "a3"], "XE9680", &["28.41"])
        .node("a4", "XE9680", &["28.39"])
        .view("a5", Some(cohort("XE9680")), ClassMark::Incomplete)
        .view("a6", Some(cohort("XE9680")), ClassMark::Disabled);
    let report = fleet.report();
    assert_eq!(
        report.drifts,
        [drifted("a4", "nic.0.firmware", ("28.41", 3), "28.39", 4)]
    );
    assert_eq!(report.unknown.len(), 1);
    assert_eq!(report.unknown[0].node, "a5");
}

#[test]
fn a_preimage_not_fetched_yet_makes_its_nodes_unknown() {
    let mut fleet = Fleet::default()
        .nodes(&["a1", "a2", "a3", "a4"], "XE9680", &["28.41"])
        .node("a5", "XE9680", &["28.39"]);
    let digest = fleet.nodes[4].classes[&Class::Nic].digest().unwrap();
    fleet.preimages.remove(&digest);
    let report = fleet.report();
    assert!(report.drifts.is_empty());
    assert_eq!(report.unknown.len(), 1);
    assert_eq!(report.unknown[0].why, "preimage not at hand");
}

#[test]
fn a_lost_device_is_one_drift_and_not_one_per_shifted_slot() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2", "a3", "a4"], "XE9680", &["1", "2", "3"])
        .node("a5", "XE9680", &["2", "3"]);
    assert_eq!(
        fleet.report().drifts,
        [drifted("a5", "nic.count", ("3", 4), "2", 5)]
    );
}

#[test]
fn a_node_with_two_deviations_has_two_drifts() {
    let fleet = Fleet::default()
        .nodes(&["a1", "a2", "a3", "a4"], "XE9680", &["1", "1"])
        .node("a5", "XE9680", &["2", "1"])
        .node("a6", "XE9680", &["2", "3"]);
    assert_eq!(
        fleet.report().drifts,
        [
            drifted("a5", "nic.0.firmware", ("1", 4), "2", 6),
            drifted("a6", "nic.0.firmware", ("1", 4), "2", 6),
            drifted("a6", "nic.1.firmware", ("1", 5), "3", 6),
        ]
    );
}

#[test]
fn groups_hold_equal_nodes_and_leave_unknown_ones_out() {
    let fleet = Fleet::default()
        .node("b", "XE9680", &["28.39"])
        .nodes(&["c", "a"], "XE9680", &["28.41"])
        .view("x", None, ClassMark::Incomplete)
        .view("y", None, ClassMark::Incomplete);
    for scope in [Scope::Class(Class::Nic), Scope::All] {
        let found = groups(&fleet.nodes, &scope);
        let members: Vec<&[String]> = found.groups.iter().map(|g| g.nodes.as_slice()).collect();
        assert_eq!(
            members,
            [&["a".to_owned(), "c".to_owned()][..], &["b".to_owned()]]
        );
        assert_eq!(found.unknown, ["x", "y"]);
    }
    let other = groups(&fleet.nodes, &Scope::Class(Class::Gpu));
    assert!(other.groups.is_empty());
    assert_eq!(other.unknown.len(), 5);
}

#[test]
fn several_classes_group_together_and_one_unknown_makes_the_whole_unknown() {
    let mark = |digest: u8| ClassMark::Complete {
        schema: 1,
        digest: Digest([digest; 32]),
    };
    let view = |node: &str, gpu: ClassMark, nic: ClassMark, bios: u8| NodeView {
        node: node.to_owned(),
        cohort: None,
        classes: BTreeMap::from([
            (Class::Gpu, gpu),
            (Class::Nic, nic),
            (Class::Bios, mark(bios)),
        ]),
        earlier: BTreeMap::new(),
    };
    let nodes = [
        view("a", mark(1), mark(2), 3),
        view("b", mark(1), mark(2), 4),
        view("c", mark(2), mark(1), 3),
        view("d", mark(1), ClassMark::Incomplete, 3),
        view("e", mark(1), ClassMark::Disabled, 3),
    ];
    let scope: Scope = "nic,gpu".parse().unwrap();
    assert_eq!(scope.to_string(), "gpu,nic", "in one order, however asked");
    let found = groups(&nodes, &scope);
    let members: Vec<&[String]> = found.groups.iter().map(|g| g.nodes.as_slice()).collect();
    assert_eq!(
        members,
        [&["a".to_owned(), "b".to_owned()][..], &["c".to_owned()]]
    );
    assert_eq!(found.unknown, ["d", "e"]);
    assert_eq!("nic,nic".parse(), Ok(Scope::Class(Class::Nic)));
    assert!("nic,".parse::<Scope>().is_err());
}

#[test]
fn unknown_gpus_mean_no_cohort() {
    let mut identity = Identity {
        vendor: Reading::Present("Dell Inc.".to_owned()),
        product: Reading::Present("XE9680".to_owned()),
        gpu_model: Reading::Present("NVIDIA H100 80GB HBM3".to_owned()),
        gpu_count: Reading::Present(8),
        gpus: vec![GpuIdentity::default()],
        ..Identity::default()
    };
    assert_eq!(CohortKey::of(&identity), Some(cohort("XE9680")));
    identity.gpu_count = Reading::Timeout { after_ms: 20_000 };
    assert_eq!(CohortKey::of(&identity), None);
    identity.gpu_count = Reading::Present(8);
    identity.gpu_model = Reading::failed("fell off the bus");
    assert_eq!(CohortKey::of(&identity), None);
    identity.gpu_count = Reading::Absent;
    identity.gpu_model = Reading::Absent;
    let without = CohortKey::of(&identity).unwrap();
    assert_eq!((without.gpu_count, &without.gpu_model), (Some(0), &None));
    // If the site disables the GPU class, nodes are still compared with similar ones.
    identity.gpu_count = Reading::disabled("switched off by configuration");
    identity.gpu_model = Reading::disabled("switched off by configuration");
    let unasked = CohortKey::of(&identity).unwrap();
    assert_eq!(unasked.gpu_count, None);
    assert_ne!(unasked, without);
}

#[test]
fn partial_class_is_no_gap_for_others() {
    let says = |name: &str, classes: &[Class]| {
        let mark = |class: &Class| {
            let digest = Digest::derive("test", class.name().as_bytes());
            (*class, ClassMark::Complete { schema: 1, digest })
        };
        NodeView {
            node: name.to_owned(),
            cohort: Some(cohort("XE9680")),
            classes: classes.iter().map(mark).collect(),
            earlier: BTreeMap::new(),
        }
    };
    let unknown = |other: &[Class]| {
        let whole = ["n1", "n2", "n3", "n4"].map(|node| says(node, &[Class::Cpu, Class::Optics]));
        let nodes = [&whole[..], &[says("n5", other)]].concat();
        drift(&nodes, &|_: &Digest| None).unknown
    };
    assert_eq!(unknown(&[Class::Cpu]), []);
    assert_eq!(
        unknown(&[Class::Optics]).len(),
        1,
        "every node has processors"
    );
}
