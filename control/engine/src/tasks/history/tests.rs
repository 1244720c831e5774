//! Limits on what a node can make this control read and store.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::{
    history::PastClassState,
    preimages::MOST_PREIMAGE_BYTES,
    tasks::testing::{
        id,
        world::{NODE, World},
    },
};
use lattice_conformance::{
    Class, ClassRecord, Reading,
    history::{Cause, Entry, KeyChange},
};

fn page(journal: u64, records: &[HistoryRecord]) -> HistoryPage {
    let last = records.last().and_then(HistoryRecord::seq).unwrap_or(0);
    HistoryPage {
        journal,
        entries: serde_json::to_vec(records).unwrap().into(),
        first_kept: 1,
        next: last,
        last,
        unwritten: bytes::Bytes::from_static(b"[]"),
    }
}

fn entry(seq: u64, to: ClassMark, changes: Vec<KeyChange>) -> HistoryRecord {
    HistoryRecord::Entry(Entry {
        seq,
        at: seq,
        boot_id: "b1".to_owned(),
        cause: Cause::Periodic,
        class: Class::Nic,
        revision: 1,
        from: None,
        to,
        changes,
        more: 0,
    })
}

fn change(value: &str) -> KeyChange {
    KeyChange {
        key: "nic.0.firmware".to_owned(),
        from: Reading::Absent,
        to: Reading::Present(value.to_owned().into()),
    }
}

/// A record with a firmware text of this length.
fn record(bytes: usize) -> (Digest, ClassRecord) {
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.0.firmware", Reading::Present("x".repeat(bytes)));
    (record.state().digest().unwrap(), record)
}

/// Gives the node a journal of one entry, and the record behind it, of `bytes` bytes.
fn goes_to(world: &World, bytes: usize) -> Digest {
    let (digest, record) = record(bytes);
    world.agent_answers.lock().unwrap().preimages = vec![record.encode()];
    let schema = record.schema;
    let to = ClassMark::Complete { schema, digest };
    world.set_journal(page(1, &[entry(1, to, Vec::new())]));
    digest
}

async fn then(world: &World) -> PastClassState {
    let then = world.history.at(NODE.to_owned(), Class::Nic, u64::MAX);
    then.await.unwrap()
}

