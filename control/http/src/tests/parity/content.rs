//! Hardware and conformance data is the same over REST and gRPC, field by field. Tests of the conversions in
//! `lattice-api` check that a message has every field of the REST view.

use super::{
    super::{
        baselines::kernels,
        bmc,
        fixture::ApiFixture,
        history::{self, NODE},
    },
    conformance::{by, channel},
};
use lattice_api::{
    Page,
    baseline::{BaselineView, BrakeState},
    conformance::{DiffView, DriftReportView, GroupsView},
    health::NodeHealthView,
    history::{ChangesView, HistoryEntryView},
    v1,
};
use lattice_conformance::health::Severity;
use lattice_engine::tasks::conformance::Conformance;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt::Debug;
use tonic::transport::Channel;
use v1::{conformance_client::ConformanceClient, nodes_client::NodesClient};

/// Caller that may read everything, including the audit.
const CALLER: &str = "op";
/// A time that is the same for both requests, before all events.
const SINCE: &str = "2020-01-01T00:00:00Z";

/// Sends a request over REST and gRPC and returns the content.
macro_rules! both {
    ($fixture:ident, $path:expr => $view:ty, $client:ident.$call:ident($message:expr)) => {{
        let mut client: $client<Channel> = $client::new(channel(&$fixture).await);
        let asked = client.$call(by(&$fixture.token(CALLER), $message)).await;
        same::<$view, _>(&$fixture, $path, asked.unwrap().into_inner()).await
    }};
}

/// Checks that the view contains all of the REST response, and the message all of the view.
async fn same<View, Message>(fixture: &ApiFixture, path: &str, message: Message) -> View
where
    View: Serialize + DeserializeOwned + Clone,
    Message: From<View> + PartialEq + Debug,
{
    let request = fixture.raw().get(fixture.url(&format!("/api/v1/{path}")));
    let answer = request
        .bearer_auth(fixture.token(CALLER))
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{path}: {answer:?}");
    let rest_answer: Value = answer.json().await.unwrap();
    println!("{path}: {rest_answer}");
    let view: View = serde_json::from_value(rest_answer.clone()).unwrap();
    assert_eq!(serde_json::to_value(&view).unwrap(), rest_answer, "{path}");
    assert_eq!(Message::from(view.clone()), message, "{path}");
    view
}

#[tokio::test]
async fn both_faces_tell_the_same_of_a_nodes_history_health_and_differences() {
    let fixture = ApiFixture::furnished().await;
    history::append_entries(&fixture).await;
    kernels(&fixture);
    let listed = both!(fixture, &format!("nodes/{NODE}/history") => Page<HistoryEntryView>,
        NodesClient.history(v1::NodeHistoryRequest { name: NODE.to_owned(), ..Default::default() }));
    assert_eq!((listed.items.len(), listed.next_cursor), (3, None));
    let page = both!(fixture, &format!("nodes/{NODE}/history?limit=1") => Page<HistoryEntryView>,
        NodesClient.history(v1::NodeHistoryRequest {
            name: NODE.to_owned(), limit: 1, ..Default::default() }));
    assert!(page.next_cursor.is_some() && page.items[0].event.is_some());

    let agents = bmc::reason("gpu.gone", "gpu.1", Severity::Faulty);
    *fixture.health.lock().unwrap() = json!({
        "table": "1", "worst": "faulty", "reasons": [agents], "enabled": true, "read_age_ms": 1,
    });
    let silent = bmc::reason("bmc.part_critical", "bmc", Severity::Degraded);
    bmc::tells(&fixture, NODE, vec![silent]);
    let health = both!(fixture, &format!("nodes/{NODE}/health") => NodeHealthView,
        NodesClient.health(v1::NodeHealthRequest { name: NODE.to_owned(), fresh: false }));
    assert_eq!(health.reasons.len(), 2);
    assert!(health.bmc_read_at.is_some());

    let diff = both!(fixture, &format!("nodes/{NODE}/diff?with=gpu003") => DiffView,
        NodesClient.diff(v1::DiffRequest {
            node: NODE.to_owned(), with: "gpu003".to_owned(), since: String::new() }));
    let mut rows = diff.differences.iter();
    let row = rows.find(|row| row.class == "kernel").unwrap();
    let columns = [&row.key, &row.left, &row.right, &row.verdict];
    assert_eq!(columns, ["kernel.osrelease", "6.8.0", "6.9.1", "differs"]);
    let since = &listed.items[1].at;
    let diff = both!(fixture, &format!("nodes/{NODE}/diff?since={since}") => DiffView,
        NodesClient.diff(v1::DiffRequest {
            node: NODE.to_owned(), with: String::new(), since: since.clone() }));
    assert!(!diff.differences.is_empty());
}

