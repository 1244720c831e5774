//! BMC events: those of every recorded tree, and those of broken BMCs.

use crate::support::{TREES, captures, deed_route, deeds, tree};
use lattice_conformance::Reading;
use lattice_redfish::{
    BmcEvent, BmcEventKind, BmcEventSeverity, BmcEventsRead, Documents, EventListRoute,
    FetchedEventDocuments, ResourcePath, recorded,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TASKS: &str = "/redfish/v1/TaskService/Tasks";
const ENTRIES: &str = "/redfish/v1/Managers/1/LogServices/Log/Entries";

fn events_of(name: &str) -> (Vec<BmcEvent>, usize) {
    let tree = tree(name);
    let (route, _) = deed_route(&tree);
    let (read, took) = deeds(&tree, &route, &FetchedEventDocuments::default());
    (read.events, took)
}

fn messages(deeds: &[BmcEvent]) -> Vec<&str> {
    deeds.iter().map(|deed| deed.message.as_str()).collect()
}

#[test]
fn recorded_bmcs_need_few_requests() {
    // Events, requests to find the lists, requests to read them.
    let mut table = Vec::new();
    for (name, _, _) in TREES {
        let tree = tree(name);
        let (route, found) = deed_route(&tree);
        let (read, took) = deeds(&tree, &route, &FetchedEventDocuments::default());
        let ids: BTreeSet<u64> = read.events.iter().map(|deed| deed.identity).collect();
        assert_eq!(ids.len(), read.events.len(), "{name}: two deeds are one");
        let (again, quiet) = deeds(&tree, &route, &read.seen);
        assert!(
            quiet <= route.len(),
            "{name}: {quiet} requests when nothing is new"
        );
        let again: BTreeSet<u64> = again.events.iter().map(|deed| deed.identity).collect();
        assert!(again.is_subset(&ids), "{name}");
        table.push((*name, read.events.len(), found, took));
        // Login names and addresses are in logs that are not read.
        for deed in &read.events {
            assert!(!deed.message.contains("User: "), "{name}: {deed:?}");
            assert!(!deed.systems.is_empty(), "{name}: {deed:?} concerns nobody");
        }
    }
    let full: Vec<_> = table.iter().filter(|(_, deeds, ..)| *deeds > 0).collect();
    assert_eq!(
        full,
        [
            &("cray-ex235a-mi250x", 7, 13, 3),
            &("cray-ex235n-a100", 87, 17, 3),
            &("hpe-dl325-ilo5", 128, 11, 4),
            &("hpe-dl380a-gen11-ilo6", 167, 12, 4),
        ]
    );
    let most = table
        .iter()
        .map(|(_, _, found, took)| (*found, *took))
        .max();
    assert_eq!(most, Some((17, 3)), "{table:#?}");
}

#[test]
fn finds_flash_among_many_entries() {
    let (deeds, _) = events_of("hpe-dl325-ilo5");
    let flashed: Vec<&str> = messages(&deeds)
        .into_iter()
        .filter(|message| message.starts_with("Firmware flashed"))
        .collect();
    assert_eq!(flashed.first(), Some(&"Firmware flashed (iLO 5 2.33)"));
    assert_eq!(flashed.len(), 7);
    let logins = messages(&deeds);
    assert!(
        !logins.iter().any(|message| message.contains("login")),
        "{logins:#?}"
    );
    let (deeds, _) = events_of("cray-ex235a-mi250x");
    assert!(
        messages(&deeds)[0].starts_with("The UpdateService has started processing"),
        "{deeds:#?}"
    );
    // Tasks that notified event subscribers changed nothing.
    assert_eq!(events_of("gigabyte-h262-ami").0, []);
}

#[test]
fn what_one_node_of_a_blade_logged_is_not_the_other_ones() {
    let (deeds, _) = events_of("cray-ex235n-a100");
    let of = |node: &str| {
        let mut of = deeds.clone();
        of.retain(|deed| deed.systems.iter().any(|system| system == node));
        of
    };
    let (first, second) = (of("Node0"), of("Node1"));
    let both = deeds.iter().filter(|deed| deed.systems.len() == 2).count();
    assert_eq!(first.len() + second.len(), deeds.len() + both);
    assert!(first.len() > 30 && second.len() > 30 && both >= 2, "{both}");
}

#[test]
fn an_update_is_a_task_with_its_times_and_its_state() {
    // A collection of samples; two of its tasks have ended.
    let samples = recorded::load(&captures().join("dell-and-supermicro-bmclib.tar.gz"));
    let samples = read(&samples.expect("samples load"));
    let of = samples.events.iter().map(|deed| &deed.of);
    let ended = |name: &str, started_at| BmcEventKind::Task {
        name: name.to_owned(),
        state: "completed".to_owned(),
        started_at: Some(started_at),
    };
    let (verified, updated) = (
        ended("BIOS Verify", 1_699_272_256_000),
        ended("BIOS Update", 1_699_272_347_000),
    );
    assert_eq!(of.collect::<Vec<_>>(), [&verified, &updated]);
    let tree = service(json!([{"@odata.id": format!("{TASKS}/1")}]), json!([]));
    let task = json!({
        "@odata.type": "#Task.v1_4_3.Task", "Id": "1", "Name": "BIOS Update",
        "TaskState": "Exception", "TaskStatus": "Critical",
        "StartTime": "2026-11-06T12:04:16+00:00", "EndTime": "2026-11-06T13:05:31+01:00",
        "Messages": [
            {"MessageId": "Update.1.0.ApplyFailed", "Message": "%1 failed on %2.",
             "MessageArgs": ["image.bin", "BIOS"]},
            {"MessageId": "", "Message": ""},
        ],
    });
    let tree = with(tree, &format!("{TASKS}/1"), task);
    let deed = &read(&tree).events[0];
    assert_eq!(
        deed.of,
        BmcEventKind::Task {
            name: "BIOS Update".to_owned(),
            state: "exception".to_owned(),
            started_at: Some(1_793_966_656_000),
        }
    );
    assert_eq!(deed.at, Some(1_793_966_731_000));
    assert_eq!(deed.severity, BmcEventSeverity::Critical);
    assert_eq!(deed.code.as_deref(), Some("Update.1.0.ApplyFailed"));
    assert_eq!(deed.message, "image.bin failed on BIOS.");
}

#[test]
fn a_task_that_runs_is_asked_again_and_one_that_ended_is_not() {
    let path = format!("{TASKS}/7");
    let task = |state: &str| {
        json!({"@odata.type": "#Task.v1_4_3.Task", "Id": "7", "Name": "Firmware Update",
               "TaskState": state, "StartTime": "2026-11-06T12:04:16Z"})
    };
    let running = service(json!([{"@odata.id": path}]), json!([]));
    let running = with(running, &path, task("Running"));
    let (route, _) = deed_route(&running);
    let (first, took) = deeds(&running, &route, &FetchedEventDocuments::default());
    assert_eq!((first.events.len(), took), (0, 3));
    let ended = with(running, &path, task("Completed"));
    let (second, took) = deeds(&ended, &route, &first.seen);
    assert_eq!((second.events.len(), took), (1, 3));
    let (third, took) = deeds(&ended, &route, &second.seen);
    assert_eq!((third.events.len(), took), (0, 2), "it was read");
    // The BMC restarted, so its task numbers restart too.
    let again = service(json!([{"@odata.id": format!("{TASKS}/1")}]), json!([]));
    let again = with(again, &format!("{TASKS}/1"), task("Completed"));
    let (fourth, _) = deeds(&again, &route, &third.seen);
    assert_eq!(fourth.events.len(), 1);
    assert_ne!(fourth.events[0].identity, second.events[0].identity);
}

/// A service of one system with these tasks, and with these entries in its manager's only log.
fn service(tasks: Value, entries: Value) -> Documents {
    let link = |path: &str| json!({"@odata.id": path});
    let system = "/redfish/v1/Systems/1";
    let manager = "/redfish/v1/Managers/1";
    let log = format!("{manager}/LogServices/Log");
    let all = [
        (
            "/redfish/v1".to_owned(),
            json!({"Systems": link("/redfish/v1/Systems"),
            "Managers": link("/redfish/v1/Managers"), "Tasks": link("/redfish/v1/TaskService")}),
        ),
        (
            "/redfish/v1/Systems".to_owned(),
            json!({"Members": [link(system)]}),
        ),
        (
            system.to_owned(),
            json!({"@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem",
            "Id": "1", "Links": {"ManagedBy": [link(manager)]}}),
        ),
        (
            manager.to_owned(),
            json!({"Id": "1", "LogServices": link(&format!("{manager}/LogServices"))}),
        ),
        (
            format!("{manager}/LogServices"),
            json!({"Members": [link(&log)]}),
        ),
        (
            log.clone(),
            json!({"@odata.type": "#LogService.v1_1_0.LogService", "Id": "Log",
            "Entries": link(&format!("{log}/Entries"))}),
        ),
        (format!("{log}/Entries"), json!({"Members": entries})),
        (
            "/redfish/v1/TaskService".to_owned(),
            json!({"Tasks": link(TASKS)}),
        ),
        (TASKS.to_owned(), json!({"Members": tasks})),
    ];
    let documents = all
        .into_iter()
        .fold(Documents::default(), |tree, (path, value)| {
            with(tree, &path, value)
        });
    assert_eq!(log, ENTRIES.trim_end_matches("/Entries"));
    documents
}

fn with(mut tree: Documents, path: &str, value: Value) -> Documents {
    let path = ResourcePath::parse(path).expect("path");
    tree.0.insert(path, Reading::Present(value));
    tree
}

fn read(tree: &Documents) -> BmcEventsRead {
    deeds(tree, &route(tree), &FetchedEventDocuments::default()).0
}

fn route(tree: &Documents) -> EventListRoute {
    deed_route(tree).0
}

fn entry(id: u64, severity: &str) -> Value {
    json!({"@odata.id": format!("{ENTRIES}/{id}"), "@odata.type": "#LogEntry.v1_4_0.LogEntry",
           "Id": id.to_string(), "Severity": severity, "Message": format!("entry {id}"),
           "Created": "2026-11-06T12:04:16Z"})
}

#[test]
fn the_newest_entries_are_found_whichever_way_a_log_is_ordered_and_paged() {
    let log = |range: Vec<u64>, next: Option<&str>, count: u64| {
        let entries: Vec<Value> = range.into_iter().map(|id| entry(id, "Warning")).collect();
        let mut page = json!({"Members": entries, "Members@odata.count": count});
        if let Some(next) = next {
            page["Members@odata.nextLink"] = json!(next);
        }
        page
    };
    let last = |tree: &Documents| {
        let (read, took) = deeds(tree, &route(tree), &FetchedEventDocuments::default());
        (
            read.events.last().map(|deed| deed.message.clone()),
            read.events.len(),
            took,
        )
    };
    let next = |skip: u64| format!("{ENTRIES}?$skip={skip}");
    let empty = service(json!([]), json!([]));
    // Newest first: one page is enough.
    let down = with(
        empty.clone(),
        ENTRIES,
        log((951..=1000).rev().collect(), Some(&next(50)), 1000),
    );
    assert_eq!(last(&down), (Some("entry 1000".to_owned()), 50, 2));
    // Oldest first: the last page is fetched at once.
    let up = with(
        empty.clone(),
        ENTRIES,
        log((1..=50).collect(), Some(&next(50)), 1000),
    );
    let up = with(up, &next(950), log((951..=1000).collect(), None, 1000));
    assert_eq!(last(&up), (Some("entry 1000".to_owned()), 100, 3));
    // A log of ten thousand entries in one answer.
    let all = with(
        empty.clone(),
        ENTRIES,
        log((1..=10_000).collect(), None, 10_000),
    );
    assert_eq!(last(&all), (Some("entry 10000".to_owned()), 256, 2));
    // Pages that form a cycle.
    let round = with(empty, ENTRIES, log((1..=3).collect(), Some(ENTRIES), 3));
    assert_eq!(last(&round), (Some("entry 3".to_owned()), 3, 2));
}

#[test]
fn entries_that_are_only_linked_are_fetched_once_and_no_more_than_sixteen() {
    let linked = |to: u64| {
        let links = (1..=to).map(|id| json!({"@odata.id": format!("{ENTRIES}/{id}")}));
        let tree = service(json!([]), json!(links.collect::<Vec<_>>()));
        (1..=to).fold(tree, |tree, id| {
            with(tree, &format!("{ENTRIES}/{id}"), entry(id, "Critical"))
        })
    };
    let tree = linked(100);
    let (first, took) = deeds(&tree, &route(&tree), &FetchedEventDocuments::default());
    assert_eq!((first.events.len(), took), (16, 18));
    assert_eq!(first.events[15].message, "entry 100");
    let (second, took) = deeds(&tree, &route(&tree), &first.seen);
    assert_eq!((second.events.len(), took), (0, 2));
    let tree = linked(102);
    let (third, took) = deeds(&tree, &route(&tree), &second.seen);
    assert_eq!(messages(&third.events), ["entry 101", "entry 102"]);
    assert_eq!(took, 4);
    // The log was cleared.
    let tree = linked(2);
    let (fourth, _) = deeds(&tree, &route(&tree), &third.seen);
    assert_eq!(fourth.events.len(), 2);
}

#[test]
fn broken_entries_and_lists_hide_no_others() {
    let good = entry(9, "Warning");
    let odd = json!([
        null, 7, "x", {}, {"@odata.id": "/elsewhere/1", "Id": "1", "Severity": "Critical"},
        {"@odata.id": ENTRIES},
        {"@odata.id": format!("{ENTRIES}/1"), "Id": "1", "Severity": "Critical", "Message": 7},
        {"@odata.id": format!("{ENTRIES}/2"), "Id": "2", "Severity": "Critical",
         "Message": "no time\u{1b}[31m, and long: ".to_owned() + &"é".repeat(100_000)},
        {"@odata.id": format!("{ENTRIES}/3"), "Id": "3", "Severity": "Critical",
         "Message": "1970", "Created": "1970-01-01T00:03:12Z"},
        {"@odata.id": format!("{ENTRIES}/4"), "Id": "4", "Severity": "Critical",
         "Message": "null time", "Created": "0000-00-00T00:00:00Z"},
        good,
    ]);
    let tree = service(json!({"no": "list"}), odd);
    let read = read(&tree);
    // The invalid list, and the list with invalid entry links.
    assert_eq!(read.unread.len(), 2, "{:?}", read.unread);
    let of = |at: usize| (&read.events[at].message[..4], read.events[at].at);
    assert_eq!(of(0), ("no t", None));
    assert_eq!(read.events[0].message.chars().count(), 300);
    assert!(!read.events[0].message.contains('\u{1b}'));
    assert_eq!(of(1), ("1970", Some(192_000)));
    assert_eq!(of(2), ("null", None));
    assert_eq!(read.events[3].message, "entry 9");
    assert_eq!(read.events.len(), 4);
    // An oversized or broken list does not affect the other one.
    let mut tree = service(json!([]), json!([entry(1, "Warning")]));
    let tasks = ResourcePath::parse(TASKS).expect("path");
    tree.0.insert(
        tasks.clone(),
        Reading::failed("104857600 bytes, 4194304 allowed"),
    );
    let read = self::read(&tree);
    assert_eq!(read.unread[0].0, tasks);
    assert_eq!(messages(&read.events), ["entry 1"]);
    assert!(!read.lists.contains(&tasks) && read.lists.len() == 1);
}

#[test]
fn reports_update_entry_without_warning() {
    let is_event = |message: &str| {
        let mut one = entry(1, "OK");
        one["Message"] = json!(message);
        !read(&service(json!([]), json!([one]))).events.is_empty()
    };
    for message in [
        "Version change detected for BIOS firmware. Previous version:1.2, Current version:1.3",
        "The BIOS.Setup.1-1 configuration was applied.",
        "Firmware flashed (iLO 5 2.44)",
        "A settings change was made: BootMode",
        "iDRAC firmware was updated successfully from 7.10.30 to 7.10.50.",
        "BIOS updated from 2.1 to 2.2",
        "iLO was upgraded to 2.44.",
        "iDRAC: rollback to 7.10.30",
        "SystemRomUpdated",
        "Two CPLDs were flashed.",
    ] {
        assert!(is_event(message), "{message}");
    }
    for message in [
        "Browser login: root - 10.254.1.12.",
        "iLO time updated.",
        "iDRAC clock was updated.",
        "Host BIO updated",
        "The chassis was opened.",
        "Temperature is within range again.",
    ] {
        assert!(!is_event(message), "{message}");
    }
}

#[test]
fn timed_out_entry_is_reported_later() {
    let links = (1..=3).map(|id| json!({"@odata.id": format!("{ENTRIES}/{id}")}));
    let tree = service(json!([]), json!(links.collect::<Vec<_>>()));
    let whole = (1..=3).fold(tree, |tree, id| {
        with(tree, &format!("{ENTRIES}/{id}"), entry(id, "Critical"))
    });
    let second = ResourcePath::parse(&format!("{ENTRIES}/2")).expect("path");
    let mut slow = whole.clone();
    let timeout = Reading::Timeout { after_ms: 5000 };
    slow.0.insert(second.clone(), timeout);
    let (first, _) = deeds(&slow, &route(&slow), &FetchedEventDocuments::default());
    assert_eq!(messages(&first.events), ["entry 1", "entry 3"]);
    let (next, _) = deeds(&whole, &route(&whole), &first.seen);
    assert_eq!(messages(&next.events), ["entry 1", "entry 2", "entry 3"]);
    let (last, _) = deeds(&whole, &route(&whole), &next.seen);
    assert!(last.events.is_empty());
    // A missing resource is not waited for.
    let mut gone = whole;
    gone.0.insert(second, Reading::Absent);
    let (first, _) = deeds(&gone, &route(&gone), &FetchedEventDocuments::default());
    let (next, _) = deeds(&gone, &route(&gone), &first.seen);
    assert_eq!((first.events.len(), next.events.len()), (2, 0));
}

#[test]
fn a_second_entry_of_one_second_does_not_turn_a_log_round() {
    let of = |id: &str, time: &str| {
        json!({"@odata.id": format!("{ENTRIES}/{id}"), "Id": id, "Severity": "Warning",
               "Message": id, "Created": time})
    };
    let up = [
        of("1700000000", "2023-11-14T22:13:20Z"),
        of("1700000050", "2023-11-14T22:14:10Z"),
        of("1700000050_1", "2023-11-14T22:14:10Z"),
    ];
    let read = read(&service(json!([]), json!(up)));
    let expected = ["1700000000", "1700000050", "1700000050_1"];
    assert_eq!(messages(&read.events), expected);
    assert!(read.unread.is_empty());
}

#[test]
fn unreached_newest_entries_are_not_reported() {
    let page = |at: u64| format!("{ENTRIES}?$skiptoken={at}");
    let pages = |count: u64| {
        (0..count).fold(service(json!([]), json!([])), |tree, at| {
            let mut value =
                json!({"Members": [entry(2 * at + 1, "Warning"), entry(2 * at + 2, "Warning")]});
            if at + 1 < count {
                value["Members@odata.nextLink"] = json!(page(at + 1));
            }
            let path = if at == 0 {
                ENTRIES.to_owned()
            } else {
                page(at)
            };
            with(tree, &path, value)
        })
    };
    let long = read(&pages(5));
    let entries = ResourcePath::parse(ENTRIES).expect("path");
    let why = Reading::failed("newest entries not reached within 4 pages");
    assert_eq!(long.unread, [(entries, why)]);
    assert_eq!(long.events.len(), 8, "what was read is told");
    let short = read(&pages(4));
    assert_eq!((short.unread, short.events.len()), (vec![], 8));
}