#[tokio::test]
async fn a_record_longer_than_an_honest_one_leaves_its_entry_without_it() {
    for (bytes, is_kept) in [
        (MOST_PREIMAGE_BYTES / 2, true),
        (MOST_PREIMAGE_BYTES + 100, false),
    ] {
        let world = World::new();
        let digest = goes_to(&world, bytes);
        let read = ReadHistories::new(world.records()).reconcile().await;
        assert_eq!((read.entries, read.failed), (1, 0));
        match (then(&world).await, is_kept) {
            (PastClassState::Known { record, .. }, true) => {
                assert_eq!(record.state().digest(), Some(digest));
            }
            (PastClassState::Lost { digest: lost }, false) => assert_eq!(lost, digest),
            (PastClassState::Known { .. }, false) => panic!("one of {bytes} bytes is kept"),
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn rate_limit_drops_records_but_keeps_entries() {
    let world = World::new();
    let digest = goes_to(&world, 1_000);
    let mut reads = ReadHistories::new(world.records());
    let spent = RecordQuota {
        since: Instant::now(),
        bytes: MOST_RECORDS_BYTES - 500,
    };
    reads.budgets.insert(id(NODE), spent);
    assert_eq!(reads.reconcile().await.entries, 1);
    assert_eq!(then(&world).await, PastClassState::Lost { digest });
    // Records kept before count in the next round as well.
    let (more, small) = record(100);
    world.agent_answers.lock().unwrap().preimages = vec![small.encode()];
    let schema = small.schema;
    let to = ClassMark::Complete {
        schema,
        digest: more,
    };
    world.set_journal(page(1, &[entry(2, to, Vec::new())]));
    assert_eq!(reads.reconcile().await.entries, 1);
    assert!(matches!(then(&world).await, PastClassState::Known { .. }));
    assert!(reads.budgets[&id(NODE)].bytes > spent.bytes);
}

#[tokio::test]
async fn a_node_that_has_ever_new_journals_waits() {
    let world = World::new();
    let mut reads = ReadHistories::new(world.records());
    let mut asked = 0;
    for journal in 1..=20 {
        world.set_journal(page(
            journal,
            &[entry(1, ClassMark::Incomplete, Vec::new())],
        ));
        asked += reads.reconcile().await.asked;
    }
    // The first of them is new only to this control.
    assert_eq!(asked, 1 + MOST_JOURNALS);
    assert_eq!(
        world.history.cursor(NODE.to_owned()).await.unwrap().journal,
        7
    );
}

#[tokio::test]
async fn unreadable_journal_is_polled_with_backoff() {
    let world = World::new();
    let mut reads = ReadHistories::new(world.records());
    let garbage = HistoryPage {
        entries: bytes::Bytes::from_static(b"no journal"),
        last: 7,
        ..page(1, &[])
    };
    world.set_journal(garbage);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(reads.reconcile().await.failed, 1);
        // Not before its time.
        assert_eq!(reads.reconcile().await.asked, 0);
        let failed = reads.failed.get_mut(&id(NODE)).unwrap();
        pauses.push(failed.pause.as_secs());
        failed.ask_again_at = Instant::now();
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
    world.set_journal(page(1, &[entry(8, ClassMark::Incomplete, Vec::new())]));
    assert_eq!(reads.reconcile().await.entries, 1);
    assert!(reads.failed.is_empty());
}

#[test]
fn what_is_longer_than_agents_write_it_is_not_read() {
    let read = |records: &[HistoryRecord]| match parse(&id(NODE), &page(1, records)) {
        Ok(records) => Ok(records.len()),
        Err(ReadError::Journal { reason, .. }) => Err(reason),
        Err(other) => panic!("{other}"),
    };
    let other = |seq: u64, bytes: usize| {
        let line = serde_json::json!({"seq": seq, "at": 1, "text": "x".repeat(bytes)});
        HistoryRecord::Other(line)
    };
    let lines = |n: u64| (1..=n).map(|seq| other(seq, 1)).collect::<Vec<_>>();
    assert_eq!(read(&lines(u64::from(PAGE))), Ok(512));
    let too_many = read(&lines(u64::from(PAGE) + 1)).unwrap_err();
    assert_eq!(too_many, "513 entries received where 512 were requested");

    let weight = |record: &HistoryRecord| serde_json::to_vec(record).unwrap().len();
    let spare = MOST_EVENT_BYTES - weight(&other(1, 0));
    assert_eq!(read(&[other(1, spare)]), Ok(1));
    let too_long = "entry 1 exceeds the size limit of an entry";
    assert_eq!(read(&[other(1, spare + 1)]).unwrap_err(), too_long);

    let changed = |changes| entry(1, ClassMark::Incomplete, changes);
    assert_eq!(read(&[changed(vec![change("a"); MAX_CHANGES])]), Ok(1));
    let more = changed(vec![change("a"); MAX_CHANGES + 1]);
    assert_eq!(read(&[more]).unwrap_err(), too_long);
    let spare = MOST_ENTRY_BYTES - weight(&changed(vec![change("")]));
    assert_eq!(read(&[changed(vec![change(&"x".repeat(spare))])]), Ok(1));
    let more = changed(vec![change(&"x".repeat(spare + 1))]);
    assert_eq!(read(&[more]).unwrap_err(), too_long);

    let disordered = read(&[other(2, 1), other(2, 1)]).unwrap_err();
    assert_eq!(disordered, "its entries are out of order");
}

#[test]
fn page_beyond_last_line_loses_nothing() {
    let page = |next, last| HistoryPage {
        journal: 7,
        entries: bytes::Bytes::from_static(b"[]"),
        first_kept: 1,
        next,
        last,
        unwritten: bytes::Bytes::from_static(b"[]"),
    };
    let page_of = |seq| {
        let line = serde_json::json!({"seq": seq, "at": 1});
        vec![HistoryRecord::Other(line)]
    };
    assert_eq!(read_up_to(&page(3, 9), &page_of(3), 0), 3);
    assert_eq!(read_up_to(&page(u64::MAX, 9), &page_of(3), 0), 9);
    assert_eq!(read_up_to(&page(0, 9), &page_of(3), 0), 3);
    assert_eq!(read_up_to(&page(2, 9), &[], 5), 5);
}

#[test]
fn one_node_has_so_many_bytes_of_records_kept_within_an_hour() {
    let start = Instant::now();
    let after = |minutes: u64| start + Duration::from_secs(60 * minutes);
    let mut budget = RecordQuota::new(start);
    let record = MOST_PREIMAGE_BYTES;
    let taken = (0..1_000).filter(|_| budget.try_reserve(record, after(59)));
    assert_eq!(taken.count() * record, MOST_RECORDS_BYTES);
    assert!(!budget.try_reserve(1, after(59)));
    assert!(budget.try_reserve(record, after(60)));
    assert!(!budget.try_reserve(MOST_RECORDS_BYTES, after(61)));
}
