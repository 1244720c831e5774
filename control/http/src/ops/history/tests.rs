#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_conformance::{
    ClassMark,
    history::{Entry, HistoryRecord, KeyChange},
};
use lattice_engine::history::Cursor;

const FIRST: usize = 20;

/// One change of a key per second, each to another value, then classes read for the first time: an agent that lost its
/// journal.
async fn fleet() -> History {
    let history = History::open(None).unwrap();
    let text = |value: u64| Reading::Present(value.to_string().as_str().into());
    let entry = |seq, from, cause, changes| {
        HistoryRecord::Entry(Entry {
            seq,
            at: seq * 1_000,
            boot_id: "b1".to_owned(),
            cause,
            class: Class::Nic,
            revision: seq,
            from,
            to: ClassMark::Incomplete,
            changes,
            more: 0,
        })
    };
    let mut records: Vec<HistoryRecord> = Vec::new();
    for seq in 1..=4 {
        let change = KeyChange {
            key: "nic.0.firmware".to_owned(),
            from: text(seq - 1),
            to: text(seq),
        };
        let from = Some(ClassMark::Incomplete);
        records.push(entry(seq, from, Cause::Periodic, vec![change]));
    }
    for seq in 5..5 + FIRST as u64 {
        records.push(entry(seq, None, Cause::First, Vec::new()));
    }
    let read = records.len() as u64;
    let cursor = Cursor { journal: 1, read };
    let append = history.append("gpu001".to_owned(), cursor, records, 1 << 40);
    append.await.unwrap();
    history
}

async fn asked(history: &History, changes: usize, entries: usize) -> (Vec<String>, Option<u64>) {
    let most = QueryLimits { changes, entries };
    let fleet = CombinedChanges::read(history, UnixMillis(0), &most)
        .await
        .unwrap();
    let reaches = fleet.reaches_back_to;
    let mut view = fleet.view(UnixMillis(0));
    assert_eq!(view.reaches_back_to, reaches.map(|at| time(UnixMillis(at))));
    view.changes.sort_by(|a, b| a.first.cmp(&b.first));
    let to = view.changes.into_iter().map(|change| change.change.to);
    (to.collect(), reaches)
}

#[tokio::test]
async fn truncated_changes_show_range() {
    let history = fleet().await;
    let texts = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        asked(&history, 2, 1_000).await,
        (texts(&["3", "4"]), Some(3_000)),
        "what was read for the first time takes no change's place"
    );
    assert_eq!(
        asked(&history, 4, 1_000).await,
        (texts(&["1", "2", "3", "4"]), None),
        "as many as there are is not too many"
    );
    assert_eq!(
        asked(&history, 4, FIRST + 1).await,
        (texts(&["4"]), Some(4_000))
    );
}