#[tokio::test]
async fn both_faces_tell_the_same_of_groups_drift_changes_and_baselines() {
    let fixture = ApiFixture::furnished().await;
    history::append_entries(&fixture).await;
    kernels(&fixture);
    let rule = json!({"description": "as delivered", "cohort": {"product": "HGX", "gpu_count": 8},
        "classes": {"nic": {"keys": {"nic.*.firmware": "28.41"}}}});
    let nodes = json!({"nodes": "gpu[001,003]",
        "classes": {"kernel": {"keys": {"kernel.osrelease": {"any_of": ["6.8.0", "6.8.1"]}}}}});
    let mut stricter = nodes.clone();
    stricter["policy"] = json!("drain");
    for (name, rule) in [("fleet", rule), ("h100", nodes), ("h100", stricter)] {
        let url = fixture.url(&format!("/api/v1/conformance/baselines/{name}"));
        let put = fixture
            .raw()
            .put(url)
            .bearer_auth(fixture.token(CALLER))
            .json(&rule);
        let answer = put.send().await.unwrap();
        assert!(
            answer.status().is_success(),
            "{}",
            answer.text().await.unwrap()
        );
    }
    Conformance::new(fixture.records()).reconcile().await;

    let groups = both!(fixture, "conformance/groups?class=kernel" => GroupsView,
        ConformanceClient.groups(v1::GroupsRequest { class: "kernel".to_owned() }));
    assert_eq!(groups.groups.len(), 2);
    let drift = both!(fixture, "conformance/drift" => DriftReportView,
        ConformanceClient.drift(v1::DriftRequest {}));
    let [row] = &drift.drifted[..] else {
        panic!("{drift:?}")
    };
    assert_eq!(
        (row.node.as_str(), row.policy.as_str()),
        ("gpu003", "drain")
    );
    let since = format!("conformance/changes?since={SINCE}");
    let changes = both!(fixture, &since => ChangesView,
        ConformanceClient.changes(v1::ChangesRequest { since: SINCE.to_owned() }));
    assert_eq!(changes.changes.len(), 1);
    let h100 = both!(fixture, "conformance/baselines/h100" => BaselineView,
        ConformanceClient.get_baseline(v1::GetBaselineRequest { name: "h100".to_owned() }));
    assert_eq!(
        (h100.versions.len(), h100.compared.as_deref()),
        (2, Some("gpu[001,003]"))
    );
    let fleet = both!(fixture, "conformance/baselines/fleet" => BaselineView,
        ConformanceClient.get_baseline(v1::GetBaselineRequest { name: "fleet".to_owned() }));
    assert!(fleet.cohort.is_some());
    let beside = both!(fixture, "conformance/baselines/h100/diff?with=fleet" => DiffView,
        ConformanceClient.diff_baseline(v1::DiffBaselineRequest {
            name: "h100".to_owned(), with: "fleet".to_owned() }));
    assert_eq!(beside.differences.len(), 2);
    both!(fixture, "conformance/brake" => BrakeState,
        ConformanceClient.get_brake(v1::GetBrakeRequest {}));

    let mut client = ConformanceClient::new(channel(&fixture).await);
    let asked = by(&fixture.token(CALLER), v1::ListBaselinesRequest {});
    let grpc_baselines = client.list_baselines(asked).await.unwrap().into_inner();
    let listed = fixture.client(CALLER).baselines().await.unwrap();
    assert_eq!(
        (grpc_baselines.items.len(), grpc_baselines),
        (2, listed.into())
    );
}

#[tokio::test]
async fn both_faces_tell_the_same_of_what_a_bmc_did() {
    let fixture = ApiFixture::furnished().await;
    history::bmc_did(&fixture).await;
    let listed = both!(fixture, &format!("nodes/{NODE}/history?kind=bmc") => Page<HistoryEntryView>,
        NodesClient.history(v1::NodeHistoryRequest {
            name: NODE.to_owned(), kind: "bmc".to_owned(), ..Default::default() }));
    let read = listed.items.iter().filter_map(|item| item.event.as_ref());
    let read = read.filter(|event| event.bmc_time.is_some() && event.read_at.is_some());
    assert_eq!(read.count(), 2);
}
