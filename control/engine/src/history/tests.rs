#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_conformance::{
    ClassMark, Reading, Schemas, Value, WrittenSchemas,
    history::{Cause, Entry, KeyChange},
    keys::{KeyNeed, KeyRow, RowTest},
};

const NODE: &str = "gpu001";

fn record(firmware: &str) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.put("nic.0.firmware", Reading::Present(firmware.to_owned()));
    record
}

fn text(value: &str) -> Reading<Value> {
    Reading::Present(Value::from(value))
}

fn entry(seq: u64, at: u64, from: Reading<Value>, to: Reading<Value>) -> Entry {
    let mark = |reading: &Reading<Value>| match reading.present().and_then(Value::as_text) {
        Some(firmware) => record(firmware).state().mark(),
        None => ClassMark::Incomplete,
    };
    let changes = match seq {
        1 => vec![],
        _ => vec![KeyChange {
            key: "nic.0.firmware".to_owned(),
            from: from.clone(),
            to: to.clone(),
        }],
    };
    Entry {
        seq,
        at,
        boot_id: "b1".to_owned(),
        cause: Cause::Periodic,
        class: Class::Nic,
        revision: seq,
        from: (seq > 1).then(|| mark(&from)),
        to: mark(&to),
        changes,
        more: 0,
    }
}

fn read(journal: u64, read: u64) -> Cursor {
    Cursor { journal, read }
}

fn since(
    store: &HistoryStore,
    schemas: &Schemas,
    node: &str,
    class: Class,
    key: &str,
) -> Result<Option<UnchangedSince>, HistoryError> {
    let entries = store.of_node(node, &HistoryFilter::default(), MAX_QUERIED_ENTRIES)?;
    Ok(past_state::unchanged_since(store, schemas, &entries, (class, key))?.0)
}

fn store() -> HistoryStore {
    HistoryStore::in_memory().unwrap()
}

fn three() -> Vec<Entry> {
    let hung = || Reading::Timeout { after_ms: 5 };
    vec![
        entry(1, 1_000, Reading::default(), text("28.39")),
        entry(2, 2_000, text("28.39"), text("28.41")),
        entry(3, 3_000, text("28.41"), hung()),
    ]
}

#[test]
fn deduplicates_and_adds_restarted_journal() {
    let store = store();
    let entries = three();
    assert_eq!(
        store
            .append(NODE, read(7, 2), &entries[..2], 9_000)
            .unwrap(),
        2
    );
    assert_eq!(store.append(NODE, read(7, 3), &entries, 9_000).unwrap(), 1);
    assert_eq!(store.cursor(NODE).unwrap(), read(7, 3));
    let again = [entry(1, 8_000, Reading::default(), text("28.41"))];
    assert_eq!(store.append(NODE, read(8, 1), &again, 9_000).unwrap(), 1);
    let all = store.of_node(NODE, &HistoryFilter::default(), 100).unwrap();
    let times: Vec<u64> = all.iter().map(|entry| entry.when).collect();
    assert_eq!(times, [8_000, 3_000, 2_000, 1_000]);
    assert_eq!(store.cursor("gpu002").unwrap(), Cursor::default());
}

#[test]
fn a_clock_ahead_does_not_put_a_change_into_the_future() {
    let store = store();
    let ahead = [entry(1, 90_000, Reading::default(), text("28.41"))];
    store.append(NODE, read(7, 1), &ahead, 5_000).unwrap();
    let stored = store
        .of_node(NODE, &HistoryFilter::default(), 9)
        .unwrap()
        .remove(0);
    assert_eq!(stored.when, 5_000);
    assert_eq!(stored.entry.at, 90_000);
}

