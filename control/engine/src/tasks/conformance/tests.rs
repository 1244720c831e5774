//! Nodes that are down when a control restarts.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    history::Cursor,
    history::History,
    tasks::testing::{
        id,
        world::{NODE, World},
    },
};
use lattice_conformance::{
    Class, NodeDocument, Reading,
    history::{Cause, Entry, HistoryRecord},
};
use lattice_quorum_types::{
    Command, VclusterName,
    baseline::{BaselineDefinition, DriftPolicy},
};
use lattice_view::GossipedNode;
use lattice_view::node::MergedMark;

fn nic() -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.0.firmware", Reading::Present("28.39"));
    record
}

fn document() -> (Digest, Vec<u8>) {
    let document = NodeDocument {
        version: 1,
        node: NODE.to_owned(),
        topology_group: None,
        identity: Default::default(),
        resources: Default::default(),
    };
    document.encode().unwrap()
}

/// An earlier control stored the data of the node.
async fn keeps(history: &History) {
    let (digest, bytes) = document();
    let documents = vec![(NODE.to_owned(), digest, bytes)];
    history.keep_documents(documents).await.unwrap();
    keeps_of(history, NODE, 1).await;
}

async fn keeps_of(history: &History, node: &str, journal: u64) {
    let record = nic();
    let mark = record.state().mark();
    let kept = history.keep_record(mark.digest().unwrap(), record.encode());
    kept.await.unwrap();
    let entry = Entry {
        seq: 1,
        at: 1_000,
        boot_id: "b1".to_owned(),
        cause: Cause::First,
        class: Class::Nic,
        revision: 1,
        from: None,
        to: mark,
        changes: Vec::new(),
        more: 0,
    };
    let cursor = Cursor { journal, read: 1 };
    let records = vec![HistoryRecord::Entry(entry)];
    let append = history.append(node.to_owned(), cursor, records, 2_000);
    append.await.unwrap();
}

#[tokio::test]
async fn down_node_serves_stored_documents() {
    let world = World::new();
    keeps(&world.history).await;
    world.stop_agent().await;
    let seen = GossipedNode {
        document: Some(document().0),
        ..GossipedNode::before(BTreeMap::from([(Class::Nic, nic().state().mark())]))
    };
    let cell = BTreeMap::from([(id(NODE), seen)]);
    observed_state::cell(&world.core, "", cell);
    let mut conformance = Conformance::new(world.records());
    let report = conformance.reconcile().await;
    assert_eq!(report.documents, 1);
    let view = world.core.view();
    let entry = view.node(&id(NODE)).unwrap();
    assert_eq!(entry.document_digest, Some(document().0));
    // A node that announces another document no longer matches.
    let other = GossipedNode {
        document: Some(Digest([7; 32])),
        ..entry.gossip.clone().unwrap()
    };
    let cell = BTreeMap::from([(id(NODE), other)]);
    observed_state::cell(&world.core, "", cell);
    assert_eq!(conformance.reconcile().await.documents, 0);
    let digest = nic().state().digest().unwrap();
    let missing = BTreeSet::from([digest]);
    let view = world.core.view();
    conformance.fetches.ask(&view, &missing);
    conformance.fetches.next().await;
    assert_eq!(conformance.fetches.take_records(), 1);
    assert!(world.preimages.record(&digest).is_some());
}

#[tokio::test]
async fn silent_gossip_keeps_last_state() {
    let world = World::new();
    keeps(&world.history).await;
    let view = world.core.view();
    // The BMC still reports a class.
    let mut silent = NodeEntry::new(id(NODE));
    let of_bmc = MergedMark {
        base: None,
        mark: ClassRecord::new(Class::Bmc).state().mark(),
        earlier: None,
    };
    silent.merged_marks = BTreeMap::from([(Class::Bmc, of_bmc)]);
    let was = world.records().recall(&silent).await.unwrap().unwrap();
    assert_eq!(was.marks()[&Class::Nic], nic().state().mark());
    assert_eq!(was.document_digest, Some(document().0));
    // Another node has no stored data.
    assert!(
        world
            .records()
            .recall(&NodeEntry::new(id("b")))
            .await
            .unwrap()
            .is_none()
    );
    // The stored state is applied only where the node gossips nothing.
    observed_state::last_known(&world.core, vec![was.clone()]);
    let gossips = world.core.view();
    assert!(gossips.node(&id(NODE)).unwrap().last_known.is_none());
    observed_state::cell(
        &world.core,
        &view.node(&id(NODE)).unwrap().gossip.as_ref().unwrap().cell,
        BTreeMap::new(),
    );
    let left = world.core.view();
    assert!(left.node(&id(NODE)).unwrap().gossip.is_none());
    assert!(left.as_known(&id(NODE)).is_some(), "it was just here");
}

/// Registers a node that never gossips.
fn registers(world: &World, name: &str) {
    world.admin(Command::RegisterNode {
        node: id(name),
        vcluster: VclusterName::new("default").unwrap(),
    });
    world.fold();
}

#[tokio::test]
async fn a_round_looks_up_some_and_again_what_could_not_be_read() {
    let world = World::new();
    for name in ["b", "c"] {
        registers(&world, name);
        keeps_of(&world.history, name, 1).await;
    }
    let mut conformance = Conformance::new(world.records());
    let is_known = |name| world.core.view().as_known(&id(name)).is_some();
    conformance.recall(1).await;
    assert_eq!((is_known("b"), is_known("c")), (true, false));
    // A failed read does not count as missing data.
    world.history.lose_entries().await.unwrap();
    conformance.recall(1).await;
    assert!(!is_known("c"));
    keeps_of(&world.history, "c", 2).await;
    conformance.recall(1).await;
    assert!(is_known("c"));
}

