//! A class reported by agent and BMC, judged by a baseline made of both. The baseline covers both parts, either part
//! may drift, and while one source is silent nothing is known.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::fixture::api_of;
use crate::ops::{baselines, nodes};
use crate::{Caller, Role};
use lattice_api::baseline::{BaselineRequest, ClassExpectationBody};
use lattice_conformance::{Class, ClassMark, ClassRecord, Inventory, Reading};
use lattice_engine::{
    ReadingKind,
    bmc::{Parts, RequestedReading},
    observed_state,
    tasks::{
        attestations::Attestations,
        autodrain::AutoDrain,
        class_merge::{ClassMerge, SPACING, merge_class},
        conformance::Conformance,
        node_evidence::Freshness,
        readmission,
        testing::{
            id,
            world::{NODE, World},
        },
    },
};
use lattice_quorum_types::{
    Command, Outcome, UnixMillis,
    attestation::SchemaDigest,
    command::ExpectedNode,
    spec::{AllocationSpec, Requeue},
};
use lattice_view::{
    GossipedNode,
    drift::{DriftedNode, UnknownClass},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::time::Instant;

/// Record of the agent (DMI).
fn dmi(version: &str) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Bios);
    record.require("bios.version", Reading::Present(version));
    record.put("bios.vendor", Reading::Present("Dell Inc."));
    record
}

/// BIOS settings from the BMC.
fn settings(smt: Reading<&str>) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Bios);
    record.require(
        "bios.registry",
        Reading::Present("BiosAttributeRegistry.v1_0_0"),
    );
    record.require("bios.setting.LogicalProc", smt);
    record
}

fn parts(bios: ClassRecord) -> Parts {
    Parts {
        records: BTreeMap::from([(Class::Bios, bios)]),
        findings: Vec::new(),
        reasons: Vec::new(),
        read_at: UnixMillis(1),
        was_asked: true,
        may_drain: false,
        undecided: Default::default(),
    }
}

fn on() -> ClassRecord {
    settings(Reading::Present("Enabled"))
}

/// A BMC reading without changes.
fn same() -> RequestedReading {
    RequestedReading::Read {
        differs: Vec::new(),
    }
}

struct UniteFixture {
    world: World,
    unites: ClassMerge,
    judges: Conformance,
    /// Number of BMC readings, and their result.
    looks: Arc<Mutex<(usize, RequestedReading)>>,
}

impl UniteFixture {
    async fn new() -> Self {
        let world = World::new();
        world.set_first_reading();
        let mut fixture = Self {
            unites: ClassMerge::new(world.records()),
            judges: Conformance::new(world.records()),
            looks: Arc::new(Mutex::new((0, same()))),
            world,
        };
        let looks = fixture.looks.clone();
        fixture.world.readings.answers(id(NODE), move || {
            let mut looks = looks.lock().unwrap();
            looks.0 += 1;
            looks.1.clone()
        });
        fixture.agent_says(Some(dmi("2.1.0")));
        fixture.bmc_says(on());
        fixture.settle().await;
        fixture
    }

    /// Sets what the agent gossips and answers; `None` means nothing about the class.
    fn agent_says(&self, bios: Option<ClassRecord>) {
        let marks = Class::ALL.into_iter().filter_map(|class| match class {
            Class::Bios => Some((class, bios.as_ref()?.state().mark())),
            _ => Some((class, ClassMark::Disabled)),
        });
        self.world.set_marks(marks.collect());
        let mut says = self.world.agent_answers.lock().unwrap();
        says.preimages = bios.iter().map(ClassRecord::encode).collect();
        says.digests = bios
            .iter()
            .filter_map(|record| Some((Class::Bios.to_string(), record.state().digest()?.0)))
            .collect();
        says.inventory = bios.map(|record| Inventory {
            records: BTreeMap::from([(Class::Bios, record)]),
            ..Inventory::default()
        });
    }

    fn bmc_says(&self, bios: ClassRecord) {
        self.world.readings.put_parts(id(NODE), parts(bios));
    }

    async fn settle(&mut self) {
        self.unites.reconcile().await;
        self.judges.reconcile().await;
    }