#[test]
fn the_fleet_is_read_newest_first_page_by_page() {
    let store = store();
    store.append(NODE, read(7, 3), &three(), 9_000).unwrap();
    let other = [
        entry(1, 1_500, Reading::default(), text("28.39")),
        entry(2, 2_000, text("28.39"), text("28.40")),
    ];
    store.append("gpu002", read(4, 2), &other, 9_000).unwrap();
    let page = store.changes(1_500, None, 2).unwrap();
    let place = |by: &ClusterEntry| (by.entry.when, by.node.clone(), by.entry.number);
    let first: Vec<_> = page.iter().map(place).collect();
    assert_eq!(
        first,
        [(3_000, NODE.to_owned(), 3), (2_000, "gpu002".to_owned(), 2)]
    );
    let (when, node, number) = first.last().unwrap();
    let rest = store.changes(0, Some((*when, node, *number)), 9).unwrap();
    let rest: Vec<_> = rest.iter().map(place).collect();
    assert_eq!(
        rest,
        [
            (2_000, NODE.to_owned(), 2),
            (1_500, "gpu002".to_owned(), 1),
            (1_000, NODE.to_owned(), 1),
        ]
    );
}

#[test]
fn a_class_is_what_it_was_at_the_time() {
    let store = store();
    store.append(NODE, read(7, 3), &three(), 9_000).unwrap();
    let old = record("28.39");
    let digest = old.state().digest().unwrap();
    let at = |at| state_at(&store, NODE, Class::Nic, at).unwrap();
    assert_eq!(at(999), PastClassState::NotKept);
    assert_eq!(at(1_500), PastClassState::Lost { digest });
    store.keep_record(&digest, &old.encode()).unwrap();
    let PastClassState::Known { record, since } = at(1_500) else {
        unreachable!("{:?}", at(1_500));
    };
    assert_eq!(
        (record.entries.clone(), since),
        (old.entries.clone(), 1_000)
    );
    let PastClassState::Incomplete { missing } = at(5_000) else {
        unreachable!("{:?}", at(5_000));
    };
    assert_eq!(missing[0].1, Reading::Timeout { after_ms: 5 });
    assert_eq!(
        state_at(&store, NODE, Class::Gpu, 5_000).unwrap(),
        PastClassState::NotKept
    );
}

#[test]
fn bytes_of_another_record_are_no_record() {
    let store = store();
    let digest = record("28.39").state().digest().unwrap();
    store
        .keep_record(&digest, &record("28.41").encode())
        .unwrap();
    assert_eq!(store.record(&digest).unwrap(), None);
}

#[test]
fn since_is_when_a_key_became_what_it_is_and_a_hang_does_not_count() {
    let store = store();
    let mut changes = three();
    store.append(NODE, read(7, 3), &changes, 9_000).unwrap();
    let key = "nic.0.firmware";
    let of = |key: &str| since(&store, &Schemas::SHIPPED, NODE, Class::Nic, key).unwrap();
    let at = |at, at_least| Some(UnchangedSince { at, at_least });
    assert_eq!(of(key), at(2_000, false));
    let back = entry(4, 4_000, Reading::Timeout { after_ms: 5 }, text("28.41"));
    changes.push(back);
    store.append(NODE, read(7, 4), &changes, 9_000).unwrap();
    assert_eq!(of(key), at(2_000, false));
    assert_eq!(of("nic.count"), at(1_000, true));
    let of_gpu = since(&store, &Schemas::SHIPPED, NODE, Class::Gpu, key);
    assert_eq!(of_gpu.unwrap(), None);
    changes.push(entry(5, 5_000, text("28.41"), text("28.43")));
    store.append(NODE, read(7, 5), &changes, 9_000).unwrap();
    assert_eq!(of(key), at(5_000, false));
}

const fn row(pattern: &'static str, since: u16) -> KeyRow {
    KeyRow {
        pattern,
        unit: "",
        need: KeyNeed::Optional,
        source: "",
        meaning: "",
        test: RowTest::InFixtures,
        since,
        until: None,
    }
}

/// NICs with rings that came with the present schema.
const WITH_RINGS: Schemas = Schemas {
    written: |class| WrittenSchemas {
        current: class.schema(),
        earlier: Some(class.schema() - 1),
        oldest: class.schema() - 1,
    },
    rows: &[
        row("nic.<slot>.firmware", 1),
        row("nic.<slot>.driver", 1),
        row("nic.<slot>.ring.<name>", 2),
    ],
};

