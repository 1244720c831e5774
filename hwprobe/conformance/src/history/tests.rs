#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{Class, ClassMark, ClassRecord, Reading, Value};
use std::collections::BTreeMap;

type Records = BTreeMap<Class, ClassRecord>;

fn nic(firmware: Reading<&str>) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.require("nic.count", Reading::Present(1u32));
    record.require("nic.0.firmware", firmware);
    record.put("nic.0.driver", Reading::Present("mlx5_core"));
    record
}

fn node(firmware: Reading<&str>) -> Records {
    let mut cpu = ClassRecord::new(Class::Cpu);
    cpu.require("cpu.model", Reading::Present("x"));
    let nic = nic(firmware);
    [(Class::Nic, nic), (Class::Cpu, cpu)].into()
}

fn with(firmware: &str) -> Records {
    node(Reading::Present(firmware))
}

fn unknown() -> Records {
    node(Reading::failed("input/output error"))
}

/// A node that is read in one boot, until a test changes it.
struct Bench {
    history: History,
    boot: &'static str,
    now: u64,
    lines: Vec<Line>,
    preimages: BTreeMap<crate::Digest, Vec<u8>>,
}

impl Bench {
    fn new() -> Self {
        Self {
            history: History::default(),
            boot: "boot-1",
            now: 1000,
            lines: Vec::new(),
            preimages: BTreeMap::new(),
        }
    }

    /// The entries of a read, and whether it must be confirmed.
    fn read(&mut self, records: &Records, cause: Cause) -> (Vec<Entry>, bool) {
        self.now += 10;
        let seen = ReadContext {
            at: self.now,
            boot_id: self.boot.to_owned(),
            cause,
        };
        let observed = self.history.observe(records, &seen);
        for record in records.values() {
            if let Some(digest) = record.state().digest() {
                self.preimages.insert(digest, record.encode());
            }
        }
        self.lines.extend(observed.lines.iter().cloned());
        (entries(&observed.lines), observed.confirm)
    }

    /// Restarts the process from the lines written so far.
    fn restart(&mut self) -> Cause {
        let mut checkpoint = Checkpoint::default();
        self.lines.iter().for_each(|line| checkpoint.fold(line));
        assert_eq!(&checkpoint, self.history.checkpoint());
        let record = |digest: &crate::Digest| {
            let bytes = self.preimages.get(digest)?;
            crate::verify(digest, bytes).ok()
        };
        self.history = History::restore(checkpoint, record);
        self.history.start_cause(self.boot)
    }

    fn entries(&self) -> Vec<Entry> {
        entries(&self.lines)
    }
}

fn entries(lines: &[Line]) -> Vec<Entry> {
    let entry = |line: &Line| match line {
        Line::Entry(entry) => Some(entry.clone()),
        Line::Checkpoint(_) | Line::Boot { .. } | Line::Event(_) | Line::Other(_) => None,
    };
    lines.iter().filter_map(entry).collect()
}

fn operator() -> Cause {
    let who = "alice".to_owned();
    Cause::Operator { who }
}

fn text(value: &str) -> Reading<Value> {
    Reading::Present(value.into())
}

#[test]
fn the_first_read_has_one_entry_a_class_and_equal_reads_have_none() {
    let mut bench = Bench::new();
    let (first, confirm) = bench.read(&with("28.1"), Cause::AgentStart);
    assert!(!confirm);
    assert_eq!(first.len(), 2);
    for (n, entry) in first.iter().enumerate() {
        assert_eq!(entry.seq, n as u64 + 1);
        assert_eq!(entry.cause, Cause::First);
        assert_eq!(entry.from, None);
        assert_eq!((entry.changes.len(), entry.revision), (0, 1));
    }
    for _ in 0..3 {
        let (none, confirm) = bench.read(&with("28.1"), Cause::Periodic);
        assert_eq!((none.len(), confirm), (0, false));
    }
}

