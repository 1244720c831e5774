#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_agent_rpc::{GetHistory, HistoryPage};
use lattice_conformance::history::{Cause, Entry, ReadContext};
use lattice_conformance::{ClassRecord, Reading};
use std::path::Path;

fn open(folder: &Path) -> (NodeHistory, RestoredHistory) {
    NodeHistory::open(HistorySettings {
        folder: folder.join("history"),
        limits: Limits {
            segment_bytes: 16 << 10,
            waiting_lines: 8,
            ..Limits::default()
        },
        new_id: 5,
    })
}

/// Queues one more change of a class with 40 keys, as an agent does.
fn change(history: &NodeHistory, machine: &mut History, version: u64) {
    let mut nic = ClassRecord::new(Class::Nic);
    for n in 0..40 {
        nic.require(
            format!("nic.{n}.firmware"),
            Reading::Present(version.to_string()),
        );
    }
    let digest = nic.state().digest().unwrap();
    let bytes = Bytes::from(nic.encode());
    let records = [(Class::Nic, nic)].into();
    let seen = ReadContext {
        at: version,
        boot_id: "boot-1".to_owned(),
        cause: Cause::Periodic,
    };
    for _ in 0..2 {
        let lines = machine.observe(&records, &seen).lines;
        history.record(lines, vec![(digest, bytes.clone())]);
    }
}

async fn page(history: &NodeHistory, since: u64, most: u32) -> (HistoryPage, Vec<Entry>) {
    let page = history.page(GetHistory { since, most }).await.unwrap();
    let entries = serde_json::from_slice(&page.entries).unwrap();
    (page, entries)
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_and_without_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let (history, mut restored) = open(folder.path());
    for version in 1..=300 {
        change(&history, &mut restored.history, version);
        history.write().await;
    }
    let (mut since, mut numbers, mut pages) = (0, Vec::new(), 0);
    loop {
        let (page, entries) = page(&history, since, 50).await;
        assert_eq!((page.first_kept, page.last, page.journal), (1, 300, 5));
        assert!(entries.len() <= 50);
        assert!(page.entries.len() <= 300 << 10);
        numbers.extend(entries.iter().map(|entry| entry.seq));
        since = page.next;
        pages += 1;
        if page.next == page.last {
            break;
        }
    }
    assert_eq!(numbers, (1..=300).collect::<Vec<u64>>());
    assert!(pages >= 6, "{pages}");
    let (after, none) = page(&history, 300, 50).await;
    assert_eq!((none.len(), after.next), (0, 300));
    let (beyond, none) = page(&history, 900, 0).await;
    assert_eq!((none.len(), beyond.next, beyond.last), (0, 900, 300));
}

#[tokio::test]
async fn what_waits_is_shown_apart_and_is_not_numbered_as_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (history, mut restored) = open(folder.path());
    change(&history, &mut restored.history, 1);
    let (before, entries) = page(&history, 0, 10).await;
    assert_eq!((entries.len(), before.last, before.next), (0, 0, 0));
    let unwritten: Vec<Entry> = serde_json::from_slice(&before.unwritten).unwrap();
    assert_eq!(unwritten.len(), 1);
    let digest = unwritten[0].to.digest().unwrap();
    assert!(history.content(digest).await.is_some());
    history.write().await;
    let (after, entries) = page(&history, 0, 10).await;
    assert_eq!((entries.len(), after.last), (1, 1));
    assert_eq!(&after.unwritten[..], b"[]");
    assert!(history.content(digest).await.is_some());
    assert!(history.content(Digest([1; 32])).await.is_none());
}

/// A written line leaves the queue a moment before the status changes.
#[tokio::test]
async fn entry_is_readable_before_notification() {
    let folder = tempfile::tempdir().unwrap();
    let (history, mut restored) = open(folder.path());
    change(&history, &mut restored.history, 1);
    {
        let mut journal = history.0.journal.try_lock().unwrap();
        let journal = journal.as_mut().unwrap();
        let waiting = history.state().waiting.clone();
        let lines: Vec<Line> = waiting.into_iter().map(|waiting| waiting.line).collect();
        journal.append(&lines, &[]).unwrap();
        history.remove_written(journal, lines);
    }
    assert_eq!(history.status().borrow().last, 0);
    let (page, entries) = page(&history, 0, 10).await;
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.seq).collect();
    assert_eq!((numbers, page.last, page.next), (vec![1], 1, 1));
    assert_eq!(&page.unwritten[..], b"[]");
}

#[tokio::test]
async fn what_cannot_be_read_is_a_fault_and_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("history");
    std::fs::write(&place, "not a folder").unwrap();
    let (history, mut restored) = open(folder.path());
    assert!(history.status().borrow().fault.is_some());
    change(&history, &mut restored.history, 1);
    history.write().await;
    assert_eq!(std::fs::read(&place).unwrap(), b"not a folder");
    let (page, _) = page(&history, 0, 10).await;
    assert_eq!(page.last, 0);
    assert!(page.unwritten.len() > 2);
}

#[tokio::test]
async fn queue_limit_keeps_restored_state_correct() {
    let folder = tempfile::tempdir().unwrap();
    let (history, mut restored) = open(folder.path());
    for version in 1..=20 {
        change(&history, &mut restored.history, version);
    }
    history.write().await;
    let (page, entries) = page(&history, 0, 100).await;
    assert_eq!(page.last, 20);
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(numbers, (13..=20).collect::<Vec<u64>>());
    let (_, again) = open(folder.path());
    assert_eq!(again.history.checkpoint(), restored.history.checkpoint());
    assert_eq!(again.preimages.len(), 1);
}