    /// Sets a baseline modelled on the node's current state, as an operator.
    async fn baseline(&mut self) {
        let operator = Caller {
            name: "olga".into(),
            role: Role::Operator,
            tenants: None,
            expires_at: None,
        };
        let request = BaselineRequest {
            nodes: Some(NODE.to_owned()),
            from_node: Some(NODE.to_owned()),
            policy: Some("drain".to_owned()),
            classes: BTreeMap::from([("bios".to_owned(), ClassExpectationBody::default())]),
            ..BaselineRequest::default()
        };
        let api = api_of(&self.world);
        baselines::set(&api, &operator, "like-a", request, None, false)
            .await
            .unwrap();
        self.world.fold();
        self.judges.reconcile().await;
    }

    fn drifted(&self) -> Vec<DriftedNode> {
        self.world.core.view().cluster_drift.drifted.clone()
    }

    fn unknown(&self) -> Vec<UnknownClass> {
        let unknown = self.world.core.view().cluster_drift.unknown.clone();
        let of_bios = unknown.into_iter().filter(|u| u.class == Class::Bios);
        of_bios.collect()
    }

    fn no_sensitive(&self) -> Option<String> {
        let view = self.world.core.view();
        view.node(&id(NODE))
            .unwrap()
            .conformance()
            .no_sensitive
            .as_deref()
            .map(str::to_owned)
    }

    /// One draining pass of a new reconciler; returns the drain reasons.
    async fn drains(&mut self) -> Vec<String> {
        let mut drains = AutoDrain::new(self.world.nodes());
        drains.reconcile(self.world.fence.clone()).await;
        self.world.fold();
        let reasons = self.world.node().drain.into_iter();
        reasons.map(|drain| drain.reason).collect()
    }

    /// Checks that no drift is reported for the node, it is not drained, and it receives no sensitive jobs.
    async fn is_unknown(&mut self, why: &str) {
        assert_eq!(self.drifted(), [], "{why}");
        let unknown = self.unknown();
        assert_eq!(unknown.len(), 1, "{why}: {unknown:?}");
        println!("{why}: {}", unknown[0].why);
        assert!(self.no_sensitive().is_some(), "{why}");
        assert_eq!(self.drains().await, Vec::<String>::new(), "{why}");
        assert!(self.world.node().is_assignable(), "{why}");
    }
}

#[tokio::test]
async fn a_baseline_that_was_made_of_both_parts_holds_for_both() {
    let mut fixture = UniteFixture::new().await;
    fixture.baseline().await;
    assert_eq!(
        (fixture.drifted(), fixture.unknown()),
        (Vec::new(), Vec::new())
    );
    assert_eq!(fixture.no_sensitive(), None);
    // The baseline is the digest of neither part alone.
    let view = fixture.world.core.view();
    let kept = view.baselines.all().next().unwrap();
    let rule = &kept.record.definition.classes["bios"].rule;
    let lattice_quorum_types::baseline::Rule::Exact { digest, .. } = rule else {
        panic!("{rule:?}")
    };
    let whole = dmi("2.1.0").merge(on()).state().digest().unwrap();
    assert_eq!(digest, &whole.0);
    assert_ne!(Some(whole), dmi("2.1.0").state().digest());
    assert_ne!(Some(whole), on().state().digest());
    assert_eq!(fixture.drains().await, Vec::<String>::new());
}

#[tokio::test]
async fn what_agent_and_bmc_say_otherwise_of_one_thing_is_found_in_the_whole() {
    let mut fixture = UniteFixture::new().await;
    for (bmc_version, codes) in [("2.1.0", &[][..]), ("2.2.4", &["bios_version_mismatch"])] {
        let mut bios = on();
        bios.require("bios.redfish.version", Reading::Present(bmc_version));
        fixture.bmc_says(bios);
        fixture.settle().await;
        let records = fixture.world.records();
        let whole = records
            .inventory(&id(NODE), ReadingKind::Last)
            .await
            .unwrap();
        let found: Vec<&str> = whole.findings.iter().map(|found| &*found.code).collect();
        assert_eq!(found, codes, "{bmc_version}");
    }
}

