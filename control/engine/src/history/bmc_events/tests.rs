#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::history::{HistoryItem, Listing};

const MINUTE: u64 = 60_000;
/// 2026-11-22.
const NOW: u64 = 1_795_312_800_000;

fn list(name: &str) -> ResourcePath {
    ResourcePath::parse(&format!("/redfish/v1/{name}")).unwrap()
}

fn lists(names: &[&str]) -> BTreeSet<ResourcePath> {
    names.iter().map(|name| list(name)).collect()
}

fn logged(identity: u64, at: Option<u64>, severity: BmcEventSeverity, message: &str) -> BmcEvent {
    BmcEvent {
        identity,
        list: list("IML"),
        of: BmcEventKind::Log {
            log: "IML".to_owned(),
        },
        systems: vec!["1".to_owned()],
        at,
        severity,
        code: None,
        message: message.to_owned(),
    }
}

fn warning(identity: u64, at: u64) -> BmcEvent {
    let message = format!("warning {identity}");
    logged(identity, Some(at), BmcEventSeverity::Warning, &message)
}

fn task(identity: u64, at: u64) -> BmcEvent {
    BmcEvent {
        list: list("Tasks"),
        of: BmcEventKind::Task {
            name: "BIOS Update".to_owned(),
            state: "completed".to_owned(),
            started_at: Some(at - 5 * MINUTE),
        },
        ..logged(identity, Some(at), BmcEventSeverity::Ok, "done")
    }
}

/// State of a BMC that was read before.
fn known() -> ReportedEvents {
    ReportedEvents {
        lists: lists(&["IML", "Tasks"]),
        ..ReportedEvents::default()
    }
}

fn chosen(
    before: ReportedEvents,
    deeds: &[BmcEvent],
    now: u64,
) -> (ReportedEvents, Vec<ReportedBmcEvent>) {
    select_new(before, (&lists(&["IML", "Tasks"]), deeds), now).unwrap()
}

fn shown(store: &HistoryStore) -> Vec<(u64, ReportedBmcEvent)> {
    let items = store.list("gpu001", &Listing::default(), 10_000).unwrap();
    let items = items.into_iter().rev().map(|item| match item {
        HistoryItem::Event(happened) => match happened.what {
            EventContent::Bmc(did) => (happened.when, *did),
            other => panic!("{other:?}"),
        },
        HistoryItem::Change(entry) => panic!("{entry:?}"),
    });
    items.collect()
}

#[test]
fn reports_each_event_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let deeds = [task(1, NOW - MINUTE), warning(2, NOW - 2 * MINUTE)];
    let read = lists(&["IML", "Tasks"]);
    let store = HistoryStore::open(&path).unwrap();
    let add = |store: &HistoryStore, deeds: &[BmcEvent], now| {
        store
            .append_bmc_events("gpu001", (&read, deeds), now)
            .unwrap()
    };
    assert_eq!(add(&store, &deeds, NOW), 2);
    assert_eq!(add(&store, &deeds, NOW + MINUTE), 0);
    // A list that is empty for a moment drops nothing.
    assert_eq!(add(&store, &[], NOW + MINUTE), 0);
    drop(store);
    let store = HistoryStore::open(&path).unwrap();
    assert_eq!(add(&store, &deeds, NOW + 2 * MINUTE), 0);
    let more = [deeds[0].clone(), deeds[1].clone(), warning(3, NOW)];
    assert_eq!(add(&store, &more, NOW + 3 * MINUTE), 1);
    let shown = shown(&store);
    let times: Vec<u64> = shown.iter().map(|(when, _)| *when).collect();
    assert_eq!(times, [NOW - 2 * MINUTE, NOW - MINUTE, NOW]);
    assert_eq!(shown[2].1.read_at, NOW + 3 * MINUTE);
    // Another node has its own events.
    let other = store.append_bmc_events("gpu002", (&read, &deeds[..1]), NOW);
    assert_eq!(other.unwrap(), 1);
}

#[test]
fn first_read_reports_newest_only() {
    let day = 86_400_000;
    let mut deeds: Vec<BmcEvent> = (1..=100)
        .map(|id| warning(id, NOW - (101 - id) * day))
        .collect();
    deeds.push(logged(200, None, BmcEventSeverity::Critical, "no time"));
    deeds.push(logged(201, Some(5), BmcEventSeverity::Critical, "1970"));
    deeds.push(warning(202, NOW + day));
    let (kept, lines) = chosen(ReportedEvents::default(), &deeds, NOW);
    // An hour allows thirty lines.
    assert_eq!(lines.len(), MOST_HOURLY);
    assert!(lines.iter().all(|did| did.plausible_time().is_some()));
    assert_eq!(lines.last().unwrap().deed.identity, 98);
    assert_eq!(kept.left_out, 2, "of the newest 32");
    // Events that were left out then are not reported later either.
    assert_eq!(
        select_new(kept.clone(), (&lists(&["IML"]), &deeds), NOW + day),
        None
    );
    // A list that is new on a known BMC.
    let before = ReportedEvents {
        lists: lists(&["Tasks"]),
        ..ReportedEvents::default()
    };
    let old = logged(201, Some(5), BmcEventSeverity::Critical, "1970");
    let (_, lines) = chosen(before, &[old, task(300, NOW)], NOW);
    assert_eq!(lines.len(), 1);
}

