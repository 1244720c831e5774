//! BMC data in the API, next to agent data.

use super::fixture::{ApiFixture, PATIENCE};
use lattice_client::{
    ClientError, EventStream,
    api::{
        event::{Change, StreamEvent},
        node::NodeView,
    },
};
use lattice_conformance::{
    Class, ClassMark, ClassRecord, Milliwatts, Power, Reading,
    health::{Action, Reason, Severity},
};
use lattice_engine::{bmc::Parts, observed_state, tasks::bmc_faults::BmcFaultPublisher};
use lattice_placement::{ConformanceKey, Health};
use lattice_quorum_types::{NodeId, UnixMillis};
use lattice_view::node::MergedMark;
use std::collections::BTreeMap;

pub(super) fn reason(code: &str, entity: &str, severity: Severity) -> Reason {
    Reason {
        code: code.to_owned(),
        entity: entity.to_owned(),
        evidence: "bmc.health_rollup is Critical".to_owned(),
        severity,
        action: Action::Inspect,
        observe_only: false,
        first_seen_ms: 1_000,
        last_seen_ms: 2_000,
        count: 3,
    }
}

pub(super) fn tells(fixture: &ApiFixture, node: &str, reasons: Vec<Reason>) {
    let node = NodeId::new(node).unwrap();
    fixture.stores.readings.put_parts(node, parts(reasons));
}

fn parts(reasons: Vec<Reason>) -> Parts {
    Parts {
        records: BTreeMap::new(),
        findings: Vec::new(),
        reasons,
        read_at: UnixMillis(2_000),
        was_asked: true,
        may_drain: false,
        undecided: Default::default(),
    }
}

#[tokio::test]
async fn merges_bmc_and_agent_reasons_by_severity() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let plain = eye.health("gpu001", false).await.unwrap();
    assert_eq!((plain.reasons.len(), plain.bmc_read_at), (0, None));
    // The BMC is configured but was not read yet.
    let unread = Parts {
        was_asked: false,
        ..parts(vec![])
    };
    let node = NodeId::new("gpu001").unwrap();
    fixture.stores.readings.put_parts(node, unread);
    let unread = eye.health("gpu001", false).await.unwrap();
    assert_eq!(unread.bmc_read_at, None);
    let agents = reason("gpu.gone", "gpu.1", Severity::Faulty);
    *fixture.health.lock().unwrap() = serde_json::json!({
        "table": "1", "worst": "faulty", "reasons": [agents], "enabled": true, "read_age_ms": 1,
    });
    tells(
        &fixture,
        "gpu001",
        vec![reason("bmc.part_critical", "bmc", Severity::Degraded)],
    );
    let both = eye.health("gpu001", false).await.unwrap();
    let listed: Vec<_> = both
        .reasons
        .iter()
        .map(|r| (&*r.source, &*r.code))
        .collect();
    assert_eq!(
        listed,
        [("agent", "gpu.gone"), ("bmc", "bmc.part_critical")]
    );
    assert_eq!(both.agent_error, None);
    assert_eq!(
        both.bmc_read_at.as_deref(),
        Some("1970-01-01T00:00:02.000Z")
    );
    assert_eq!(both.reasons[1].first_seen, "1970-01-01T00:00:01.000Z");
    // In the node list as well, a BMC fault counts as a fault of the node.
    let node = eye.node("gpu001").await.unwrap();
    assert_eq!(node.health.verdict, "degraded");
    assert!(
        node.health
            .reasons
            .contains(&"bmc.part_critical".to_owned())
    );
}

#[tokio::test]
async fn bmc_health_is_shown_while_agent_is_down() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    // The mesh accepts an answer only from the requested node.
    let none = eye.health("gpu002", false).await.unwrap_err();
    assert!(matches!(none, ClientError::Unavailable(_)), "{none:?}");
    tells(
        &fixture,
        "gpu002",
        vec![reason("bmc.silent", "bmc", Severity::Degraded)],
    );
    let half = eye.health("gpu002", false).await.unwrap();
    assert_eq!((half.reasons.len(), &*half.reasons[0].source), (1, "bmc"));
    let error = half.agent_error.unwrap();
    assert!(error.contains("gpu002"), "{error}");
    assert_eq!(half.table, "", "no table was asked");
    // An unknown node has no BMC either.
    tells(&fixture, "gpu999", vec![]);
    let absent = eye.health("gpu999", false).await.unwrap_err();
    assert_eq!(absent.exit_code(), 4);
    // A fresh reading causes load on the node and its BMC.
    let denied = eye.health("gpu002", true).await.unwrap_err();
    assert_eq!(denied.problem().unwrap().status, 403);
}

