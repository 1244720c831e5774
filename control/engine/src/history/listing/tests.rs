#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::history::{
    BmcEntry, Cursor, DrainTurn, NodeObservation, TimedObservations,
    line_kind::{MAX_TRANSITIONS, MOST_CHANGES, MOST_EVENTS, MOST_LIVENESS},
};
use lattice_conformance::{
    ClassMark,
    history::{Cause, Entry, Event, EventKind, HistoryRecord},
};
use serde_json::json;
use std::collections::BTreeMap;

const NODE: &str = "gpu001";
const NOW: u64 = 1_000_000;

fn entry(seq: u64, at: u64, class: Class) -> HistoryRecord {
    HistoryRecord::Entry(Entry {
        seq,
        at,
        boot_id: "b1".to_owned(),
        cause: Cause::Periodic,
        class,
        revision: seq,
        from: Some(ClassMark::Incomplete),
        to: ClassMark::Disabled,
        changes: Vec::new(),
        more: 0,
    })
}

fn event(seq: u64, at: u64) -> HistoryRecord {
    HistoryRecord::Event(Event {
        seq,
        at,
        boot_id: "b1".to_owned(),
        count: 1,
        first_at: None,
        left_out: 0,
        event: EventKind::Driver {
            module: format!("m{seq}"),
        },
    })
}

fn drained() -> NodeObservation {
    NodeObservation::Drain {
        turn: DrainTurn::Set,
        owner: "service:health".to_owned(),
        reason: "gpu.xid.79".to_owned(),
        late: false,
    }
}

fn note(store: &HistoryStore, node: &str, when: u64) {
    let note = TimedObservations {
        node: node.to_owned(),
        happened: vec![(when, drained())],
        comparison_state: None,
    };
    store.note(&[note], None).unwrap();
}

fn read(journal: u64, read: u64) -> Cursor {
    Cursor { journal, read }
}

fn append(store: &HistoryStore, last: u64, records: &[HistoryRecord]) -> u64 {
    store.append(NODE, read(7, last), records, NOW).unwrap()
}

fn whens(items: &[HistoryItem]) -> Vec<u64> {
    items.iter().map(|item| item.position().when).collect()
}

/// A change, a driver event, a drain observed by control in between, and a change that arrived late.
fn mixed() -> HistoryStore {
    let store = HistoryStore::in_memory().unwrap();
    append(&store, 2, &[entry(1, 1_000, Class::Nic), event(2, 2_000)]);
    note(&store, NODE, 5_000);
    // Reported after the drain, and older; the kernel log is reported later still.
    append(&store, 4, &[entry(3, 4_000, Class::Gpu), event(4, 1_500)]);
    store
}

#[test]
fn merges_sources_by_time() {
    let store = mixed();
    let all = store.list(NODE, &Listing::default(), 100).unwrap();
    assert_eq!(whens(&all), [5_000, 4_000, 2_000, 1_500, 1_000]);
    let numbers: Vec<u64> = all.iter().map(|item| item.position().number).collect();
    assert_eq!(numbers, [3, 4, 2, 5, 1]);
    for item in &all {
        let found = store
            .item_numbered(NODE, item.position().number, false)
            .unwrap();
        assert_eq!(found.as_ref(), Some(item));
    }
    assert_eq!(store.item_numbered(NODE, 6, false).unwrap(), None);
    assert_eq!(store.item_numbered("gpu002", 1, false).unwrap(), None);
}

#[test]
fn pages_put_together_are_the_list_also_while_more_comes() {
    let store = mixed();
    for size in 1..=6 {
        let (mut seen, mut listing) = (Vec::new(), Listing::default());
        loop {
            let page = store.list(NODE, &listing, size).unwrap();
            let Some(last) = page.last() else {
                break;
            };
            listing.after = Some(last.position().to_string().parse().unwrap());
            seen.extend(page);
            note(&store, NODE, 9_000 + size as u64);
        }
        let mut all = store.list(NODE, &Listing::default(), 100).unwrap();
        all.retain(|item| item.position().when < 9_000);
        seen.retain(|item| item.position().when < 9_000);
        assert_eq!(seen, all, "pages of {size}");
    }
}

