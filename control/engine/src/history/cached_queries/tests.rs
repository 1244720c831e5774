#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::history::Cursor;
use lattice_conformance::{
    ClassMark, ClassRecord, Reading,
    history::{Cause, Entry, HistoryRecord, KeyChange},
};

const NODE: &str = "gpu001";
const KEY: &str = "nic.0.firmware";

fn record(firmware: &str) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.require(KEY, Reading::Present(firmware));
    record
}

fn entry(seq: u64, class: Class, (from, to): (ClassMark, ClassMark), key: &str) -> HistoryRecord {
    let text = |value: u64| Reading::Present(value.to_string().as_str().into());
    HistoryRecord::Entry(Entry {
        seq,
        at: seq * 1_000,
        boot_id: "b1".to_owned(),
        cause: Cause::Periodic,
        class,
        revision: seq,
        from: Some(from),
        to,
        changes: vec![KeyChange {
            key: key.to_owned(),
            from: text(seq - 1),
            to: text(seq),
        }],
        more: 0,
    })
}

async fn append_records(history: &History, records: Vec<HistoryRecord>) {
    let read = records.iter().filter_map(HistoryRecord::seq).max().unwrap();
    let cursor = Cursor { journal: 1, read };
    let append = history.append(NODE.to_owned(), cursor, records, 1 << 40);
    append.await.unwrap();
}

async fn asked(history: &History) -> Option<UnchangedSince> {
    let asked = vec![(NODE.to_owned(), Class::Nic, KEY.to_owned())];
    history.unchanged_since_each(asked).await.pop().unwrap()
}

fn at(at: u64) -> Option<UnchangedSince> {
    let at_least = false;
    Some(UnchangedSince { at, at_least })
}

#[tokio::test]
async fn an_answer_is_kept_until_the_node_has_another_line_or_a_record_comes() {
    let history = History::open(None).unwrap();
    assert_eq!(asked(&history).await, None);
    let marks = ["1", "2", "3"].map(|firmware| record(firmware).state().mark());
    let nic = |seq, from, to| entry(seq, Class::Nic, (from, to), KEY);
    append_records(&history, vec![nic(2, marks[0], marks[1])]).await;
    assert_eq!(asked(&history).await, at(2_000));
    let is_kept = || {
        let known = history.0.known.since.lock();
        known.get(NODE).is_some_and(|(_, keys)| !keys.is_empty())
    };
    assert!(!is_kept(), "its record is still to come");
    for firmware in ["2", "3"] {
        let record = record(firmware);
        let digest = record.state().digest().unwrap();
        let keep = history.keep_record(digest, record.encode());
        keep.await.unwrap();
    }
    assert_eq!(asked(&history).await, at(2_000));
    assert!(is_kept());
    assert_eq!(asked(&history).await, at(2_000), "as it is kept");
    append_records(&history, vec![nic(3, marks[1], marks[2])]).await;
    assert_eq!(asked(&history).await, at(3_000));
}

/// A query about each of many nodes must not read their whole history.
#[tokio::test]
async fn entries_of_other_classes_are_among_those_that_a_question_looks_at() {
    let history = History::open(None).unwrap();
    let [before, after] = ["1", "2"].map(|firmware| record(firmware).state().mark());
    let nic = entry(2, Class::Nic, (before, after), KEY);
    let unread = (ClassMark::Incomplete, ClassMark::Incomplete);
    let other = |seq| entry(seq, Class::Kernel, unread, "kernel.cmdline");
    let count = MAX_QUERIED_ENTRIES as u64;
    append_records(&history, vec![nic]).await;
    append_records(&history, (3..2 + count).map(other).collect()).await;
    assert_eq!(asked(&history).await, at(2_000), "the last it looks at");
    append_records(&history, vec![other(2 + count)]).await;
    assert_eq!(asked(&history).await, None);
}

#[tokio::test]
async fn why_a_class_is_not_known_is_of_its_newest_entry() {
    let history = History::open(None).unwrap();
    let missing = async || history.unknown_keys(NODE.to_owned()).await.unwrap();
    assert!(missing().await.is_empty());
    let unread = (ClassMark::Incomplete, ClassMark::Incomplete);
    append_records(&history, vec![entry(2, Class::Nic, unread, KEY)]).await;
    assert_eq!(missing().await[&Class::Nic][0].0, KEY);
    let known = (ClassMark::Incomplete, record("1").state().mark());
    append_records(&history, vec![entry(3, Class::Nic, known, KEY)]).await;
    assert!(missing().await.is_empty());
}