#[test]
fn change_is_recorded_once_with_key_and_cause() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    let before = with("28.1")[&Class::Nic].state().mark();
    let (none, confirm) = bench.read(&with("28.2"), operator());
    assert_eq!((none.len(), confirm), (0, true));
    let (entries, confirm) = bench.read(&with("28.2"), Cause::Periodic);
    assert!(!confirm);
    let [entry] = entries.as_slice() else {
        panic!("{entries:?}");
    };
    assert_eq!(entry.cause, operator());
    assert_eq!((entry.seq, entry.revision), (3, 2));
    assert_eq!(entry.from, Some(before));
    assert_eq!(entry.to, with("28.2")[&Class::Nic].state().mark());
    assert_eq!(
        entry.changes,
        [KeyChange {
            key: "nic.0.firmware".to_owned(),
            from: text("28.1"),
            to: text("28.2"),
        }]
    );
    assert_eq!(bench.read(&with("28.2"), operator()).0, []);
}

#[test]
fn what_was_seen_once_and_was_gone_leaves_neither_entry_nor_cause() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    bench.read(&with("28.2"), operator());
    assert_eq!(bench.read(&with("28.1"), Cause::Periodic), (vec![], false));
    bench.read(&with("28.2"), Cause::Periodic);
    let (entries, _) = bench.read(&with("28.2"), operator());
    assert_eq!(entries[0].cause, Cause::Periodic);
}

#[test]
fn a_change_that_changes_again_keeps_the_strongest_cause() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    let module = "mlx5_core".to_owned();
    let driver = Cause::DriverLoad { module };
    bench.read(&with("28.2"), driver.clone());
    assert!(bench.read(&with("28.3"), Cause::Periodic).1);
    let (entries, _) = bench.read(&with("28.3"), Cause::Periodic);
    assert_eq!(entries[0].cause, driver);
}

#[test]
fn of_several_causes_the_strongest_is_named() {
    let what = "pci add x".to_owned();
    let module = "nvidia".to_owned();
    let weakest_first = [
        Cause::Periodic,
        Cause::AgentStart,
        operator(),
        Cause::DeviceEvent { what },
        Cause::DriverLoad { module },
        Cause::Boot,
    ];
    for (n, weaker) in weakest_first.iter().enumerate() {
        for stronger in &weakest_first[n..] {
            assert_eq!(&weaker.clone().or_stronger(stronger.clone()), stronger);
            assert_eq!(&stronger.clone().or_stronger(weaker.clone()), stronger);
        }
    }
}

#[test]
fn becoming_unknown_and_known_again_are_entries_with_reasons() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    let (lost, confirm) = bench.read(&unknown(), Cause::Periodic);
    assert!(!confirm);
    assert_eq!(lost[0].to, ClassMark::Incomplete);
    let failed = Reading::failed("input/output error");
    assert_eq!(
        lost[0].changes,
        [KeyChange {
            key: "nic.0.firmware".to_owned(),
            from: text("28.1"),
            to: failed.clone(),
        }]
    );
    assert_eq!(bench.read(&unknown(), Cause::Periodic).0, []);
    let (back, _) = bench.read(&with("28.1"), Cause::Periodic);
    assert_eq!(back[0].from, Some(ClassMark::Incomplete));
    assert_eq!(
        (&back[0].changes[0].from, &back[0].changes[0].to),
        (&failed, &text("28.1"))
    );
}

#[test]
fn a_change_while_nothing_was_known_needs_two_reads_as_any_other() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    bench.read(&unknown(), Cause::Periodic);
    bench.restart();
    assert_eq!(bench.read(&unknown(), Cause::AgentStart).0, []);
    assert!(bench.read(&with("28.2"), Cause::Periodic).1);
    let (entries, _) = bench.read(&with("28.2"), Cause::Periodic);
    let keys: Vec<&str> = entries[0].changes.iter().map(|c| c.key.as_str()).collect();
    assert_eq!(keys, ["nic.0.firmware"]);
}

#[test]
fn over_a_restart_nothing_is_entered_twice_and_the_numbers_go_on() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    let cause = bench.restart();
    assert_eq!(cause, Cause::AgentStart);
    assert_eq!(bench.read(&with("28.1"), cause), (vec![], false));
    let cause = bench.restart();
    assert!(bench.read(&with("28.2"), cause).1);
    let (entries, _) = bench.read(&with("28.2"), Cause::Periodic);
    assert_eq!((entries[0].seq, &entries[0].cause), (3, &Cause::AgentStart));
    assert_eq!(entries[0].changes[0].from, text("28.1"));
}

