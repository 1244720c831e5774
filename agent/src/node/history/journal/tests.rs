#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::node::history::preimage_files;
use lattice_conformance::{
    Class, ClassRecord, Reading,
    history::{Cause, History, ReadContext},
};

/// Node with one class; its firmware changes on request.
struct Node {
    history: History,
    version: u32,
}

fn records(version: u32) -> std::collections::BTreeMap<Class, ClassRecord> {
    let mut nic = ClassRecord::new(Class::Nic);
    nic.require("nic.0.firmware", Reading::Present(format!("28.{version}")));
    [(Class::Nic, nic)].into()
}

impl Node {
    fn new(history: History) -> Self {
        Self {
            history,
            version: 0,
        }
    }

    /// Lines of one change, and the preimage that it publishes.
    fn change(&mut self) -> (Vec<Line>, Vec<(Digest, Bytes)>) {
        self.version += 1;
        let records = records(self.version);
        let seen = ReadContext {
            at: u64::from(self.version),
            boot_id: "boot-1".to_owned(),
            cause: Cause::Periodic,
        };
        let mut lines = self.history.observe(&records, &seen).lines;
        lines.extend(self.history.observe(&records, &seen).lines);
        let record = &records[&Class::Nic];
        let digest = record.state().digest().unwrap();
        (lines, vec![(digest, Bytes::from(record.encode()))])
    }
}

fn limits() -> Limits {
    Limits {
        bytes: 64 << 10,
        entries: 100,
        events: 40,
        segment_bytes: 4 << 10,
        content_bytes: 1 << 20,
        waiting_lines: 4,
    }
}

fn open(folder: &Path) -> OpenedJournal {
    Journal::open(folder, limits(), 42, 1000).unwrap()
}

fn write(found: &mut OpenedJournal, node: &mut Node, changes: u32) {
    for _ in 0..changes {
        let (lines, preimages) = node.change();
        found.journal.append(&lines, &preimages).unwrap();
    }
}

fn numbers(found: &OpenedJournal) -> Vec<u64> {
    found
        .records
        .iter()
        .filter_map(HistoryRecord::seq)
        .collect()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = listed.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    paths
}

#[test]
fn what_was_written_is_found_again_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("history");
    let mut found = open(&at);
    assert!(
        !at.exists(),
        "nothing is made before there is something to write"
    );
    let mut node = Node::new(History::default());
    write(&mut found, &mut node, 5);
    let again = open(&at);
    assert_eq!(numbers(&again), [1, 2, 3, 4, 5]);
    assert_eq!(&again.journal.checkpoint, node.history.checkpoint());
    assert_eq!((again.journal.id, again.journal.segments.len()), (42, 1));
    let digest = again.journal.checkpoint.digests().next().unwrap();
    let content = preimage_files::read(&at.join("content"), &digest);
    assert!(content.is_some());
}

#[test]
fn the_journal_keeps_its_name() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &mut open(folder.path()),
        &mut Node::new(History::default()),
        1,
    );
    let again = Journal::open(folder.path(), limits(), 43, 1000).unwrap();
    assert_eq!(again.journal.id, 42);
}

#[test]
fn drops_truncated_line_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &mut open(folder.path()),
        &mut Node::new(History::default()),
        3,
    );
    let segment = files(folder.path(), "jsonl").remove(0);
    let whole = std::fs::read(&segment).unwrap();
    let last_line = whole[..whole.len() - 1]
        .iter()
        .rposition(|b| *b == b'\n')
        .unwrap()
        + 1;
    for cut in [last_line + 1, last_line + 20, whole.len() - 1] {
        std::fs::write(&segment, &whole[..cut]).unwrap();
        let mut found = open(folder.path());
        assert_eq!((numbers(&found), found.journal.damaged), (vec![1, 2], 0));
        assert_eq!(std::fs::read(&segment).unwrap().len(), last_line);
        let mut node = Node::new(History::restore(found.journal.checkpoint.clone(), |_| None));
        node.version = 7;
        write(&mut found, &mut node, 1);
        assert_eq!(numbers(&open(folder.path())), [1, 2, 3]);
        std::fs::write(&segment, &whole).unwrap();
    }
}

#[test]
fn a_changed_middle_is_kept_aside_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &mut open(folder.path()),
        &mut Node::new(History::default()),
        4,
    );
    let segment = files(folder.path(), "jsonl").remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(8).position(|w| w == b"\"seq\":2,").unwrap();
    bytes[at + 6] = b'9';
    std::fs::write(&segment, &bytes).unwrap();
    let found = open(folder.path());
    assert_eq!((numbers(&found), found.journal.damaged), (vec![1, 3, 4], 1));
    let aside = files(folder.path(), "damaged");
    assert_eq!(std::fs::read(&aside[0]).unwrap(), bytes);
    // The damage is reported once; the remaining segment is valid.
    let mut again = open(folder.path());
    assert_eq!((numbers(&again), again.journal.damaged), (vec![1, 3, 4], 0));
    let mut node = Node::new(History::restore(again.journal.checkpoint.clone(), |_| None));
    node.version = 9;
    write(&mut again, &mut node, 1);
    assert_eq!(numbers(&open(folder.path())), [1, 3, 4, 5]);
}

