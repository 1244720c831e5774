//! Node data served from the history.

use super::fixture::ApiFixture;
use lattice_conformance::{
    Class, ClassMark,
    health::{Action, Severity},
    history::{Cause, Entry, Event, EventKind, HistoryRecord, ReasonChange},
};
use lattice_engine::{history::Cursor, observed_state};
use lattice_view::PingOutcome;

use lattice_placement::Liveness;
use lattice_quorum_types::NodeId;
use std::collections::BTreeMap;

const MINUTE: u64 = 60_000;

fn event(seq: u64, at: u64, event: EventKind) -> HistoryRecord {
    HistoryRecord::Event(Event {
        seq,
        at,
        boot_id: "b2".to_owned(),
        count: 1,
        first_at: None,
        left_out: 0,
        event,
    })
}

/// Entry that a node has had this record since then.
fn became(seq: u64, at: u64, byte: u8) -> HistoryRecord {
    HistoryRecord::Entry(Entry {
        seq,
        at,
        boot_id: "b2".to_owned(),
        cause: Cause::Periodic,
        class: Class::Kernel,
        revision: seq,
        from: (seq > 1).then_some(ClassMark::Incomplete),
        to: ClassMark::Complete {
            schema: 1,
            digest: lattice_conformance::Digest([byte; 32]),
        },
        changes: Vec::new(),
        more: 0,
    })
}

async fn append(fixture: &ApiFixture, node: &str, records: Vec<HistoryRecord>) {
    let cursor = Cursor {
        journal: 1,
        read: records.len() as u64,
    };
    let now = fixture.core.now().0;
    let append = fixture
        .stores
        .history
        .append(node.to_owned(), cursor, records, now);
    append.await.unwrap();
}

#[tokio::test]
async fn a_group_is_as_old_as_its_members_histories_say() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let at = fixture.core.now().0 - 120 * MINUTE;
    // The node had this record before, then another one, and has had this one again since.
    let marks = [(0, 1), (10, 9), (20, 1), (30, 1)];
    let marks = marks.iter().zip(1..);
    let marks = marks.map(|((minute, byte), seq)| became(seq, at + minute * MINUTE, *byte));
    append(&fixture, "gpu003", marks.collect()).await;
    let groups = eye.conformance_groups(Some("kernel")).await.unwrap();
    let of = |nodes: &str| {
        let group = groups.groups.iter().find(|group| group.nodes == nodes);
        let seen = group.unwrap().first_seen.clone().unwrap();
        lattice_api::text::read_time(&seen).unwrap().0
    };
    assert_eq!(of("gpu003"), at + 20 * MINUTE);
    // The others have no history, so the start of this control applies.
    assert!(of("gpu[001-002,004-024]") > at + 119 * MINUTE);
}

#[tokio::test]
async fn unknown_class_shows_last_value() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let at = fixture.core.now().0 - 120 * MINUTE;
    let (was, mut lost) = (became(1, at, 7), became(2, at + MINUTE, 7));
    if let HistoryRecord::Entry(entry) = &mut lost {
        entry.to = ClassMark::Incomplete;
    }
    append(&fixture, "gpu003", vec![was, lost]).await;
    let kernel = async || eye.node("gpu003").await.unwrap().classes["kernel"].clone();
    let complete = kernel().await;
    assert_eq!((&*complete.state, complete.last_digest), ("complete", None));
    let view = fixture.core.view();
    let nodes = view.nodes.iter().filter_map(|(id, entry)| {
        let mut seen = entry.gossip.clone()?;
        seen.marks.insert(Class::Kernel, ClassMark::Incomplete);
        Some((id.clone(), seen))
    });
    observed_state::cell(&fixture.core, "cell-0", nodes.collect());
    let lost = kernel().await;
    assert_eq!((&*lost.state, &lost.digest), ("incomplete", &None));
    assert_eq!(lost.last_digest.as_deref(), Some("07".repeat(32).as_str()));
    let until = lattice_api::text::read_time(&lost.complete_until.unwrap());
    assert_eq!(until.unwrap().0, at + MINUTE);
    let never = eye.node("gpu004").await.unwrap().classes["kernel"].clone();
    assert_eq!((&*never.state, never.last_digest), ("incomplete", None));
}

#[tokio::test]
async fn the_last_pass_of_a_node_that_does_not_answer_is_shown_with_its_time() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let at = fixture.core.now().0 - 120 * MINUTE;
    let reason = |turn, code: &str| EventKind::Health {
        turn,
        code: code.to_owned(),
        entity: "gpu.1".to_owned(),
        evidence: "seen".to_owned(),
        severity: Severity::Degraded,
        action: Action::Inspect,
        observe_only: false,
    };
    let records = vec![
        event(1, at, reason(ReasonChange::Began, "gpu.ecc")),
        event(2, at + MINUTE, reason(ReasonChange::Began, "gpu.hot")),
        event(3, at + 2 * MINUTE, reason(ReasonChange::Ended, "gpu.hot")),
    ];
    append(&fixture, "gpu002", records.clone()).await;
    append(&fixture, "gpu001", records).await;
    // The mesh accepts an answer only from the requested node, so this node does not answer. It still counts as alive.
    eye.health("gpu002", false).await.unwrap_err();
    let gone = PingOutcome {
        liveness: Liveness::Unreachable,
        reason: None,
        boot: None,
        reply_addr: None,
    };
    let gone = BTreeMap::from([(NodeId::new("gpu002").unwrap(), gone)]);
    observed_state::liveness(&fixture.core, &gone);
    let health = eye.health("gpu002", false).await.unwrap();
    assert!(health.agent_error.is_some());
    let as_of = lattice_api::text::read_time(health.as_of.as_deref().unwrap());
    assert_eq!(as_of.unwrap().0, at + 2 * MINUTE);
    let agents = health.reasons.iter().filter(|r| r.source == "agent");
    let codes: Vec<&str> = agents.map(|r| r.code.as_str()).collect();
    assert_eq!(codes, ["gpu.ecc"], "what ended is over");
    // For a node that answers, the current state is shown.
    let health = eye.health("gpu001", false).await.unwrap();
    assert_eq!((health.agent_error, health.as_of), (None, None));
    // A node that answers that its checks are off has no last pass.
    fixture.health.lock().unwrap()["enabled"] = false.into();
    let off = eye.health("gpu001", false).await.unwrap_err();
    assert!(off.to_string().contains("health.disabled"), "{off}");
    super::bmc::tells(&fixture, "gpu001", vec![]);
    let half = eye.health("gpu001", false).await.unwrap();
    assert!(half.agent_error.is_some());
    assert_eq!((half.reasons, half.as_of), (vec![], None));
}