#[test]
fn a_class_shows_its_changes_alone_and_kinds_and_times_are_chosen() {
    let store = mixed();
    let list = |listing: Listing| whens(&store.list(NODE, &listing, 100).unwrap());
    let class = Listing {
        class: Some(Class::Gpu),
        ..Listing::default()
    };
    assert_eq!(list(class), [4_000]);
    let kinds = |kinds: &[&str]| Listing {
        kinds: Some(kinds.iter().map(|&kind| kind.to_owned()).collect()),
        ..Listing::default()
    };
    assert_eq!(list(kinds(&["drain"])), [5_000]);
    assert_eq!(
        list(kinds(&["driver", "change"])),
        [4_000, 2_000, 1_500, 1_000]
    );
    assert_eq!(list(kinds(&["xid"])), [0; 0]);
    let between = |since, until| Listing {
        since: Some(since),
        until: Some(until),
        ..Listing::default()
    };
    assert_eq!(list(between(1_500, 4_000)), [4_000, 2_000, 1_500]);
    assert_eq!(list(between(6_000, 9_000)), [0; 0]);
    assert_eq!(list(between(9_000, 1)), [0; 0]);
}

#[test]
fn what_is_asked_of_the_fleet_sees_changes_alone() {
    let store = mixed();
    note(&store, "gpu002", 3_000);
    let listed = store.changes(0, None, 100).unwrap();
    let seen: Vec<_> = listed
        .iter()
        .map(|by| (by.entry.when, by.entry.number))
        .collect();
    assert_eq!(seen, [(4_000, 4), (1_000, 1)]);
    assert_eq!(store.len().unwrap(), 2);
}

#[test]
fn a_flood_of_events_costs_no_change_and_has_a_bound() {
    let store = HistoryStore::in_memory().unwrap();
    append(&store, 1, &[entry(1, 500, Class::Nic)]);
    let many: Vec<HistoryRecord> = (2..3 * MOST_EVENTS as u64).map(|n| event(n, n)).collect();
    append(&store, 3 * MOST_EVENTS as u64, &many);
    let all = store.list(NODE, &Listing::default(), usize::MAX).unwrap();
    let changes = all
        .iter()
        .filter(|item| matches!(item, HistoryItem::Change(_)));
    assert_eq!((all.len(), changes.count()), (MOST_EVENTS + 1, 1));
    assert_eq!(
        whens(&all)[0],
        3 * MOST_EVENTS as u64 - 1,
        "the newest stay"
    );
    // Many changes displace no event.
    let last = 9_000 + MOST_CHANGES as u64;
    let many: Vec<HistoryRecord> = (9_000..last + 10)
        .map(|n| entry(n, n, Class::Gpu))
        .collect();
    append(&store, last + 10, &many);
    let all = store.list(NODE, &Listing::default(), usize::MAX).unwrap();
    assert_eq!(all.len(), MOST_EVENTS + MOST_CHANGES);
    assert_eq!(store.len().unwrap(), MOST_CHANGES as u64);
}

/// Notes of control and a firmware change from the BMC survive any number of other lines.
#[test]
fn each_teller_has_places_of_its_own() {
    let store = HistoryStore::in_memory().unwrap();
    note(&store, NODE, 100);
    let of_class = |at, class| match entry(at, at, class) {
        HistoryRecord::Entry(entry) => entry,
        other => unreachable!("{other:?}"),
    };
    let flashed = of_class(200, Class::Bmc);
    store.append_bmc(NODE, &[flashed], NOW).unwrap();
    append(&store, 1, &[entry(1, 300, Class::Nic), event(2, 400)]);
    let turns = (1_000..9_000).map(|at| BmcEntry {
        is_transition: true,
        ..BmcEntry::from(of_class(at, Class::Bmc))
    });
    let turns: Vec<BmcEntry> = turns.collect();
    store.append_bmc(NODE, &turns, NOW).unwrap();
    let alive = |when| {
        let noted = NodeObservation::Liveness {
            is_alive: true,
            reason: None,
            left_out: 0,
            late: false,
        };
        (when, noted)
    };
    let liveness = TimedObservations {
        node: NODE.to_owned(),
        happened: (1_000..9_000).map(alive).collect(),
        comparison_state: None,
    };
    store.note(&[liveness], None).unwrap();
    let oldest = |most: usize| {
        let all = store.list(NODE, &Listing::default(), usize::MAX).unwrap();
        let oldest = all.iter().rev().map(|item| item.position().when);
        (all.len(), oldest.take(most).collect::<Vec<u64>>())
    };
    let (count, first) = oldest(4);
    assert_eq!(first, [100, 200, 300, 400]);
    assert_eq!(count, 4 + MAX_TRANSITIONS + MOST_LIVENESS);
    // Excess lines of an agent displace only the agent's own earlier lines.
    let raves = (10_000..30_000).map(|n| event(n, n));
    append(&store, 30_000, &raves.collect::<Vec<_>>());
    let raves = (40_000..60_000).map(|n| entry(n, n, Class::Gpu));
    append(&store, 60_000, &raves.collect::<Vec<_>>());
    let (count, first) = oldest(2);
    assert_eq!(first, [100, 200]);
    let agents = MOST_CHANGES + MOST_EVENTS;
    assert_eq!(count, 2 + MAX_TRANSITIONS + MOST_LIVENESS + agents);
}