#[test]
fn since_looks_through_another_schema_for_what_both_have() {
    let written = |firmware: &str, driver: &str, schema: u16| {
        let mut record = record(firmware);
        record.put("nic.0.driver", Reading::Present(driver.to_owned()));
        if schema == record.schema {
            record.put("nic.0.ring.rx", Reading::Present(512u32));
        }
        record.schema = schema;
        record
    };
    let now = record("28.41").schema;
    let before = now - 1;
    let records = [
        written("28.39", "a", before),
        written("28.41", "a", before),
        // The driver changed while the agent was upgraded.
        written("28.41", "b", now),
    ];
    let [one, two, three] = &records.clone().map(|record| record.state().mark());
    let change = |key: &str, from: Reading<Value>, to: Reading<Value>| KeyChange {
        key: key.to_owned(),
        from,
        to,
    };
    let number = |schema: u16| Reading::Present(u32::from(schema).into());
    let step = |seq, from: Option<&ClassMark>, to: &ClassMark, changes| Entry {
        from: from.copied(),
        to: *to,
        changes,
        ..entry(seq, seq * 1_000, Reading::default(), Reading::default())
    };
    let firmware = change("nic.0.firmware", text("28.39"), text("28.41"));
    let upgrade = vec![
        change("schema", number(before), number(now)),
        change("nic.0.driver", text("a"), text("b")),
    ];
    let entries = [
        step(1, None, one, Vec::new()),
        step(2, Some(one), two, vec![firmware]),
        step(3, Some(two), three, upgrade),
    ];
    let store = store();
    store.append(NODE, read(7, 3), &entries, 9_000).unwrap();
    let at = |at, at_least| Some(UnchangedSince { at, at_least });
    let of = |schemas: &Schemas, key| since(&store, schemas, NODE, Class::Nic, key).unwrap();
    let keep = |record: &ClassRecord| {
        let digest = record.state().digest().unwrap();
        store.keep_record(&digest, &record.encode()).unwrap();
    };
    keep(&records[2]);
    // The earlier record is not stored.
    assert_eq!(of(&WITH_RINGS, "nic.0.firmware"), at(3_000, true));
    keep(&records[1]);
    assert_eq!(of(&WITH_RINGS, "nic.0.firmware"), at(2_000, false));
    assert_eq!(of(&WITH_RINGS, "nic.0.driver"), at(3_000, false));
    assert_eq!(of(&WITH_RINGS, "nic.0.ring.rx"), at(3_000, true));
    // A build without the earlier schema returns only a lower bound.
    assert_eq!(of(&Schemas::SHIPPED, "nic.0.firmware"), at(3_000, true));
}

#[test]
fn the_oldest_entries_of_a_node_make_room_and_those_of_others_stay() {
    let store = store();
    let one = [entry(1, 10, Reading::default(), text("28.39"))];
    store.append("gpu002", read(4, 1), &one, 9_000).unwrap();
    let many: Vec<Entry> = (1..=line_kind::MOST_CHANGES as u64 + 25)
        .map(|seq| entry(seq, seq, text("a"), text("b")))
        .collect();
    let last = line_kind::MOST_CHANGES as u64 + 25;
    store.append(NODE, read(7, last), &many, 1 << 40).unwrap();
    assert_eq!(store.len().unwrap(), line_kind::MOST_CHANGES as u64 + 1);
    let all = store
        .of_node(NODE, &HistoryFilter::default(), usize::MAX)
        .unwrap();
    assert_eq!(all.last().unwrap().when, 26);
    let changes = store.changes(0, None, usize::MAX).unwrap();
    assert_eq!(changes.last().unwrap().node, "gpu002");
}

#[test]
fn it_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let store = HistoryStore::open(&path).unwrap();
    store.append(NODE, read(7, 3), &three(), 9_000).unwrap();
    drop(store);
    let store = HistoryStore::open(&path).unwrap();
    assert_eq!(store.len().unwrap(), 3);
    assert_eq!(store.cursor(NODE).unwrap(), read(7, 3));
}