#[tokio::test]
async fn either_part_may_drift_and_come_back() {
    let mut fixture = UniteFixture::new().await;
    fixture.baseline().await;
    fixture.agent_says(Some(dmi("2.2.0")));
    fixture.settle().await;
    let drifted_keys = |fixture: &UniteFixture| -> Vec<(String, String, String)> {
        let drifted = fixture.drifted().into_iter();
        drifted.map(|d| (d.key, d.expected, d.found)).collect()
    };
    let row = |key: &str, expected: &str, found: &str| {
        vec![(key.to_owned(), expected.to_owned(), found.to_owned())]
    };
    assert_eq!(
        drifted_keys(&fixture),
        row("bios.version", "2.1.0", "2.2.0")
    );
    assert!(fixture.no_sensitive().is_some());
    fixture.agent_says(Some(dmi("2.1.0")));
    fixture.bmc_says(settings(Reading::Present("Disabled")));
    fixture.settle().await;
    let setting = "bios.setting.LogicalProc";
    assert_eq!(drifted_keys(&fixture), row(setting, "Enabled", "Disabled"));
    assert!(fixture.no_sensitive().is_some());
    // A difference in the agent's answer, or in the BMC reading made by this control, drains the node.
    let reasons = fixture.drains().await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].contains(setting), "{reasons:?}");
    fixture.bmc_says(on());
    fixture.settle().await;
    assert_eq!(
        (fixture.drifted(), fixture.unknown()),
        (Vec::new(), Vec::new())
    );
    assert_eq!(fixture.drains().await, Vec::<String>::new());
}

#[tokio::test]
async fn silent_source_drains_nothing() {
    let mut fixture = UniteFixture::new().await;
    fixture.baseline().await;
    fixture.bmc_says(settings(Reading::Timeout { after_ms: 1 }));
    fixture.settle().await;
    fixture.is_unknown("the BMC is silent").await;
    fixture.bmc_says(on());
    fixture.agent_says(None);
    fixture.settle().await;
    fixture
        .is_unknown("the agent says nothing of the class")
        .await;
    let mut unread = dmi("2.1.0");
    unread.require("bios.version", Reading::<&str>::denied("no permission"));
    fixture.agent_says(Some(unread));
    fixture.settle().await;
    fixture.is_unknown("the agent cannot read its half").await;
    // Even if the other part differs as well, and with both unknown at once.
    fixture.bmc_says(settings(Reading::Timeout { after_ms: 1 }));
    fixture.settle().await;
    fixture.is_unknown("neither is known").await;
    fixture.agent_says(Some(dmi("2.1.0")));
    fixture.bmc_says(on());
    fixture.settle().await;
    assert_eq!(
        (fixture.drifted(), fixture.unknown()),
        (Vec::new(), Vec::new())
    );
    assert_eq!(fixture.no_sensitive(), None);
}

/// A periodic BMC reading may be hours old.
#[tokio::test]
async fn repair_triggers_bmc_reading_but_join_does_not() {
    let mut fixture = UniteFixture::new().await;
    let nodes = fixture.world.nodes();
    let passes = async |freshness: &Freshness| {
        let passed = readmission::check(&nodes, &id(NODE), freshness).await;
        passed.map_err(|error| error.to_string())
    };
    let looked = |fixture: &UniteFixture| fixture.looks.lock().unwrap().0;
    let by = Some("olga".to_owned());
    let now = Freshness::Now { by };
    passes(&now).await.unwrap();
    assert_eq!(looked(&fixture), 0, "nothing asks for what it tells");
    fixture.baseline().await;
    passes(&now).await.unwrap();
    assert_eq!(looked(&fixture), 1);
    passes(&Freshness::Recent).await.unwrap();
    assert_eq!(looked(&fixture), 1);
    fixture.looks.lock().unwrap().1 = RequestedReading::Silent {
        why: "no answer".to_owned(),
    };
    let silent = passes(&now).await.unwrap_err();
    assert!(silent.contains("unknown: bios: BMC not readable now: no answer"));
    assert!(silent.contains(" min ago)"), "and how old it is: {silent}");
    // A changed setting counts once it is read twice.
    fixture.looks.lock().unwrap().1 = RequestedReading::Read {
        differs: vec![Class::Bios],
    };
    let once = passes(&now).await.unwrap_err();
    assert!(once.contains("unknown: bios: BMC reports a change"));
    // This reading confirms the change.
    let (readings, looks) = (fixture.world.readings.clone(), fixture.looks.clone());
    fixture.world.readings.answers(id(NODE), move || {
        let bios = settings(Reading::Present("Disabled"));
        readings.put_parts(id(NODE), parts(bios));
        looks.lock().unwrap().1.clone()
    });
    let twice = passes(&now).await.unwrap_err();
    assert!(
        twice.contains("bios.setting.LogicalProc is Disabled, not Enabled"),
        "{twice}"
    );
}