#[test]
fn a_clock_that_cannot_be_right_puts_an_entry_where_it_was_read() {
    let deeds = [
        logged(1, Some(192_000), BmcEventSeverity::Critical, "1970"),
        logged(2, None, BmcEventSeverity::Critical, "no time"),
        logged(
            3,
            Some(NOW + 3_600_000),
            BmcEventSeverity::Critical,
            "tomorrow",
        ),
        logged(4, Some(NOW - MINUTE), BmcEventSeverity::Critical, "right"),
    ];
    let (_, lines) = chosen(known(), &deeds, NOW);
    let places: Vec<_> = lines
        .iter()
        .map(|did| (did.deed.message.as_str(), did.history_time(), did.deed.at))
        .collect();
    assert_eq!(
        places,
        [
            ("right", NOW - MINUTE, Some(NOW - MINUTE)),
            ("1970", NOW, Some(192_000)),
            ("no time", NOW, None),
            ("tomorrow", NOW, Some(NOW + 3_600_000)),
        ]
    );
}

#[test]
fn message_storm_is_one_line() {
    let same = |id| {
        logged(
            id,
            Some(NOW - 200 * 1_000 + id * 1_000),
            BmcEventSeverity::Warning,
            "fan",
        )
    };
    let storm: Vec<BmcEvent> = (1..=100).map(same).collect();
    let (kept, lines) = chosen(known(), &storm, NOW);
    assert_eq!(lines.len(), 1);
    assert_eq!((lines[0].count, lines[0].deed.at), (100, storm[99].at));
    assert_eq!(lines[0].first_at, storm[0].at);

    let mut many: Vec<BmcEvent> = (1_000..1_200).map(|id| warning(id, NOW)).collect();
    many.push(logged(
        1,
        Some(NOW),
        BmcEventSeverity::Critical,
        "uncorrectable",
    ));
    many.push(task(2, NOW));
    many[200].identity = 5_000;
    many[201].identity = 5_001;
    let (kept, lines) = chosen(kept, &many, NOW + 1);
    assert_eq!(lines.len(), MOST_HOURLY - 1 + 2);
    let critical = lines
        .iter()
        .find(|did| did.deed.severity == BmcEventSeverity::Critical);
    assert_eq!(
        critical.unwrap().left_out,
        171,
        "said by the next line of a log"
    );
    let tasks = lines
        .iter()
        .filter(|did| matches!(did.deed.of, BmcEventKind::Task { .. }));
    assert_eq!(tasks.map(|did| did.left_out).collect::<Vec<_>>(), [0]);
    // An hour later new lines are allowed.
    let (_, lines) = chosen(kept, &[warning(6_000, NOW)], NOW + HOUR_MS + 2);
    assert_eq!(lines.len(), 1);
}

#[test]
fn memory_is_bounded_and_tasks_separate() {
    let mut kept = known();
    for round in 0..20_u64 {
        let deeds: Vec<BmcEvent> = (0..500).map(|id| warning(round * 500 + id, NOW)).collect();
        kept = chosen(kept, &deeds, NOW + round).0;
    }
    assert_eq!(kept.known.len(), MOST_REMEMBERED);

    let store = HistoryStore::in_memory().unwrap();
    let read = lists(&["IML", "Tasks"]);
    let add = |deeds: &[BmcEvent], now| {
        store
            .append_bmc_events("gpu001", (&read, deeds), now)
            .unwrap()
    };
    add(&[], NOW);
    add(&[task(1, NOW)], NOW);
    for hour in 1..=60 {
        let deeds: Vec<BmcEvent> = (0..40).map(|id| warning(hour * 100 + id, NOW)).collect();
        add(&deeds, NOW + hour * HOUR_MS);
    }
    let shown = shown(&store);
    let tasks = shown
        .iter()
        .filter(|(_, did)| matches!(did.deed.of, BmcEventKind::Task { .. }));
    assert_eq!(tasks.count(), 1);
    let most = crate::history::line_kind::MOST_BMC_LOGGED;
    assert!(
        (most..most + 100).contains(&(shown.len() - 1)),
        "{}",
        shown.len()
    );
}

#[test]
fn a_bmc_that_names_other_lists_each_time_fills_no_memory() {
    let mut kept = known();
    for look in 0..500 {
        let read = lists(&[&format!("Log{look}"), &format!("Task{look}")]);
        kept = select_new(kept, (&read, &[]), NOW).unwrap().0;
        assert!(read.is_subset(&kept.lists), "{look}");
        assert!(kept.lists.len() <= MOST_LISTS + 2, "{}", kept.lists.len());
    }
}
