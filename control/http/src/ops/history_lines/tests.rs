use super::*;
use lattice_conformance::{
    Class, ClassMark, Reading,
    history::{Cause, KeyChange},
};
use serde_json::json;

fn what(happened: EventKind) -> String {
    agent_event_text(&happened).0
}

fn health(turn: ReasonChange) -> EventKind {
    EventKind::Health {
        turn,
        code: "gpu.row_remap.pending".to_owned(),
        entity: "gpu.2".to_owned(),
        evidence: "gpu.2.remapped_rows.pending is true, which is a fault".to_owned(),
        severity: Severity::Faulty,
        action: Action::ResetGpu,
        observe_only: false,
    }
}

#[test]
fn every_happening_is_a_line_for_a_person() {
    assert_eq!(
        what(health(ReasonChange::Began)),
        "gpu.row_remap.pending gpu.2, faulty: gpu.2.remapped_rows.pending is true, which is a fault"
    );
    assert_eq!(
        what(health(ReasonChange::Ended)),
        "gpu.row_remap.pending gpu.2 ended"
    );
    let cleared = EventKind::Cleared {
        by: "ada".to_owned(),
        code: "gpu.xid.79".to_owned(),
        entity: None,
        reasons: 2,
    };
    assert_eq!(
        what(cleared),
        "gpu.xid.79 on all parts cleared by ada, 2 reasons"
    );
    let drain = NodeObservation::Drain {
        turn: DrainTurn::Set,
        owner: "service:health".to_owned(),
        reason: "gpu.xid.79 on gpu.3".to_owned(),
        late: false,
    };
    assert_eq!(
        observation(&drain).0,
        "drained by service:health: gpu.xid.79 on gpu.3"
    );
    let cleared = |owner: &str| NodeObservation::Drain {
        turn: DrainTurn::Cleared,
        owner: owner.to_owned(),
        reason: "fan".to_owned(),
        late: false,
    };
    assert_eq!(
        observation(&cleared("ada")).0,
        "undrained by ada, its owner: fan"
    );
    assert_eq!(
        observation(&cleared(faults::HOOKS_OWNER)).0,
        "undrained by an operator; drained by service:hooks before: fan"
    );
    let suspect = NodeObservation::Suspect {
        for_ms: 12_000,
        reason: Some("no answer".to_owned()),
        left_out: 0,
    };
    assert_eq!(
        observation(&suspect).0,
        "suspect for 12 s: no answer; then it answered again"
    );
    let version = "0.1.0".to_owned();
    assert_eq!(
        what(EventKind::Stopped { version }),
        "agent 0.1.0 shut down"
    );
    let liveness = NodeObservation::Liveness {
        is_alive: false,
        reason: Some("no answer for 30 s".to_owned()),
        left_out: 3,
        late: true,
    };
    assert_eq!(
        observation(&liveness).0,
        "unreachable: no answer for 30 s (3 earlier changes are not listed) \
         (at this time or earlier: this control was not running or not connected)"
    );
}

#[test]
fn a_change_names_some_keys_and_counts_the_others() {
    let text = |value: &str| Reading::Present(value.into());
    let change = |n: u32| KeyChange {
        key: format!("nic.{n}.firmware"),
        from: text("1"),
        to: text("2"),
    };
    let history_entry = HistoryEntry {
        number: 3,
        when: 5,
        source: Source::Bmc,
        entry: Entry {
            seq: 1,
            at: 5,
            boot_id: String::new(),
            cause: Cause::Operator {
                who: "ada".to_owned(),
            },
            class: Class::Nic,
            revision: 1,
            from: Some(ClassMark::Incomplete),
            to: ClassMark::Disabled,
            changes: (0..5).map(change).collect(),
            more: 4,
        },
        left_out: 0,
    };
    let shown = view(HistoryItem::Change(Box::new(history_entry)));
    assert_eq!(
        shown.what,
        "nic.0.firmware 1 -> 2, nic.1.firmware 1 -> 2, nic.2.firmware 1 -> 2 and 6 more keys \
         (operator (ada))"
    );
    assert_eq!(
        (shown.kind.as_str(), shown.source.as_str()),
        ("change", "bmc")
    );
    assert_eq!(shown.changes.len(), 5);
}

#[test]
fn first_reading_shows_result_and_part() {
    let first = |source, to| {
        let entry = Entry {
            seq: 1,
            at: 5,
            boot_id: String::new(),
            cause: Cause::First,
            class: Class::Bios,
            revision: 1,
            from: None,
            to,
            changes: Vec::new(),
            more: 0,
        };
        let history_entry = HistoryEntry {
            number: 3,
            when: 5,
            source,
            entry,
            left_out: 0,
        };
        view(HistoryItem::Change(Box::new(history_entry))).what
    };
    let complete = ClassMark::Complete {
        schema: 1,
        digest: lattice_conformance::Digest([1; 32]),
    };
    for (source, to, words) in [
        (Source::Agent, complete, "class bios is read (first read)"),
        (
            Source::Bmc,
            complete,
            "class bios of its BMC is read (first read)",
        ),
        (
            Source::Agent,
            ClassMark::Disabled,
            "class bios is disabled (first read)",
        ),
        (
            Source::Bmc,
            ClassMark::Incomplete,
            "class bios of its BMC is incomplete (first read)",
        ),
    ] {
        assert_eq!(first(source, to), words);
    }
}

#[test]
fn the_form_of_an_event_is_stable_and_has_only_what_there_is() {
    let happened = PositionedEvent {
        number: 7,
        when: 0,
        what: EventContent::Event(Event {
            seq: 3,
            at: 0,
            boot_id: "b1".to_owned(),
            count: 1,
            first_at: None,
            left_out: 0,
            event: EventKind::Driver {
                module: "nvidia".to_owned(),
            },
        }),
    };
    let shown = serde_json::to_value(view(HistoryItem::Event(Box::new(happened))));
    let expected = json!({
        "number": 7, "at": "1970-01-01T00:00:00.000Z", "kind": "driver", "source": "agent",
        "what": "kernel module nvidia loaded or unloaded", "boot_id": "b1",
        "event": {"entity": "nvidia"},
    });
    assert_eq!(shown.ok(), Some(expected));
}