/// The agent signs its part; control adds the whole, and the parts it was made of.
#[tokio::test]
async fn sensitive_work_rests_on_the_whole_made_of_what_the_node_claims() {
    let mut fixture = UniteFixture::new().await;
    fixture.baseline().await;
    let nodes = vec![ExpectedNode {
        node: id(NODE),
        version: fixture.world.node().version,
        boot: Some("b1".to_owned()),
    }];
    let mut attestations = Attestations::new(fixture.world.core.clone());
    assert!(
        attestations
            .confirm(&fixture.world.core.view(), &nodes)
            .is_none()
    );
    attestations.answered().await;
    let confirmed = attestations
        .confirm(&fixture.world.core.view(), &nodes)
        .unwrap();
    let proof = &confirmed[0].proof;
    let claim_of = |record: &ClassRecord| {
        let ClassMark::Complete { schema, digest } = record.state().mark() else {
            panic!("incomplete")
        };
        let digest = digest.0;
        SchemaDigest { schema, digest }
    };
    let (half, whole) = (dmi("2.1.0"), dmi("2.1.0").merge(on()));
    assert_eq!(
        proof.attestation.classes["bios"].now.digest,
        claim_of(&half).digest
    );
    let base = proof.completed["bios"].base.unwrap();
    assert_eq!(base.now.digest, claim_of(&half).digest);
    assert_eq!(proof.completed["bios"].whole.now, claim_of(&whole));
    let waits = fixture.world.submit(Requeue::Never);
    let spec = AllocationSpec {
        sensitive: true,
        ..fixture.world.allocation(waits).spec
    };
    let spec = Box::new(spec);
    let Outcome::Submitted { id } = fixture.world.admin(Command::Submit { spec }) else {
        panic!("not submitted")
    };
    fixture.world.admin(Command::AssignSensitive {
        id,
        nodes: confirmed,
    });
    assert!(
        fixture
            .world
            .node()
            .holder
            .is_some_and(|holder| holder.allocation == id)
    );
}

#[test]
fn keys_of_two_schemas_make_no_record() {
    let mut record = ClassRecord::new(Class::Bios);
    record.require("bios.version", Reading::Present("2.19"));
    let mut part = ClassRecord::new(Class::Bios);
    part.require("bios.registry", Reading::Present("A43"));
    let whole = merge_class(Some(record.clone()), &part);
    assert_eq!(whole.map(|whole| whole.entries.len()), Some(2));
    // Keys of another schema may have other meanings.
    record.schema = 1;
    assert_eq!(merge_class(Some(record), &part), None);
}

/// Sets the inventory that the agent reads, independent of its announcement.
fn agent_reads(fixture: &UniteFixture, bios: ClassRecord) {
    let off = |class| (class, ClassRecord::disabled(class, "not probed"));
    let mut records: BTreeMap<Class, ClassRecord> = Class::ALL.map(off).into();
    records.insert(Class::Bios, bios);
    fixture.world.agent_answers.lock().unwrap().inventory = Some(Inventory {
        records,
        ..Inventory::default()
    });
}