#[test]
fn unset_clock_is_corrected() {
    let store = HistoryStore::in_memory().unwrap();
    let year = 365 * 86_400_000;
    let now = 56 * year;
    let records = [
        entry(1, now - 9_000, Class::Nic),
        event(2, now - 8_000),
        // A boot before NTP, and a kernel log that is reported late.
        event(3, 86_400_000),
        event(4, now - 8_500),
    ];
    store.append(NODE, read(7, 4), &records, now).unwrap();
    let all = store.list(NODE, &Listing::default(), 9).unwrap();
    assert_eq!(
        whens(&all),
        [now - 8_000, now - 8_000, now - 8_500, now - 9_000]
    );
}

#[test]
fn upgrade_records_unreadable_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let store = HistoryStore::open(&path).unwrap();
    let flood = json!({"seq": 3, "at": 600, "boot_id": "b1", "event": {"kind": "flood"}});
    let as_unread =
        |record: HistoryRecord| HistoryRecord::Other(serde_json::to_value(record).unwrap());
    let records = [
        as_unread(entry(1, 1_000, Class::Nic)),
        as_unread(event(2, 2_000)),
        HistoryRecord::Other(flood),
    ];
    append(&store, 3, &records);
    assert_eq!(store.changes(0, None, 9).unwrap().len(), 0);
    drop(store);
    for _ in 0..2 {
        let store = HistoryStore::open(&path).unwrap();
        let changes = store.changes(0, None, 9).unwrap();
        assert_eq!((changes.len(), changes[0].entry.when), (1, 1_000));
        assert_eq!(changes[0].entry.entry.class, Class::Nic);
        let all = store.list(NODE, &Listing::default(), 9).unwrap();
        assert_eq!(whens(&all), [2_000, 1_000, 600]);
        assert!(matches!(&all[1], HistoryItem::Change(_)));
    }
}

#[test]
fn deduplicates_and_bounds_future_times() {
    let store = HistoryStore::in_memory().unwrap();
    let records = [entry(1, 500, Class::Nic), event(2, 99 * NOW)];
    assert_eq!(append(&store, 2, &records), 2);
    assert_eq!(append(&store, 2, &records), 0);
    note(&store, NODE, 700);
    assert_eq!(
        store.cursor(NODE).unwrap(),
        read(7, 2),
        "notes are no journal"
    );
    assert_eq!(append(&store, 2, &records), 0);
    let all = store.list(NODE, &Listing::default(), 9).unwrap();
    assert_eq!(whens(&all), [NOW, 700, 500]);
}

#[test]
fn keeps_entries_of_newer_agent() {
    let store = HistoryStore::in_memory().unwrap();
    let flood = json!({"seq": 1, "at": 600, "boot_id": "b1", "event": {"kind": "flood"}});
    let known = serde_json::to_value(event(2, 700)).unwrap();
    // Stored by an older control that could not read it.
    append(
        &store,
        2,
        &[HistoryRecord::Other(flood), HistoryRecord::Other(known)],
    );
    let all = store.list(NODE, &Listing::default(), 9).unwrap();
    let kinds: Vec<&str> = all
        .iter()
        .map(|item| match item {
            HistoryItem::Event(happened) => happened.what.kind(),
            HistoryItem::Change(_) => CHANGE_KIND,
        })
        .collect();
    assert_eq!(kinds, ["driver", "flood"]);
    assert!(matches!(&all[0], HistoryItem::Event(h) if matches!(h.what, EventContent::Event(_))));
}

#[test]
fn comparison_state_and_audit_position_survive_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let store = HistoryStore::open(&path).unwrap();
    assert_eq!(
        store.comparison_progress().unwrap(),
        (BTreeMap::new(), None)
    );
    let noted = TimedObservations {
        node: NODE.to_owned(),
        happened: vec![(5_000, drained())],
        comparison_state: Some(b"state".to_vec()),
    };
    store.note(&[noted], Some(12)).unwrap();
    drop(store);
    let store = HistoryStore::open(&path).unwrap();
    let (compared, audit) = store.comparison_progress().unwrap();
    assert_eq!(
        (compared[NODE].as_slice(), audit),
        (&b"state"[..], Some(12))
    );
    assert_eq!(
        whens(&store.list(NODE, &Listing::default(), 9).unwrap()),
        [5_000]
    );
}
