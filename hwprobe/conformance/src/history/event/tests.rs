#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::history::{Cause, Checkpoint, FoldedLine, History, Line};
use crate::{Class, ClassMark};
use serde_json::json;

fn folded(what: EventKind) -> FoldedLine<EventKind> {
    FoldedLine {
        what,
        at: 5,
        first_at: 5,
        count: 1,
        left_out: 0,
    }
}

fn agent() -> EventKind {
    let version = "0.1.0".to_owned();
    EventKind::Agent { version }
}

fn xid(detail: &str) -> EventKind {
    EventKind::GpuEvent {
        gpu: "gpu.3".to_owned(),
        address: "0000:41:00.0".to_owned(),
        code: "gpu.xid.79".to_owned(),
        source: "both".to_owned(),
        detail: detail.to_owned(),
        severity: Severity::Faulty,
        action: Action::Reboot,
    }
}

fn event(line: &Line) -> &Event {
    match line {
        Line::Event(event) => event,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn events_and_changes_are_one_sequence_also_over_a_restart() {
    let mut history = History::default();
    let first = history.record_event("b1", folded(agent()));
    let second = history.record_event("b1", folded(xid("")));
    assert_eq!((first.seq(), second.seq()), (Some(1), Some(2)));
    let mut checkpoint = Checkpoint::default();
    [&first, &second]
        .into_iter()
        .for_each(|line| checkpoint.fold(line));
    assert_eq!(&checkpoint, history.checkpoint());
    let mut again = History::restore(checkpoint, |_| None);
    assert_eq!(again.record_event("b1", folded(agent())).seq(), Some(3));
}

#[test]
fn another_boot_is_noticed_once_and_none_is_seen_where_nothing_was_known() {
    let mut history = History::default();
    assert_eq!(history.boot_before("b1"), None, "a new node");
    history.record_event("b1", folded(agent()));
    assert_eq!(history.boot_before("b1"), None);
    assert_eq!(history.boot_before("b2"), Some("b1"));
    history.record_event("b2", folded(agent()));
    assert_eq!(history.boot_before("b2"), None);
    // A journal written before events existed contains only the boot that was read.
    let old = json!({"seq": 9, "boot_id": "b1", "classes": {}});
    let old: Checkpoint = serde_json::from_value(old).unwrap();
    let history = History::restore(old, |_| None);
    assert_eq!(history.boot_before("b1"), None);
    assert_eq!(history.boot_before("b2"), Some("b1"));
}

#[test]
fn an_event_is_read_back_and_keeps_its_stable_form() {
    let mut history = History::default();
    let line = history.record_event("b1", folded(xid("GPU has fallen off the bus")));
    let json = serde_json::to_value(&line).unwrap();
    let expected = json!({"event": {
        "seq": 1, "at": 5, "boot_id": "b1",
        "event": {
            "kind": "xid", "gpu": "gpu.3", "address": "0000:41:00.0", "code": "gpu.xid.79",
            "source": "both", "detail": "GPU has fallen off the bus",
            "severity": "faulty", "action": "reboot",
        },
    }});
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<Line>(json).unwrap(), line);
    let record = HistoryRecord::Event(event(&line).clone());
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(
        serde_json::from_value::<HistoryRecord>(json).unwrap(),
        record
    );
}

#[test]
fn entry_format_is_unchanged_by_events() {
    let entry = Entry {
        seq: 4,
        at: 7,
        boot_id: "b1".to_owned(),
        cause: Cause::First,
        class: Class::Nic,
        revision: 1,
        from: None,
        to: ClassMark::Incomplete,
        changes: Vec::new(),
        more: 0,
    };
    let json = serde_json::to_value(&entry).unwrap();
    assert_eq!(
        serde_json::to_value(HistoryRecord::from(entry.clone())).unwrap(),
        json
    );
    let record: HistoryRecord = serde_json::from_value(json).unwrap();
    assert_eq!((record.seq(), record.at()), (Some(4), 7));
    assert_eq!(record, HistoryRecord::Entry(entry));
}

#[test]
fn what_a_newer_agent_writes_is_kept_and_its_number_not_given_away() {
    let newer = json!({"event": {"seq": 7, "at": 3, "boot_id": "b1", "event": {"kind": "flood"}}});
    let line: Line = serde_json::from_value(newer.clone()).unwrap();
    assert!(matches!(line, Line::Other(_)));
    assert_eq!(serde_json::to_value(&line).unwrap(), newer);
    let mut checkpoint = Checkpoint::default();
    checkpoint.fold(&line);
    let mut history = History::restore(checkpoint, |_| None);
    assert_eq!(history.record_event("b1", folded(agent())).seq(), Some(8));
    let record: HistoryRecord = serde_json::from_value(newer["event"].clone()).unwrap();
    assert!(matches!(record, HistoryRecord::Other(_)));
    assert_eq!((record.seq(), record.at()), (Some(7), 3));
    assert_eq!(
        serde_json::from_value::<HistoryRecord>(json!({}))
            .unwrap()
            .seq(),
        None
    );
}

#[test]
fn texts_of_drivers_and_people_are_cut_and_an_event_has_a_bound() {
    let mut history = History::default();
    let long = "\u{1F525}".repeat(100_000);
    let line = history.record_event("b1", folded(xid(&long)));
    let bytes = serde_json::to_vec(&line).unwrap().len();
    assert!(bytes < 4 << 10, "{bytes}");
    let by = EventKind::Cleared {
        by: long.clone(),
        code: long.clone(),
        entity: Some(long),
        reasons: 1,
    };
    let line = history.record_event("b1", folded(by));
    assert!(serde_json::to_vec(&line).unwrap().len() < 8 << 10);
}

#[test]
fn a_storm_of_what_does_no_harm_leaves_faults_their_share() {
    let harmless = EventKind::GpuEvent {
        gpu: "gpu.3".to_owned(),
        address: "0000:41:00.0".to_owned(),
        code: "gpu.xid.13".to_owned(),
        source: "nvml".to_owned(),
        detail: String::new(),
        severity: Severity::Inform,
        action: Action::RestartApplication,
    };
    assert_ne!(
        harmless.recording_limit().share,
        xid("").recording_limit().share
    );
    assert_ne!(harmless.key(), xid("").key());
}