fn bios(key: &str, value: &str) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Bios);
    record.put(key, Reading::Present(value.to_owned()));
    record
}

/// The entry `seq` of class `bios`: `key` changes from `from`, if it was read before, to `to`.
fn bios_entry(seq: u64, at: u64, key: &str, from: Option<&str>, to: &str) -> Entry {
    let change = |from: &str| KeyChange {
        key: key.to_owned(),
        from: text(from),
        to: text(to),
    };
    Entry {
        class: Class::Bios,
        from: from.map(|from| bios(key, from).state().mark()),
        to: bios(key, to).state().mark(),
        changes: from.map(change).into_iter().collect(),
        ..entry(seq, at, Reading::default(), Reading::default())
    }
}

#[test]
fn agent_and_bmc_tell_of_one_node_under_one_sequence_of_numbers() {
    let store = store();
    let (agents, bmcs) = ("bios.version", "bios.redfish.attribute.smt");
    for record in [
        bios(agents, "A1"),
        bios(agents, "A2"),
        bios(bmcs, "On"),
        bios(bmcs, "Off"),
    ] {
        let digest = record.state().digest().unwrap();
        store.keep_record(&digest, &record.encode()).unwrap();
    }
    // The BMC is read before the agent is seen.
    store
        .append_bmc(NODE, &[bios_entry(1, 3_000, bmcs, None, "On")], 3_000)
        .unwrap();
    assert_eq!(store.cursor(NODE).unwrap(), Cursor::default());
    let bmc_entries = [bios_entry(1, 1_000, agents, None, "A1")];
    assert_eq!(
        store.append(NODE, read(7, 1), &bmc_entries, 4_000).unwrap(),
        1
    );
    store
        .append_bmc(
            NODE,
            &[bios_entry(2, 5_000, bmcs, Some("On"), "Off")],
            5_000,
        )
        .unwrap();
    // An agent that was unreachable reports earlier changes late.
    let late = [bios_entry(2, 4_500, agents, Some("A1"), "A2")];
    assert_eq!(store.append(NODE, read(7, 2), &late, 9_000).unwrap(), 1);
    assert_eq!(store.cursor(NODE).unwrap(), read(7, 2));

    let all = store.of_node(NODE, &HistoryFilter::default(), 9).unwrap();
    let rows: Vec<_> = all.iter().map(|t| (t.number, t.when, t.source)).collect();
    let (agent, bmc) = (Source::Agent, Source::Bmc);
    assert_eq!(
        rows,
        [
            (4, 4_500, agent),
            (3, 5_000, bmc),
            (2, 1_000, agent),
            (1, 3_000, bmc)
        ]
    );
    let recent = HistoryFilter {
        since: Some(4_600),
        ..HistoryFilter::default()
    };
    let recent = store.of_node(NODE, &recent, 9).unwrap();
    assert_eq!(recent.len(), 1, "what is told late hides nothing");

    // Past states and ages follow the source that reports the key.
    let at = |at| match state_at(&store, NODE, Class::Bios, at).unwrap() {
        PastClassState::Known { record, .. } => Some((record.get(agents), record.get(bmcs))),
        _ => None,
    };
    let (text, not_read) = (|t: &str| text(t), Reading::failed("not recorded"));
    assert_eq!(at(2_000), Some((text("A1"), not_read)));
    assert_eq!(at(4_000), Some((text("A1"), text("On"))));
    assert_eq!(at(4_700), Some((text("A2"), text("On"))));
    assert_eq!(at(9_000), Some((text("A2"), text("Off"))));
    let since = |key| {
        let found = since(&store, &Schemas::SHIPPED, NODE, Class::Bios, key);
        found.unwrap().unwrap()
    };
    assert_eq!((since(agents).at, since(agents).at_least), (4_500, false));
    assert_eq!((since(bmcs).at, since(bmcs).at_least), (5_000, false));
}