#[tokio::test(start_paused = true)]
async fn missing_record_of_lost_node_comes_from_history() {
    let world = World::new();
    world.require_firmware(
        DriftPolicy::Warn,
        BaselineDefinition {
            nodes: NODE.to_owned(),
            ..BaselineDefinition::default()
        },
    );
    world.set_marks(BTreeMap::from([(Class::Nic, nic().state().mark())]));
    world.stop_agent().await;
    let mut conformance = Conformance::new(world.records());
    let report = conformance.reconcile().await;
    assert_eq!(report.missing, 1);
    observed_state::cell(&world.core, "c0", BTreeMap::new());
    let report = conformance.reconcile().await;
    assert_eq!((report.records, report.missing), (0, 0));
    let is_pending = || world.core.view().cluster_drift.pending.contains(&id(NODE));
    assert!(is_pending(), "and says that it is not known");
    keeps(&world.history).await;
    // Any change.
    world.fold();
    let report = conformance.reconcile().await;
    assert_eq!((report.records, report.drifted), (1, 1));
    assert!(!is_pending());
}

#[tokio::test(start_paused = true)]
async fn silent_node_delays_no_other() {
    let world = World::new();
    registers(&world, "b");
    keeps_of(&world.history, "b", 1).await;
    world.require_firmware(
        DriftPolicy::Warn,
        BaselineDefinition {
            nodes: format!("{NODE},b"),
            ..BaselineDefinition::default()
        },
    );
    world.stop_agent().await;
    let mut other = nic();
    other.put("nic.0.driver", Reading::Present("x"));
    let seen = |record: &ClassRecord| {
        GossipedNode::before(BTreeMap::from([(Class::Nic, record.state().mark())]))
    };
    let cell = BTreeMap::from([(id(NODE), seen(&other)), (id("b"), seen(&nic()))]);
    observed_state::cell(&world.core, "c0", cell);
    let judging = tokio::spawn(Conformance::new(world.records()).run());
    let is_judged = async {
        let is_b = |d: &lattice_view::drift::DriftedNode| d.node == id("b");
        while !world.core.view().cluster_drift.drifted.iter().any(is_b) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    // Each silent node is awaited for two seconds.
    let waits = tokio::time::timeout(Duration::from_secs(1), is_judged);
    waits.await.unwrap();
    assert!(world.core.view().cluster_drift.pending.contains(&id(NODE)));
    judging.abort();
}

#[tokio::test(start_paused = true)]
async fn failed_fetch_is_retried_after_pause_or_elsewhere() {
    let world = World::new();
    world.set_marks(BTreeMap::from([(Class::Nic, nic().state().mark())]));
    world.stop_agent().await;
    let missing = BTreeSet::from([nic().state().digest().unwrap()]);
    let mut fetches = Fetches::new(world.records());
    let ask = |fetches: &mut Fetches| {
        fetches.ask(&world.core.view(), &missing);
        fetches.is_under_way()
    };
    assert!(ask(&mut fetches) && fetches.has_new_requests());
    fetches.next().await;
    assert!(!ask(&mut fetches), "it was just asked for");
    // Whatever else changes.
    registers(&world, "b");
    assert!(!ask(&mut fetches));
    world.set_liveness(lattice_placement::Liveness::Unreachable);
    assert!(ask(&mut fetches) && !fetches.has_new_requests());
    fetches.next().await;
    assert!(!ask(&mut fetches));
    let seen = GossipedNode::before(BTreeMap::from([(Class::Nic, nic().state().mark())]));
    observed_state::cell(&world.core, "c1", BTreeMap::from([(id("b"), seen)]));
    assert!(ask(&mut fetches));
}

#[tokio::test(start_paused = true)]
async fn baseline_does_not_wait_for_silent_node() {
    let world = World::new();
    world.stop_agent().await;
    let document = Some(document().0);
    let seen = GossipedNode {
        document,
        ..GossipedNode::before(BTreeMap::from([(Class::Nic, nic().state().mark())]))
    };
    observed_state::cell(&world.core, "c0", BTreeMap::from([(id(NODE), seen)]));
    let judging = tokio::spawn(Conformance::new(world.records()).run());
    for policy in [DriftPolicy::Warn, DriftPolicy::Deprioritise] {
        world.require_firmware(
            policy,
            BaselineDefinition {
                nodes: NODE.to_owned(),
                ..BaselineDefinition::default()
            },
        );
        let waits = tokio::time::timeout(Duration::from_secs(1), world.core.judged());
        waits.await.unwrap();
        let view = world.core.view();
        assert_eq!(view.cluster_drift.number, view.baselines.generation);
        assert!(
            view.cluster_drift.pending.contains(&id(NODE)),
            "nothing is known"
        );
    }
    judging.abort();
}

#[tokio::test(start_paused = true)]
async fn baseline_reports_node_with_fetchable_record() {
    let world = World::new();
    registers(&world, "b");
    keeps_of(&world.history, "b", 1).await;
    let seen = GossipedNode::before(BTreeMap::from([(Class::Nic, nic().state().mark())]));
    observed_state::cell(&world.core, "c0", BTreeMap::from([(id("b"), seen)]));
    let judging = tokio::spawn(Conformance::new(world.records()).run());
    // The node has nothing to be judged by, so its record is not fetched.
    tokio::time::sleep(SPACING * 2).await;
    world.require_firmware(
        DriftPolicy::Warn,
        BaselineDefinition {
            nodes: "b".to_owned(),
            ..BaselineDefinition::default()
        },
    );
    world.core.judged().await;
    let view = world.core.view();
    assert_eq!(view.drifted_keys(&id("b")), Some(1));
    judging.abort();
}