#[test]
fn the_oldest_goes_segment_by_segment_with_the_preimages_only_it_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = open(folder.path());
    let mut node = Node::new(History::default());
    write(&mut found, &mut node, 400);
    let first = found.journal.first_kept();
    assert!((300..=330).contains(&first), "{first}");
    let again = open(folder.path());
    assert_eq!(numbers(&again), (first..=400).collect::<Vec<_>>());
    assert_eq!(&again.journal.checkpoint, node.history.checkpoint());
    let bytes: u64 = again.journal.segments.iter().map(|s| s.bytes).sum();
    assert!(bytes <= limits().bytes, "{bytes}");
    let kept = std::fs::read_dir(folder.path().join("content"))
        .unwrap()
        .count() as u64;
    // Preimages of the kept entries, and the one that the first of them replaced.
    assert_eq!(kept, 400 - first + 2);
}

#[test]
fn preimage_limit_drops_oldest_unpublished() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = limits();
    small.content_bytes = 300;
    let mut found = Journal::open(folder.path(), small, 1, 1000).unwrap();
    write(&mut found, &mut Node::new(History::default()), 50);
    let content = folder.path().join("content");
    let bytes: u64 = std::fs::read_dir(&content)
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes <= 300, "{bytes}");
    let published = found.journal.checkpoint.digests().next().unwrap();
    assert!(preimage_files::read(&content, &published).is_some());
}

#[test]
fn what_was_dropped_unwritten_is_in_the_next_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = open(folder.path());
    let mut node = Node::new(History::default());
    write(&mut found, &mut node, 2);
    let (dropped, _) = node.change();
    found.journal.skip(&dropped);
    write(&mut found, &mut node, 1);
    let again = open(folder.path());
    assert_eq!(numbers(&again), [1, 2, 4]);
    assert_eq!(again.journal.segments.len(), 2);
    assert_eq!(&again.journal.checkpoint, node.history.checkpoint());
}

#[test]
fn a_preimage_that_was_changed_is_not_handed_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = open(folder.path());
    write(&mut found, &mut Node::new(History::default()), 1);
    let digest = found.journal.checkpoint.digests().next().unwrap();
    let path = folder.path().join("content").join(digest.to_string());
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(preimage_files::read(&folder.path().join("content"), &digest).is_none());
    assert!(!path.exists());
}

fn happened(history: &mut History, at: u64) -> Line {
    let module = format!("m{at}");
    history.record_event(
        "boot-1",
        lattice_conformance::history::FoldedLine {
            what: lattice_conformance::history::EventKind::Driver { module },
            at,
            first_at: at,
            count: 1,
            left_out: 0,
        },
    )
}

#[test]
fn a_flood_of_events_costs_no_entry_and_makes_room_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = open(folder.path());
    let mut node = Node::new(History::default());
    write(&mut found, &mut node, 3);
    for at in 0..1_000 {
        let line = happened(&mut node.history, at);
        found.journal.append(&[line], &[]).unwrap();
        if at % 100 == 50 {
            write(&mut found, &mut node, 1);
        }
    }
    write(&mut found, &mut node, 1);
    let again = open(folder.path());
    let is_entry = |record: &&HistoryRecord| matches!(record, HistoryRecord::Entry(_));
    let entries = again.records.iter().filter(is_entry).count();
    let events = again.records.len() - entries;
    assert_eq!(entries, 14, "none of them is lost");
    // The limit, minus at most the share of one segment.
    assert!((35..=40).contains(&events), "{events}");
    let numbers = numbers(&again);
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    assert_eq!(numbers.last(), Some(&1_014));
    assert_eq!(&again.journal.checkpoint, node.history.checkpoint());
    assert_eq!(again.journal.damaged, 0);
    let files = files(folder.path(), "jsonl").len();
    assert!(
        files <= 25,
        "{files}: segments without anything are removed"
    );
    let digest = again.journal.checkpoint.digests().next().unwrap();
    assert!(preimage_files::read(&folder.path().join("content"), &digest).is_some());
}