#[tokio::test]
async fn inventory_matches_announced_classes() {
    let mut fixture = UniteFixture::new().await;
    let core = &fixture.world.core.clone();
    let announced = || {
        let view = core.view();
        view.node(&id(NODE)).unwrap().marks()[&Class::Bios]
    };
    // The last reading is announced, or was read once and is not announced yet.
    for reads in ["2.1.0", "2.2.0"] {
        agent_reads(&fixture, dmi(reads));
        let found = fixture
            .world
            .records()
            .inventory(&id(NODE), ReadingKind::Last)
            .await
            .unwrap();
        let bios = &found.records[&Class::Bios];
        for (key, value) in [
            ("bios.setting.LogicalProc", "Enabled"),
            ("bios.version", "2.1.0"),
        ] {
            assert_eq!(bios.get(key), Reading::Present(value.into()), "{reads}");
        }
        assert_eq!(bios.state().mark(), announced(), "{reads}");
    }
    // The agent's part of the class alone has another mark.
    assert_ne!(dmi("2.1.0").state().mark(), announced());
    // While the BMC is silent, the class is not reduced to the agent's part.
    fixture.bmc_says(settings(Reading::failed("401 Unauthorized")));
    fixture.settle().await;
    let found = fixture
        .world
        .records()
        .inventory(&id(NODE), ReadingKind::Last)
        .await
        .unwrap();
    let mark = found.records[&Class::Bios].state().mark();
    assert_eq!(mark, ClassMark::Incomplete);
}

#[tokio::test]
async fn a_reading_that_is_made_now_prints_the_fingerprint_that_everybody_shows() {
    let fixture = UniteFixture::new().await;
    let (core, api) = (&fixture.world.core, api_of(&fixture.world));
    let operator = Caller {
        name: "olga".into(),
        role: Role::Operator,
        tenants: None,
        expires_at: None,
    };
    let shown = || {
        let view = core.view();
        let fingerprint = view.node(&id(NODE)).unwrap().conformance().fingerprint;
        fingerprint.map(|digest| digest.to_string())
    };
    agent_reads(&fixture, dmi("2.1.0"));
    let read = nodes::reprobe(&api, &operator, NODE).await.unwrap();
    assert!(read.fingerprint.is_some());
    assert_eq!(read.fingerprint, shown());
    assert_eq!(read.differs, Vec::<String>::new());
    agent_reads(&fixture, dmi("2.2.0"));
    let read = nodes::reprobe(&api, &operator, NODE).await.unwrap();
    assert_ne!(read.fingerprint, shown(), "it is another one now");
    assert_eq!(read.differs, ["bios"]);
    // Without the BMC's part the node has no fingerprint, here as everywhere.
    fixture.bmc_says(settings(Reading::failed("401 Unauthorized")));
    let read = nodes::reprobe(&api, &operator, NODE).await.unwrap();
    assert_eq!(read.fingerprint, None);
}

#[tokio::test(start_paused = true)]
async fn many_bmc_readings_make_few_views() {
    let world = World::new();
    let names: Vec<_> = (0..64).map(|n| id(&format!("b{n:03}"))).collect();
    let seen = |_| GossipedNode::before(BTreeMap::new());
    let cell = names.iter().map(|node| (node.clone(), seen(node)));
    observed_state::cell(&world.core, "c0", cell.collect());
    for node in &names {
        world.readings.put_parts(node.clone(), parts(on()));
    }
    let before = world.core.view().version;
    let mut unites = ClassMerge::new(world.records());
    assert_eq!(unites.reconcile().await, 64);
    let view = world.core.view();
    assert!(
        names
            .iter()
            .all(|node| !view.node(node).unwrap().merged_marks.is_empty())
    );
    let views = view.version - before;
    assert!(views < 16, "{views} views of 64 nodes");
}

#[tokio::test(start_paused = true)]
async fn the_first_news_of_bmcs_is_seen_at_once_and_what_follows_together() {
    let readings = lattice_engine::bmc::Readings::default();
    let mut news = lattice_engine::tasks::activation::BmcWakeUp::new(readings.changes(), SPACING);
    let began_at = Instant::now();
    readings.put_parts(id("a"), parts(on()));
    news.next().await;
    assert!(began_at.elapsed() < SPACING);
    for name in ["b", "c", "d"] {
        readings.put_parts(id(name), parts(on()));
    }
    news.next().await;
    assert!(began_at.elapsed() >= SPACING);
    let more = tokio::time::timeout(SPACING * 2, news.next());
    assert!(more.await.is_err(), "all were seen");
}
