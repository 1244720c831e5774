//! What a control that starts anew makes of nodes that are down.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    history::Cursor,
    tasks::testing::{
        id,
        world::{NODE, World},
    },
    view::United,
};
use lattice_hwprobe::{
    Reading,
    history::{Cause, Entry, Record},
};

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
        facts: Default::default(),
    };
    document.encode().unwrap()
}

/// A control of before kept what the node told.
async fn keeps(core: &Core) {
    let (digest, bytes) = document();
    let documents = vec![(NODE.to_owned(), digest, bytes)];
    core.history.keep_documents(documents).await.unwrap();
    let record = nic();
    let mark = record.state().mark();
    let kept = core
        .history
        .keep_record(mark.digest().unwrap(), record.encode());
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
    let cursor = Cursor {
        journal: 1,
        read: 1,
    };
    let told = vec![Record::Entry(entry)];
    let append = core.history.append(NODE.to_owned(), cursor, told, 2_000);
    append.await.unwrap();
}

#[tokio::test]
async fn the_document_and_the_records_of_a_node_that_is_down_come_from_what_is_kept() {
    let world = World::new();
    keeps(&world.core).await;
    world.hangs_up().await;
    let seen = Seen {
        document: Some(document().0),
        ..Seen::before(BTreeMap::from([(Class::Nic, nic().state().mark())]))
    };
    let cell = BTreeMap::from([(id(NODE), seen)]);
    observe::cell(&world.core, "", cell);
    let mut conformance = Conformance::new(world.core.clone());
    let report = conformance.reconcile().await;
    assert_eq!(report.documents, 1);
    let view = world.core.view();
    let entry = view.node(&id(NODE)).unwrap();
    assert_eq!(entry.document_digest, Some(document().0));
    // One that announces another document is not that node any more.
    let other = Seen {
        document: Some(Digest([7; 32])),
        ..entry.seen.clone().unwrap()
    };
    let cell = BTreeMap::from([(id(NODE), other)]);
    observe::cell(&world.core, "", cell);
    assert_eq!(conformance.reconcile().await.documents, 0);
    let digest = nic().state().digest().unwrap();
    let missing = BTreeSet::from([digest]);
    let view = world.core.view();
    assert_eq!(conformance.fetch_records(&view, &missing).await, 1);
    assert!(world.core.preimages.record(&digest).is_some());
}

#[tokio::test]
async fn who_gossips_nothing_is_what_it_was() {
    let world = World::new();
    keeps(&world.core).await;
    let view = world.core.view();
    // Its BMC still tells of a class.
    let mut unheard = NodeEntry::new(id(NODE));
    let of_bmc = United {
        base: None,
        mark: ClassRecord::new(Class::Bmc).state().mark(),
        earlier: None,
    };
    unheard.united = BTreeMap::from([(Class::Bmc, of_bmc)]);
    unheard.unite_marks();
    let was = recall(&world.core, &unheard).await.unwrap();
    assert_eq!(was.marks()[&Class::Nic], nic().state().mark());
    assert_eq!(was.document_digest, Some(document().0));
    // Nobody knows anything of another one.
    assert!(
        recall(&world.core, &NodeEntry::new(id("b")))
            .await
            .is_none()
    );
    // It is put in place where the node gossips nothing, and there alone.
    observe::recalled(&world.core, vec![was.clone()]);
    let gossips = world.core.view();
    assert!(gossips.node(&id(NODE)).unwrap().was.is_none());
    observe::cell(
        &world.core,
        &view.node(&id(NODE)).unwrap().seen.as_ref().unwrap().cell,
        BTreeMap::new(),
    );
    let left = world.core.view();
    assert!(left.node(&id(NODE)).unwrap().seen.is_none());
    assert!(left.as_known(&id(NODE)).is_some(), "it was just here");
}