#[test]
fn change_across_boot_is_attributed_to_it() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    bench.boot = "boot-2";
    let cause = bench.restart();
    assert_eq!(cause, Cause::Boot);
    assert_eq!(bench.read(&with("28.1"), cause), (vec![], false));
    // The boot is complete: later changes did not come with it.
    assert_eq!(bench.restart(), Cause::AgentStart);
    bench.boot = "boot-3";
    let cause = bench.restart();
    assert!(bench.read(&with("28.2"), cause).1);
    // The change is unconfirmed when the agent stops; the next agent still attributes it to the boot.
    let cause = bench.restart();
    assert_eq!(cause, Cause::Boot);
    bench.read(&with("28.2"), cause);
    let (entries, _) = bench.read(&with("28.2"), Cause::Periodic);
    assert_eq!(entries[0].cause, Cause::Boot);
    assert_eq!(entries[0].boot_id, "boot-3");
    assert_eq!(bench.restart(), Cause::AgentStart);
}

#[test]
fn lost_preimage_is_reported_without_guesses() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    bench.preimages.clear();
    bench.restart();
    bench.read(&with("28.2"), Cause::Periodic);
    let (entries, _) = bench.read(&with("28.2"), Cause::Periodic);
    assert_eq!(entries[0].changes.len(), 1);
    assert_eq!(entries[0].changes[0].key, "record");
    assert!(!entries[0].changes[0].from.is_known());
}

#[test]
fn another_schema_is_one_change_and_no_keys_are_compared() {
    let mut bench = Bench::new();
    let mut old = with("28.1");
    old.get_mut(&Class::Nic).unwrap().schema = 1;
    bench.read(&old, Cause::AgentStart);
    bench.read(&with("28.2"), Cause::AgentStart);
    let (entries, _) = bench.read(&with("28.2"), Cause::Periodic);
    let change = &entries[0].changes[0];
    assert_eq!(
        (change.key.as_str(), entries[0].changes.len()),
        ("schema", 1)
    );
    assert_eq!(change.from, Reading::Present(Value::Number(1)));
}

#[test]
fn disabled_class_names_cause() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    let mut off = with("28.1");
    off.insert(Class::Nic, ClassRecord::disabled(Class::Nic, "the site"));
    let (entries, _) = bench.read(&off, Cause::AgentStart);
    assert_eq!(entries[0].to, ClassMark::Disabled);
    assert_eq!(entries[0].changes[0].key, "class");
    assert_eq!(
        entries[0].changes[0].from,
        Reading::Present("probed".into())
    );
    assert_eq!(entries[0].changes[0].to, Reading::disabled("the site"));
}

#[test]
fn a_class_that_was_switched_off_from_the_start_changed_nothing() {
    let mut bench = Bench::new();
    let mut off = with("28.1");
    off.insert(Class::Nic, ClassRecord::disabled(Class::Nic, "the site"));
    let (entries, _) = bench.read(&off, Cause::AgentStart);
    let first = entries.iter().find(|entry| entry.class == Class::Nic);
    let first = first.unwrap();
    assert_eq!((first.from, first.to), (None, ClassMark::Disabled));
    assert_eq!((&*first.changes, first.more), (&[][..], 0));
    assert_eq!(first.cause, Cause::First);
}

#[test]
fn a_class_that_was_never_complete_was_probed_all_the_same() {
    let mut bench = Bench::new();
    bench.read(&unknown(), Cause::AgentStart);
    let off = [(Class::Nic, ClassRecord::disabled(Class::Nic, "the site"))].into();
    let (entries, _) = bench.read(&off, Cause::AgentStart);
    assert_eq!(entries[0].changes[0].key, "class");
    assert_eq!(
        entries[0].changes[0].from,
        Reading::Present("probed".into())
    );
}