#[test]
fn where_bytes_are_short_events_go_before_entries() {
    let folder = tempfile::tempdir().unwrap();
    let narrow = Limits {
        bytes: 24 << 10,
        events: 1_000,
        ..limits()
    };
    let open = || Journal::open(folder.path(), narrow.clone(), 42, 1000).unwrap();
    let mut found = open();
    let mut node = Node::new(History::default());
    write(&mut found, &mut node, 20);
    for at in 0..500 {
        let line = happened(&mut node.history, at);
        found.journal.append(&[line], &[]).unwrap();
        let bytes: u64 = found.journal.segments.iter().map(|s| s.bytes).sum();
        assert!(bytes <= narrow.bytes, "{bytes}");
    }
    let again = open();
    let is_entry = |record: &&HistoryRecord| matches!(record, HistoryRecord::Entry(_));
    let entries = again.records.iter().filter(is_entry).count();
    assert_eq!(entries, 20, "none of them is lost");
    let events = again.records.len() - entries;
    assert!((1..500).contains(&events), "{events}");
    assert_eq!(&again.journal.checkpoint, node.history.checkpoint());
    // Without events, entries are removed by the same limits.
    write(&mut found, &mut node, 200);
    let bytes: u64 = found.journal.segments.iter().map(|s| s.bytes).sum();
    assert!(bytes <= narrow.bytes, "{bytes}");
    assert!(found.journal.first_kept() > 1);
}

#[test]
fn a_journal_from_before_there_were_events_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let segment = folder.path().join("0000000001.jsonl");
    // Lines in their original form: none of them may change.
    let checkpoint = r#"{"checkpoint":{"seq":0,"boot_id":null,"classes":{}}}"#;
    let boot = r#"{"boot":{"boot_id":"boot-1","at":5}}"#;
    let entry = r#"{"entry":{"seq":1,"at":4,"boot_id":"boot-1","cause":"first","class":"nic","revision":1,"from":null,"to":"incomplete","changes":[],"more":0}}"#;
    let mark = serde_json::to_string(&lattice_conformance::ClassMark::Incomplete).unwrap();
    let entry = entry.replace("\"incomplete\"", &mark);
    let sum = |json: &str| blake3::hash(json.as_bytes()).to_hex().as_str()[..16].to_owned();
    let lines = [checkpoint, &entry, boot];
    let text: String = lines
        .iter()
        .map(|json| format!("{} {json}\n", sum(json)))
        .collect();
    std::fs::write(&segment, &text).unwrap();
    let mut found = open(folder.path());
    assert_eq!((numbers(&found), found.journal.damaged), (vec![1], 0));
    let mut history = History::restore(found.journal.checkpoint.clone(), |_| None);
    assert_eq!(history.boot_before("boot-1"), None);
    let line = happened(&mut history, 9);
    found.journal.append(&[line], &[]).unwrap();
    assert_eq!(numbers(&open(folder.path())), [1, 2]);
    let now = std::fs::read_to_string(&segment).unwrap();
    assert!(now.starts_with(&text));
}

#[test]
fn keeps_newer_format_despite_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::new(History::default());
    let mut found = open(folder.path());
    write(&mut found, &mut node, 2);
    let flood = serde_json::json!({"flood": {"seq": 3, "at": 9, "depth_mm": 40}});
    let newer = encode(&Line::Other(flood)).unwrap();
    let segment = files(folder.path(), "jsonl").remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    let damaged_at = bytes.windows(8).position(|w| w == b"\"seq\":1,").unwrap();
    bytes.extend_from_slice(&newer);
    std::fs::write(&segment, &bytes).unwrap();
    let found = open(folder.path());
    assert_eq!((numbers(&found), found.journal.damaged), (vec![1, 2], 0));
    assert_eq!(found.journal.checkpoint.seq, 3, "its number is taken");
    bytes[damaged_at + 6] = b'7';
    std::fs::write(&segment, &bytes).unwrap();
    let mut found = open(folder.path());
    assert_eq!((numbers(&found), found.journal.damaged), (vec![2], 1));
    let mut history = History::restore(found.journal.checkpoint.clone(), |_| None);
    let line = happened(&mut history, 10);
    assert_eq!(line.seq(), Some(4));
    found.journal.append(&[line], &[]).unwrap();
    let kept = std::fs::read(&segment).unwrap();
    assert!(kept.windows(newer.len()).any(|part| part == &newer[..]));
}

#[test]
fn reuses_number_of_truncated_event() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::new(History::default());
    let mut found = open(folder.path());
    write(&mut found, &mut node, 1);
    let line = happened(&mut node.history, 5);
    found
        .journal
        .append(std::slice::from_ref(&line), &[])
        .unwrap();
    let segment = files(folder.path(), "jsonl").remove(0);
    let whole = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &whole[..whole.len() - 7]).unwrap();
    let mut found = open(folder.path());
    assert_eq!((numbers(&found), found.journal.damaged), (vec![1], 0));
    found.journal.append(&[line], &[]).unwrap();
    assert_eq!(numbers(&open(folder.path())), [1, 2]);
    assert_eq!(std::fs::read(&segment).unwrap(), whole);
}
