//! Baselines over REST: set, show, compare and delete; and the brake.

use super::fixture::{ApiFixture, PATIENCE};
use lattice_client::{
    ClientError,
    api::baseline::{BaselineRequest, BaselineView, ClassExpectationBody},
};
use lattice_conformance::{Class, ClassRecord, Digest, Reading};
use lattice_engine::observed_state;
use lattice_engine::tasks::conformance::Conformance;
use lattice_placement::Liveness;
use lattice_quorum_types::{Command, NodeId, Outcome, command::Fence, id::LeaseName};
use lattice_view::PingOutcome;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Baseline request with keys of the class `kernel`, for these nodes.
pub(super) fn asking(nodes: &str, keys: Value) -> BaselineRequest {
    let keys: BTreeMap<String, Value> = serde_json::from_value(keys).unwrap();
    let form = ClassExpectationBody {
        keys: Some(keys),
        ..ClassExpectationBody::default()
    };
    BaselineRequest {
        nodes: Some(nodes.to_owned()),
        classes: BTreeMap::from([("kernel".to_owned(), form)]),
        ..BaselineRequest::default()
    }
}

/// Gives every node but `gpu003` the same kernel and stores the records of both. Returns the digest of the usual one.
pub(super) fn kernels(fixture: &ApiFixture) -> Digest {
    let [usual, other] = ["6.8.0", "6.9.1"].map(|release| {
        let mut record = ClassRecord::new(Class::Kernel);
        record.require("kernel.osrelease", Reading::Present(release));
        record
    });
    let view = fixture.core.view();
    let nodes = view.nodes.iter().filter_map(|(id, entry)| {
        let mut seen = entry.gossip.clone()?;
        let record = if id.as_str() == "gpu003" {
            &other
        } else {
            &usual
        };
        let mark = record.state().mark();
        let record = Arc::new(record.clone());
        fixture
            .stores
            .preimages
            .put_record(id, mark.digest()?, record);
        seen.marks.insert(Class::Kernel, mark);
        Some((id.clone(), seen))
    });
    observed_state::cell(&fixture.core, "cell-0", nodes.collect());
    usual.state().digest().unwrap()
}

fn answers(fixture: &ApiFixture, name: &str) {
    let found = PingOutcome {
        liveness: Liveness::Alive,
        reason: None,
        boot: None,
        reply_addr: None,
    };
    let node = NodeId::new(name).unwrap();
    observed_state::liveness(&fixture.core, &BTreeMap::from([(node, found)]));
}

/// Baseline request modelled on the kernel of the group with this digest.
fn like(digest: &Digest) -> BaselineRequest {
    BaselineRequest {
        nodes: Some("gpu[001-024]".to_owned()),
        from_group: Some(digest.short()),
        classes: BTreeMap::from([("kernel".to_owned(), ClassExpectationBody::default())]),
        ..BaselineRequest::default()
    }
}

/// The agent of `gpu001` answers with an empty inventory.
#[tokio::test]
async fn group_is_defined_by_digest() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let refused = async |digest: &Digest| {
        let error = op.set_baseline("k", &like(digest), None).await.unwrap_err();
        let problem = error.problem().unwrap().clone();
        println!("{}", problem.detail);
        assert_eq!(problem.code, "node_unavailable");
        problem.detail
    };
    let nobody_has_it = Digest([0; 32]);
    let why = refused(&nobody_has_it).await;
    assert!(why.contains("no member of the group answers"), "{why}");
    answers(&fixture, "gpu001");
    let why = refused(&nobody_has_it).await;
    assert!(
        why.contains("preimage of 000000000000 not available"),
        "{why}"
    );

    let usual = kernels(&fixture);
    op.set_baseline("k", &like(&usual), None).await.unwrap();
    let shown = op.baseline("k").await.unwrap();
    let kernel = &shown.classes["kernel"];
    assert_eq!(kernel.digest.as_deref(), Some(&*usual.to_string()));
    assert_eq!(kernel.keys["kernel.osrelease"], "6.8.0");
}