#[tokio::test]
async fn missing_bmc_class_is_unknown_and_blocks_nothing() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let id = NodeId::new("gpu001").unwrap();
    assert_eq!(eye.node("gpu001").await.unwrap().health.verdict, "healthy");
    let undecided = MergedMark {
        base: fixture.core.view().node(&id).unwrap().published(Class::Bmc),
        mark: ClassMark::Incomplete,
        earlier: None,
    };
    let undecided = BTreeMap::from([(Class::Bmc, undecided)]);
    observed_state::merged_marks(&fixture.core, BTreeMap::from([(id.clone(), undecided)]));
    let node = eye.node("gpu001").await.unwrap();
    assert_eq!(node.health.verdict, "unknown");
    assert_eq!(node.health.reasons, ["bmc.incomplete"]);
    assert_eq!(
        (node.fingerprint, &*node.classes["bmc"].state),
        (None, "incomplete")
    );
    // No job waits for a BMC, except one that requires what the BMC reports.
    let facts = fixture.core.view().node(&id).unwrap().facts();
    assert_eq!(facts.health, Health::Healthy);
    assert_eq!(facts.conformance, ConformanceKey::Unknown);
    // The worse of both verdicts is shown: unknown may be worse than a fault.
    tells(
        &fixture,
        "gpu001",
        vec![reason("bmc.silent", "bmc", Severity::Degraded)],
    );
    let node = eye.node("gpu001").await.unwrap();
    assert_eq!(node.health.verdict, "unknown");
    assert_eq!(node.health.reasons, ["bmc.incomplete", "bmc.silent"]);
    BmcFaultPublisher::new(fixture.core.clone(), fixture.stores.readings.clone()).reconcile();
    let facts = fixture.core.view().node(&id).unwrap().facts();
    assert_eq!(
        facts.health,
        Health::Healthy,
        "its silence says nothing of it"
    );
}