#[test]
fn bmc_events_continue_after_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let store = HistoryStore::open(&path).unwrap();
    let key = "bios.redfish.version";
    let digest = bios(key, "2").state().digest().unwrap();
    let entries = [
        bios_entry(1, 1_000, key, None, "1"),
        bios_entry(2, 2_000, key, Some("1"), "2"),
    ];
    store
        .keep_record(&digest, &bios(key, "2").encode())
        .unwrap();
    store.append_bmc(NODE, &entries, 2_000).unwrap();
    store.append(NODE, read(7, 3), &three(), 9_000).unwrap();
    drop(store);
    let store = HistoryStore::open(&path).unwrap();
    let history = of_bmc(&store, NODE).unwrap();
    // The agent's entries are not included.
    assert_eq!(history.checkpoint().seq, 2);
    assert_eq!(history.published(), [(Class::Bios, entries[1].to)].into());
    assert_eq!(history.record(Class::Bios), Some(&bios(key, "2")));
    assert_eq!(of_bmc(&store, "gpu002").unwrap().checkpoint().seq, 0);
}

#[test]
fn collects_unreferenced_records_only() {
    let store = store();
    let kept = |firmware: &str| {
        let record = record(firmware);
        let digest = record.state().digest().unwrap();
        store.keep_record(&digest, &record.encode()).unwrap();
        digest
    };
    let (orphan, early) = (kept("1"), kept("28.39"));
    store.sweep().unwrap();
    // The entry is written right after the check.
    assert!(store.has_record(&early).unwrap());
    store
        .append(NODE, read(7, 1), &three()[..1], 9_000)
        .unwrap();
    store.sweep().unwrap();
    assert!(store.has_record(&early).unwrap());
    assert!(!store.has_record(&orphan).unwrap());
}

#[test]
fn record_found_during_sweep_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let digest = record("28.39").state().digest().unwrap();
    let store = HistoryStore::open(&path).unwrap();
    store
        .keep_record(&digest, &record("28.39").encode())
        .unwrap();
    drop(store);
    let store = HistoryStore::open(&path).unwrap();
    store.sweep().unwrap();
    // A caller that finds the record does not fetch it, and writes the entry that names it next.
    assert!(store.has_record(&digest).unwrap());
    store.sweep().unwrap();
    assert!(store.has_record(&digest).unwrap());
    store.sweep().unwrap();
    store.sweep().unwrap();
    assert!(!store.has_record(&digest).unwrap());
}

#[test]
fn a_database_of_another_format_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let store = HistoryStore::open(&path).unwrap();
    store.append(NODE, read(7, 3), &three(), 9_000).unwrap();
    drop(store);
    assert_eq!(HistoryStore::open(&path).unwrap().len().unwrap(), 3);
    let write_format = |format: Option<u64>| {
        let database = redb::Database::create(&path).unwrap();
        let txn = database.begin_write().unwrap();
        let mut marks = txn.open_table(tables::MARKS).unwrap();
        match format {
            Some(format) => drop(marks.insert(tables::FORMAT_MARK, format).unwrap()),
            None => drop(marks.remove(tables::FORMAT_MARK).unwrap()),
        }
        drop(marks);
        txn.commit().unwrap();
    };
    for (found, words) in [(Some(2), "has format 2"), (None, "has no format")] {
        write_format(found);
        let error = HistoryStore::open(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.contains("reads format 1"), "{error}");
    }
    write_format(Some(1));
    assert_eq!(HistoryStore::open(&path).unwrap().len().unwrap(), 3);
}