#[tokio::test]
async fn a_baseline_is_set_shown_compared_and_deleted() {
    let fixture = ApiFixture::furnished().await;
    let (op, eye) = (fixture.client("op"), fixture.client("eye"));
    let first = asking("gpu[001-004]", json!({"kernel.osrelease": "6.8.0"}));
    let set = op.set_baseline("h100", &first, None).await.unwrap();
    assert_eq!((set.version, set.classes.join(",").as_str()), (1, "kernel"));
    let mut second = asking("gpu[001-003]", json!({"kernel.osrelease": "6.8.1"}));
    second.policy = Some("drain".to_owned());
    second.expected_version = Some(1);
    let set = op
        .set_baseline("h100", &second, Some("once"))
        .await
        .unwrap();
    assert_eq!(set.version, 2);
    let again = op
        .set_baseline("h100", &second, Some("once"))
        .await
        .unwrap();
    assert_eq!(again, set, "a repeat is answered with the first outcome");
    // The caller had read version 1.
    let stale = op.set_baseline("h100", &second, None).await.unwrap_err();
    assert_eq!(stale.problem().unwrap().code, "baseline_changed");

    let list = eye.baselines().await.unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(
        (list[0].nodes.as_str(), list[0].by.as_str()),
        ("gpu[001-003]", "op")
    );
    let shown = eye.baseline("h100").await.unwrap();
    let kernel = &shown.classes["kernel"];
    assert_eq!(
        (
            kernel.kind.as_str(),
            kernel.policy.as_str(),
            kernel.sensitive.as_str()
        ),
        ("partial", "drain", "strict")
    );
    assert_eq!(kernel.keys["kernel.osrelease"], "6.8.1");
    let versions: Vec<u32> = shown.versions.iter().map(|v| v.version).collect();
    assert_eq!(versions, [1, 2]);
    let then = eye.baseline("h100@1").await.unwrap();
    assert_eq!(then.nodes, "gpu[001-004]");

    // Before the first judgement by the new version, the view does not show that no node differs.
    let stands = |shown: &BaselineView| (shown.compared_count, shown.differ.clone());
    assert_eq!(stands(&shown), (None, None));
    Conformance::new(fixture.records()).reconcile().await;
    let now = eye.baseline("h100").await.unwrap();
    assert_eq!(stands(&now), (Some(3), Some(String::new())));
    let other = asking("gpu004", json!({"kernel.osrelease": "6.8.0"}));
    op.set_baseline("other", &other, None).await.unwrap();
    let list = eye.baselines().await.unwrap();
    assert!(list.iter().all(|one| stands(one) == (None, None)));
    op.delete_baseline("other", None, None).await.unwrap();
    Conformance::new(fixture.records()).reconcile().await;
    // No node is judged by the previous version any more.
    let then = eye.baseline("h100@1").await.unwrap();
    assert_eq!(stands(&then), (None, None));
    assert!(stands(&eye.baseline("h100").await.unwrap()).0.is_some());
    for missing in ["a100", "h100@7"] {
        assert_eq!(eye.baseline(missing).await.unwrap_err().exit_code(), 4);
    }

    let diff = eye.baseline_diff("h100@1", "h100").await.unwrap();
    assert_eq!(diff.left, "baseline h100 v1");
    let row = &diff.differences[0];
    assert_eq!(
        (row.key.as_str(), row.left.as_str(), row.right.as_str()),
        ("kernel.osrelease", "6.8.0", "6.8.1")
    );

    op.delete_baseline("h100", Some(1), None).await.unwrap_err();
    op.delete_baseline("h100", Some(2), None).await.unwrap();
    assert!(eye.baselines().await.unwrap().is_empty());
    let gone = op.delete_baseline("h100", None, None).await.unwrap_err();
    assert_eq!(gone.exit_code(), 4);
}

#[tokio::test]
async fn differing_nodes_name_baseline_author() {
    let fixture = ApiFixture::furnished().await;
    let judging = tokio::spawn(Conformance::new(fixture.records()).run());
    let op = fixture.client("op");
    for round in 0..5 {
        let asked = asking(
            "gpu[001-004]",
            json!({"kernel.osrelease": format!("6.8.{round}")}),
        );
        op.set_baseline("h100", &asked, None).await.unwrap();
        let shown = op.baseline("h100").await.unwrap();
        assert_eq!(
            (shown.compared_count, shown.compared.as_deref()),
            (Some(4), Some("gpu[001-004]"))
        );
        op.delete_baseline("h100", None, None).await.unwrap();
        let drift = op.drift().await.unwrap();
        let of_it = drift.unknown.iter().filter(|u| u.baseline.is_some());
        assert_eq!(of_it.count(), 0, "{drift:?}");
    }
    judging.abort();
}