#[tokio::test]
async fn while_the_disk_refuses_events_make_room_for_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (history, mut restored) = open(folder.path());
    change(&history, &mut restored.history, 1);
    for at in 0..500 {
        let module = format!("m{at}");
        let line = restored.history.record_event(
            "boot-1",
            lattice_conformance::history::FoldedLine {
                what: lattice_conformance::history::EventKind::Driver { module },
                at,
                first_at: at,
                count: 1,
                left_out: 0,
            },
        );
        history.record(vec![line], Vec::new());
    }
    change(&history, &mut restored.history, 2);
    history.write().await;
    let page = history
        .page(GetHistory {
            since: 0,
            most: 100,
        })
        .await
        .unwrap();
    let records: Vec<HistoryRecord> = serde_json::from_slice(&page.entries).unwrap();
    let entries = records
        .iter()
        .filter(|r| matches!(r, HistoryRecord::Entry(_)));
    assert_eq!(
        (entries.count(), records.len()),
        (2, 7),
        "as many as may wait, beside the boot"
    );
    let numbers: Vec<u64> = records.iter().filter_map(HistoryRecord::seq).collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    let (_, again) = open(folder.path());
    assert_eq!(again.history.checkpoint(), restored.history.checkpoint());
    assert_eq!(again.newest, records);
}

#[tokio::test]
async fn a_preimage_that_was_lost_is_written_again_when_the_class_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (history, mut restored) = open(folder.path());
    change(&history, &mut restored.history, 1);
    history.write().await;
    let (_, entries) = page(&history, 0, 10).await;
    let digest = entries[0].to.digest().unwrap();
    let bytes = history.content(digest).await.unwrap();
    let file = folder
        .path()
        .join("history/content")
        .join(digest.to_string());
    for damage in [true, false] {
        match damage {
            true => std::fs::write(&file, "not what it was").unwrap(),
            false => std::fs::remove_file(&file).unwrap(),
        }
        let (history, restored) = open(folder.path());
        assert!(restored.preimages.is_empty());
        // The next read finds the published state: no line, but the preimage.
        history.record(Vec::new(), vec![(digest, bytes.clone())]);
        assert_eq!(history.content(digest).await.as_ref(), Some(&bytes));
        history.write().await;
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
        let (_, restored) = open(folder.path());
        assert_eq!(restored.preimages, [(Class::Nic, digest, bytes.clone())]);
    }
    // A preimage without an entry is not kept.
    let (history, _) = open(folder.path());
    history.record(Vec::new(), vec![(Digest([1; 32]), bytes)]);
    history.write().await;
    assert!(history.content(Digest([1; 32])).await.is_none());
    let kept = std::fs::read_dir(file.parent().unwrap()).unwrap();
    assert_eq!(kept.count(), 1);
}

#[tokio::test]
async fn a_journal_that_could_not_be_read_is_tried_again_and_gone_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let (place, away) = (folder.path().join("history"), folder.path().join("away"));
    let (history, mut restored) = open(folder.path());
    for version in 1..=3 {
        change(&history, &mut restored.history, version);
    }
    history.write().await;
    drop(history);
    std::fs::rename(&place, &away).unwrap();
    std::fs::write(&place, "not a folder").unwrap();

    let (history, restored) = open(folder.path());
    let machine = Arc::new(Mutex::new(restored.history));
    let goes_on = machine.clone();
    history.set_continuation(move |history, reopened| {
        let mut machine = goes_on.lock();
        let (restored, events) = reopened.take(history);
        *machine = restored.history;
        let lines = events
            .into_iter()
            .map(|event| machine.record_event("b", event));
        history.record(lines.collect(), Vec::new());
    });
    for version in 10..=40 {
        change(&history, &mut machine.lock(), version);
    }
    let happened = lattice_conformance::history::FoldedLine {
        what: lattice_conformance::history::EventKind::Driver {
            module: "m".to_owned(),
        },
        at: 50,
        first_at: 50,
        count: 1,
        left_out: 0,
    };
    let line = machine.lock().record_event("b", happened);
    {
        // The queue is over its limit, and the dropped lines need no checkpoint without a journal.
        let mut state = history.state();
        assert_eq!((state.waiting.len(), state.dropped.len()), (8, 0));
        assert_eq!(state.lost, 31 + 1 - 8, "entries and the boot");
        state.waiting.pop_front();
    }
    history.record(vec![line], Vec::new());
    history.write().await;
    assert!(history.status().borrow().fault.is_some());

    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&away, &place).unwrap();
    history.write().await;
    let status = history.status().borrow().clone();
    assert_eq!((status.fault, status.last), (None, 4));
    change(&history, &mut machine.lock(), 99);
    history.write().await;
    let wanted = GetHistory { since: 0, most: 99 };
    let page = history.page(wanted).await.unwrap();
    let records: Vec<HistoryRecord> = serde_json::from_slice(&page.entries).unwrap();
    let numbers: Vec<u64> = records.iter().filter_map(HistoryRecord::seq).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5], "as if it had been read at once");
    assert!(matches!(&records[3], HistoryRecord::Event(event) if event.at == 50));
    let HistoryRecord::Entry(last) = &records[4] else {
        panic!("{records:?}");
    };
    let HistoryRecord::Entry(third) = &records[2] else {
        panic!("{records:?}");
    };
    assert_eq!(last.from, Some(third.to), "what came between was dropped");
    let (_, again) = open(folder.path());
    assert_eq!(again.history.checkpoint(), machine.lock().checkpoint());
    assert_eq!(again.preimages.len(), 1);
}