/// Next view of the node in the stream, from any kind of event.
async fn next_node(events: &mut EventStream, node: &str) -> NodeView {
    let next = async {
        loop {
            let nodes = match events.next_event().await.unwrap() {
                StreamEvent::Observed(observed) => observed.nodes,
                StreamEvent::Changes(changes) => {
                    let nodes = changes
                        .changes
                        .into_iter()
                        .filter_map(|change| match change {
                            Change::Node { record } => Some(*record),
                            _ => None,
                        });
                    nodes.collect()
                }
                StreamEvent::Compacted(_) => continue,
            };
            if let Some(found) = nodes.into_iter().find(|found| found.name == node) {
                return found;
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, next);
    waited.await.expect("an event of the node")
}

#[tokio::test]
async fn stream_and_list_agree_on_bmc_faults() {
    let fixture = ApiFixture::furnished().await;
    let (eye, names) = (
        fixture.client("eye"),
        BmcFaultPublisher::new(fixture.core.clone(), fixture.stores.readings.clone()),
    );
    let id = NodeId::new("gpu001").unwrap();
    let power = Power {
        draw: Reading::Present(Milliwatts(400_000)),
        ..Power::default()
    };
    fixture
        .stores
        .readings
        .put_power(id.clone(), power, UnixMillis(2_000));
    let mut events = eye.events(None).await.unwrap();
    let critical = || reason("bmc.system_critical", "bmc", Severity::Faulty);
    let part = || reason("bmc.part_critical", "bmc", Severity::Degraded);
    for (reasons, verdict) in [
        (vec![critical()], "faulty"),
        // A fault that changes no verdict.
        (vec![critical(), part()], "faulty"),
        (vec![part()], "degraded"),
    ] {
        tells(&fixture, "gpu001", reasons.clone());
        assert_eq!(names.reconcile(), 1);
        let event = next_node(&mut events, "gpu001").await;
        let codes: Vec<String> = reasons.into_iter().map(|reason| reason.code).collect();
        assert_eq!(
            (&*event.health.verdict, &event.health.reasons),
            (verdict, &codes)
        );
        assert_eq!(event.power.as_ref().unwrap().draw_watts, Some(400));
        assert_eq!(event, eye.node("gpu001").await.unwrap());
    }
    assert_eq!(names.reconcile(), 0, "nothing is new");
    // A change from the quorum also carries the complete node.
    let drained = fixture.client("op").drain("gpu001", "a fan").await;
    drained.unwrap();
    let event = next_node(&mut events, "gpu001").await;
    assert_eq!((&*event.health.verdict, event.drain.len()), ("degraded", 1));
    assert!(event.power.is_some());
}

#[tokio::test]
async fn only_reason_changes_are_events() {
    let fixture = ApiFixture::furnished().await;
    let mut news = fixture.stores.readings.changes();
    let silent = reason("bmc.silent", "bmc", Severity::Degraded);
    let seen_again = Reason {
        last_seen_ms: 9_000,
        count: 7,
        ..silent.clone()
    };
    let watched = Reason {
        observe_only: true,
        ..reason("bmc.part_warning", "bmc", Severity::Inform)
    };
    for (reasons, is_news) in [
        (vec![], true),
        (vec![silent.clone()], true),
        (vec![seen_again.clone()], false),
        (vec![seen_again, watched], false),
        (vec![], true),
    ] {
        news.mark_unchanged();
        tells(&fixture, "gpu001", reasons.clone());
        assert_eq!(news.has_changed().unwrap(), is_news, "{reasons:?}");
    }
}

#[tokio::test]
async fn reason_lists_agree() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let id = NodeId::new("gpu001").unwrap();
    let mut part = ClassRecord::new(Class::Bmc);
    part.require(
        "bmc.firmware",
        Reading::<String>::failed("401 Unauthorized"),
    );
    let parts = Parts {
        records: BTreeMap::from([(Class::Bmc, part)]),
        findings: Vec::new(),
        reasons: vec![reason("bmc.silent", "bmc", Severity::Degraded)],
        read_at: UnixMillis(2_000),
        was_asked: true,
        may_drain: false,
        undecided: Default::default(),
    };
    fixture.stores.readings.put_parts(id.clone(), parts);
    let undecided =
        MergedMark::unknown(fixture.core.view().node(&id).unwrap().published(Class::Bmc));
    let undecided = BTreeMap::from([(Class::Bmc, undecided)]);
    observed_state::merged_marks(&fixture.core, BTreeMap::from([(id.clone(), undecided)]));
    let mut shown = eye.node("gpu001").await.unwrap().health.reasons;
    let health = eye.health("gpu001", false).await.unwrap();
    let mut codes: Vec<String> = health.reasons.iter().map(|r| r.code.clone()).collect();
    shown.sort();
    codes.sort();
    assert_eq!(codes, shown);
    let incomplete = health.reasons.iter().find(|r| r.code == "bmc.incomplete");
    let incomplete = incomplete.unwrap();
    assert_eq!(incomplete.evidence, "401 Unauthorized");
    assert_eq!(
        (&*incomplete.severity, &*incomplete.entity),
        ("unknown", "bmc")
    );
}

#[tokio::test]
async fn a_node_without_a_configured_bmc_is_not_unknown_in_groups_of_bmcs() {
    let fixture = ApiFixture::furnished().await;
    let eye = fixture.client("eye");
    let view = fixture.core.view();
    let off = |(id, entry): (&NodeId, &std::sync::Arc<lattice_view::NodeEntry>)| {
        let mut seen = entry.gossip.clone().unwrap();
        if id.as_str() != "gpu002" {
            seen.marks.insert(Class::Bmc, ClassMark::Disabled);
        }
        (id.clone(), seen)
    };
    observed_state::cell(
        &fixture.core,
        "cell-0",
        view.nodes.iter().map(off).collect(),
    );
    let groups = eye.conformance_groups(Some("bmc")).await.unwrap();
    let not_read: Vec<_> = groups
        .not_read
        .iter()
        .map(|n| (&*n.why, &*n.nodes))
        .collect();
    assert_eq!(not_read, [("no BMC configured", "gpu[001,003-024]")]);
    assert_eq!(groups.unknown, "gpu002");
    assert!(groups.groups.is_empty());
}