#[tokio::test]
async fn setting_baseline_reports_nodes_and_dry_run_changes_nothing() {
    let fixture = ApiFixture::furnished().await;
    let (op, eye) = (fixture.client("op"), fixture.client("eye"));
    kernels(&fixture);
    let mut asked = asking("gpu[001-003,999]", json!({"kernel.osrelease": "6.8.0"}));
    asked.policy = Some("drain".to_owned());
    let would = op.dry_run_baseline("k", &asked).await.unwrap();
    assert_eq!((would.dry_run, would.version), (true, 1));
    let standing = &would.comparison;
    let results = [
        &standing.compared,
        &standing.conform,
        &standing.differ,
        &standing.drain,
    ];
    assert_eq!(
        results,
        ["gpu[001-003]", "gpu[001-002]", "gpu003", "gpu003"]
    );
    assert_eq!((standing.compared_count, standing.differ_count), (3, 1));
    assert_eq!(standing.warnings, ["no node has this name now: gpu999"]);
    assert!(eye.baselines().await.unwrap().is_empty(), "nothing was set");
    let set = op.set_baseline("k", &asked, None).await.unwrap();
    assert!(!set.dry_run);
    assert_eq!(set.comparison, would.comparison);
    asked.policy = None;
    let again = op.dry_run_baseline("k", &asked).await.unwrap();
    assert_eq!((again.version, &*again.comparison.drain), (2, ""));

    op.delete_baseline("k", None, None).await.unwrap();
    let misspelt = asking("gpu001", json!({"kernel.osreleaze": "6.8.0"}));
    let checked = op.dry_run_baseline("typo", &misspelt).await.unwrap();
    let [warning] = &checked.comparison.warnings[..] else {
        panic!("{checked:?}")
    };
    assert!(
        warning.contains("has the key kernel.osreleaze"),
        "{warning}"
    );
    let denied = eye.dry_run_baseline("typo", &misspelt).await.unwrap_err();
    assert!(matches!(denied, ClientError::NotAllowed(_)), "{denied:?}");
}

#[tokio::test]
async fn operators_of_the_whole_cluster_decide() {
    let fixture = ApiFixture::furnished().await;
    let asked = asking("gpu001", json!({"kernel.osrelease": "6.8.0"}));
    for caller in ["eye", "alice", "diver", "warden"] {
        let client = fixture.client(caller);
        for denied in [
            client.set_baseline("h100", &asked, None).await.err(),
            client.delete_baseline("h100", None, None).await.err(),
            client.release_brake("why").await.err(),
        ] {
            assert!(
                matches!(denied, Some(ClientError::NotAllowed(_))),
                "{caller}: {denied:?}"
            );
        }
        client.baselines().await.unwrap();
        client.brake().await.unwrap();
    }
    fixture
        .client("root")
        .set_baseline("h100", &asked, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn reports_request_errors_by_field() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let mut wrong = asking("gpu[", json!({"osrelease": "1", "kernel.x": 6.8}));
    wrong.policy = Some("shoot".to_owned());
    let error = op.set_baseline("h100", &wrong, None).await.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!(problem.status, 400);
    let lines: Vec<&str> = problem.detail.lines().collect();
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert_eq!(problem.field.as_deref(), Some("nodes"));
    // A node that does not answer cannot be a model.
    let like = BaselineRequest {
        nodes: Some("gpu001".to_owned()),
        from_node: Some("gpu999".to_owned()),
        ..BaselineRequest::default()
    };
    let error = op.set_baseline("h100", &like, None).await.unwrap_err();
    assert_eq!(error.exit_code(), 4, "{error}");
    let raw = fixture
        .raw()
        .put(fixture.url("/api/v1/conformance/baselines/h100"));
    let raw = raw
        .bearer_auth(fixture.token("op"))
        .json(&json!({"clases": {}}));
    let problem: lattice_client::Problem = raw.send().await.unwrap().json().await.unwrap();
    assert_eq!(problem.field.as_deref(), Some("clases"));
    let two = asking("gpu002", json!({"kernel.osrelease": "1"}));
    op.set_baseline("one", &two, None).await.unwrap();
    let error = op.set_baseline("two", &two, None).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, "baseline_ambiguous");
    assert_eq!(error.exit_code(), 1);
}

#[tokio::test]
async fn the_brake_is_seen_by_all_and_released_with_a_reason() {
    let fixture = ApiFixture::furnished().await;
    let (op, eye) = (fixture.client("op"), fixture.client("eye"));
    assert!(eye.brake().await.unwrap().held.is_none());
    let mut events = eye.events(None).await.unwrap();
    let lease = LeaseName::new("dispatch").unwrap();
    let acquired = fixture.service_answer(Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    });
    let Outcome::Leased { epoch, .. } = acquired.unwrap().outcome else {
        panic!("no lease")
    };
    let hold = Command::HoldBrake {
        reason: "18 of 128 nodes differ".to_owned(),
    };
    fixture.fenced(Fence { lease, epoch }, hold);
    fixture.settled().await;
    let brake_event = async {
        loop {
            let event = events.next_event().await.unwrap();
            let lattice_client::api::event::StreamEvent::Changes(changes) = event else {
                continue;
            };
            for change in changes.changes {
                if let lattice_client::api::event::Change::Brake { held } = change {
                    return held;
                }
            }
        }
    };
    let brake_event = tokio::time::timeout(PATIENCE, brake_event).await.unwrap();
    assert_eq!(brake_event.unwrap().reason, "18 of 128 nodes differ");
    let drift = eye.drift().await.unwrap();
    assert_eq!(drift.brake, eye.brake().await.unwrap().held);
    op.release_brake(" ").await.unwrap_err();
    op.release_brake("a firmware campaign").await.unwrap();
    assert!(eye.brake().await.unwrap().held.is_none());
}