#[test]
fn lines_are_gone_through_at_the_start_only_where_one_was_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.redb");
    let open = || HistoryStore::open(&path).unwrap();
    let marked = |store: &HistoryStore| {
        let mark = store.read(|txn| {
            let marks = txn.open_table(tables::MARKS)?;
            Ok(marks.get(tables::UNREAD)?.map(|mark| mark.value()))
        });
        mark.unwrap()
    };
    let store = open();
    assert_eq!(marked(&store), Some(0));
    store.append(NODE, read(7, 3), &three(), 9_000).unwrap();
    assert_eq!(marked(&store), Some(0));
    // Stored by an older control, readable by this one.
    let newer = |entry: &Entry| {
        let record = HistoryRecord::Entry(entry.clone());
        HistoryRecord::Other(serde_json::to_value(record).unwrap())
    };
    let fourth = entry(4, 4_000, text("28.41"), text("28.43"));
    store
        .append(NODE, read(7, 4), &[newer(&fourth)], 9_000)
        .unwrap();
    assert_eq!((marked(&store), store.len().unwrap()), (Some(1), 3));
    drop(store);
    let store = open();
    assert_eq!((marked(&store), store.len().unwrap()), (Some(0), 4));
    // A line that is still unreadable is checked again.
    let flood = serde_json::json!({"seq": 5, "at": 5_000, "boot_id": "b", "event": {"kind": "x"}});
    store
        .append(NODE, read(7, 5), &[HistoryRecord::Other(flood)], 9_000)
        .unwrap();
    drop(store);
    assert_eq!(marked(&open()), Some(1));
}

fn liveness(is_alive: bool, late: bool) -> NodeObservation {
    NodeObservation::Liveness {
        is_alive,
        reason: None,
        left_out: 0,
        late,
    }
}

#[tokio::test]
async fn last_seen_is_last_contact() {
    let history = History::open(None).unwrap();
    let cursor = read(7, 3);
    let records = three().into_iter().map(HistoryRecord::Entry).collect();
    history
        .append(NODE.to_owned(), cursor, records, 9_000)
        .await
        .unwrap();
    let note = async |happened: Vec<(u64, NodeObservation)>| {
        let node = NODE.to_owned();
        let note = TimedObservations {
            node,
            happened,
            comparison_state: None,
        };
        history.note(vec![note], None).await.unwrap();
    };
    let last = async || history.last_contact(NODE.to_owned()).await.unwrap();
    note(vec![(50_000, liveness(false, true))]).await;
    assert_eq!(last().await, Some(3_000));
    // Notes about a node are not contact with it, however many they are.
    let audit = |number| NodeObservation::Audit {
        number,
        action: "brake_held".to_owned(),
        by: "root".to_owned(),
        summary: String::new(),
    };
    note((0..100).map(|n| (60_000 + n, audit(n))).collect()).await;
    assert_eq!(last().await, Some(3_000));
    note(vec![(70_000, liveness(true, true))]).await;
    assert_eq!(last().await, Some(70_000));
    note(vec![(80_000, liveness(false, false))]).await;
    assert_eq!(last().await, Some(80_000));
}

#[tokio::test]
async fn the_age_of_a_nodes_classes_is_read_once_for_each_line_it_gets() {
    let history = History::open(None).unwrap();
    let since = async || {
        let nodes = vec![NODE.to_owned()];
        let since = history.unchanged_since(nodes, vec![Class::Nic]).await;
        since.unwrap().get(NODE).copied()
    };
    assert_eq!(since().await, None);
    let append = async |entries: &[Entry]| {
        let records = entries.iter().cloned().map(HistoryRecord::Entry).collect();
        let cursor = read(7, entries.len() as u64);
        let append = history.append(NODE.to_owned(), cursor, records, 9_000);
        append.await.unwrap();
    };
    append(&three()).await;
    assert_eq!(since().await, Some(2_000));
    // The line is replaced by invalid data: a query that reads no line succeeds.
    let kept = history.0.read(|txn| {
        let table = txn.open_table(tables::ENTRIES)?;
        Ok(table.get((NODE, 1))?.unwrap().value().to_vec())
    });
    let put = |json: &[u8]| {
        let put = history.0.write(|txn| {
            txn.open_table(tables::ENTRIES)?.insert((NODE, 1), json)?;
            Ok(())
        });
        put.unwrap();
    };
    put(b"no entry");
    assert_eq!(since().await, Some(2_000));
    put(&kept.unwrap());
    let mut more = three();
    more.push(entry(
        4,
        4_000,
        Reading::Timeout { after_ms: 5 },
        text("28.50"),
    ));
    append(&more).await;
    assert_eq!(since().await, Some(4_000));
}