#[test]
fn an_entry_has_a_bound_in_keys_and_in_bytes() {
    let wide = |value: &str| -> Records {
        let mut record = ClassRecord::new(Class::Software);
        for n in 0..500 {
            record.put(format!("software.package.{n:03}"), Reading::Present(value));
        }
        [(Class::Software, record)].into()
    };
    let mut bench = Bench::new();
    bench.read(&wide("1"), Cause::AgentStart);
    bench.read(&wide("2"), Cause::Periodic);
    let (entries, _) = bench.read(&wide("2"), Cause::Periodic);
    assert_eq!(entries[0].changes.len(), MAX_CHANGES);
    assert_eq!(entries[0].more, 500 - MAX_CHANGES as u32);
    let long = "x".repeat(4000);
    bench.read(&wide(&long), Cause::Periodic);
    let (entries, _) = bench.read(&wide(&long), Cause::Periodic);
    let written = serde_json::to_string(&entries[0]).unwrap();
    assert!(written.len() < MAX_CHANGE_BYTES + 4096, "{}", written.len());
    assert_eq!(entries[0].changes.len() + entries[0].more as usize, 500);
}

#[test]
fn any_time_that_entries_reach_can_be_rebuilt() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    let first = bench.now;
    bench.read(&unknown(), Cause::Periodic);
    let second = bench.now;
    bench.read(&with("28.2"), Cause::Periodic);
    bench.read(&with("28.2"), Cause::Periodic);
    let (entries, third) = (bench.entries(), bench.now);
    let at = |at| {
        record_at(&entries, Class::Nic, at, |digest| {
            bench.preimages.get(digest).cloned()
        })
    };
    let firmware = |past: &PastState| match past {
        PastState::Complete { record, since, .. } => (record.get("nic.0.firmware"), *since),
        other => panic!("{other:?}"),
    };
    assert_eq!(at(first - 1), PastState::NotKept);
    assert_eq!(firmware(&at(first)), (text("28.1"), first));
    assert!(matches!(&at(second), PastState::Incomplete { missing, .. }
        if missing[0].key == "nic.0.firmware"));
    assert_eq!(firmware(&at(u64::MAX)), (text("28.2"), third));
    let lost = record_at(&entries, Class::Nic, first, |_| None);
    assert!(matches!(lost, PastState::Lost { .. }));
    let forged = record_at(&entries, Class::Nic, first, |_| {
        Some(with("27.0")[&Class::Nic].encode())
    });
    assert!(matches!(forged, PastState::Lost { .. }));
}

#[test]
fn a_line_is_read_back_as_it_was_written() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    bench.read(&with("28.2"), operator());
    bench.read(&with("28.2"), Cause::Periodic);
    bench.read(&unknown(), Cause::Periodic);
    let checkpoint = Line::Checkpoint(bench.history.checkpoint().clone());
    for line in bench.lines.iter().chain([&checkpoint]) {
        let json = serde_json::to_string(line).unwrap();
        assert_eq!(&serde_json::from_str::<Line>(&json).unwrap(), line);
    }
}

#[test]
fn unstable_class_is_incomplete_with_keys() {
    let mut bench = Bench::new();
    bench.read(&with("28.1"), Cause::AgentStart);
    for version in ["28.2", "28.3", "28.2", "28.3"] {
        let (entries, confirm) = bench.read(&with(version), Cause::Periodic);
        assert!(entries.is_empty() && confirm, "{version}");
    }
    let (entries, confirm) = bench.read(&with("28.2"), Cause::Periodic);
    assert!(!confirm, "it was asked again soon often enough");
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].to, ClassMark::Incomplete);
    let keys: Vec<&str> = entries[0]
        .changes
        .iter()
        .map(|one| one.key.as_str())
        .collect();
    assert_eq!(keys, ["nic.0.firmware"]);
    let why = entries[0].changes[0].to.to_string();
    assert_eq!(why, "<failed: changes with every reading: 28.3, then 28.2>");
    let (entries, confirm) = bench.read(&with("28.3"), Cause::Periodic);
    assert!(entries.is_empty() && !confirm);
    // After two equal reads, the class takes their value.
    let (entries, _) = bench.read(&with("28.3"), Cause::Periodic);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert!(entries[0].to.digest().is_some());
    let change = &entries[0].changes[0];
    assert_eq!(
        (change.key.as_str(), &change.to),
        ("nic.0.firmware", &text("28.3"))
    );
    bench.restart();
}
