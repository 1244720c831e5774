//! Node, conformance and project requests over REST and gRPC: the same callers, refusals and answers.

use super::{super::fixture::ApiFixture, CALLERS, Rejection, said};
use futures::{FutureExt, future::BoxFuture};
use lattice_api::{Problem, v1};
use lattice_quorum_types::AllocationId;
use reqwest::Method;
use serde_json::{Value, json};
use tonic::{
    Request, Status,
    transport::{Certificate, Channel, ClientTlsConfig},
};
use v1::{
    allocations_client::AllocationsClient, conformance_client::ConformanceClient,
    nodes_client::NodesClient, projects_client::ProjectsClient,
};

type Call = Box<dyn Fn(Channel, &str) -> BoxFuture<'static, Result<(), Status>>>;

struct Case {
    method: Method,
    path: &'static str,
    body: Value,
    call: Call,
    /// The request may change the cluster.
    changes: bool,
}

pub(super) fn by<T>(bearer: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {bearer}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

/// A request over REST and gRPC.
macro_rules! ask {
    ($method:ident $path:literal $body:expr, $client:ident.$call:ident($message:expr)) => {
        Case {
            method: Method::$method,
            path: $path,
            body: $body,
            call: Box::new(|channel, bearer| {
                let request = by(bearer, $message);
                let asked = async move { $client::new(channel).$call(request).await.map(drop) };
                asked.boxed()
            }),
            changes: Method::$method != Method::GET,
        }
    };
}

fn name() -> String {
    "gpu001".to_owned()
}

fn diff(with: &str, since: &str) -> v1::DiffRequest {
    v1::DiffRequest {
        node: name(),
        with: with.to_owned(),
        since: since.to_owned(),
    }
}

fn history(edit: impl Fn(&mut v1::NodeHistoryRequest)) -> v1::NodeHistoryRequest {
    let mut request = v1::NodeHistoryRequest {
        name: name(),
        ..Default::default()
    };
    edit(&mut request);
    request
}

/// Baseline request with this value of `kernel.osrelease`.
fn kernel(value: v1::key_value::Value) -> v1::SetBaselineRequest {
    let value = v1::KeyValue { value: Some(value) };
    let rule = v1::KeyRule {
        any_of: vec![value],
        or_absent: false,
    };
    let keys = v1::KeyRules {
        keys: [("kernel.osrelease".to_owned(), rule)].into(),
    };
    let class = v1::ClassRule {
        keys: Some(keys),
        ..Default::default()
    };
    v1::SetBaselineRequest {
        name: "h100".to_owned(),
        nodes: Some("gpu[001-002]".to_owned()),
        classes: [("kernel".to_owned(), class)].into(),
        ..Default::default()
    }
}

fn text(value: &str) -> v1::key_value::Value {
    v1::key_value::Value::Text(value.to_owned())
}

fn nodes() -> Vec<Case> {
    let n = Value::Null;
    vec![
        ask!(GET "nodes/gpu001/history" n.clone(), NodesClient.history(history(|_| {}))),
        ask!(GET "nodes/gpu001/history?class=nik" n.clone(),
            NodesClient.history(history(|r| r.class = "nik".to_owned()))),
        ask!(GET "nodes/gpu001/history?kind=storm" n.clone(),
            NodesClient.history(history(|r| r.kind = "storm".to_owned()))),
        ask!(GET "nodes/gpu001/history?since=someday" n.clone(),
            NodesClient.history(history(|r| r.since = "someday".to_owned()))),
        ask!(GET "nodes/gpu001/history?limit=5001" n.clone(),
            NodesClient.history(history(|r| r.limit = 5_001))),
        ask!(GET "nodes/gpu001/history?cursor=x" n.clone(),
            NodesClient.history(history(|r| r.cursor = "x".to_owned()))),
        ask!(GET "nodes/gpu999/history" n.clone(),
            NodesClient.history(history(|r| r.name = "gpu999".to_owned()))),
        ask!(GET "nodes/gpu001/health" n.clone(),
            NodesClient.health(v1::NodeHealthRequest { name: name(), fresh: false })),
        ask!(GET "nodes/gpu001/health?fresh=true" n.clone(),
            NodesClient.health(v1::NodeHealthRequest { name: name(), fresh: true })),
        ask!(GET "nodes/gpu999/health" n.clone(),
            NodesClient.health(v1::NodeHealthRequest { name: "gpu999".to_owned(), fresh: false })),
        ask!(POST "nodes/gpu001/health/clear" json!({"code": "gpu.xid.79"}),
            NodesClient.clear_health(v1::ClearHealthRequest {
                name: name(), code: "gpu.xid.79".to_owned(), entity: None })),
        ask!(POST "nodes/gpu001/reprobe" n.clone(),
            NodesClient.reprobe(v1::ReprobeRequest { name: name() })),
        ask!(POST "nodes/gpu999/reprobe" n.clone(),
            NodesClient.reprobe(v1::ReprobeRequest { name: "gpu999".to_owned() })),
        ask!(GET "nodes/gpu001/inventory" n.clone(),
            NodesClient.inventory(v1::InventoryRequest { name: name(), fresh: false })),
        ask!(GET "nodes/gpu001/inventory?fresh=true" n.clone(),
            NodesClient.inventory(v1::InventoryRequest { name: name(), fresh: true })),
        ask!(GET "nodes/gpu001/diff?with=gpu999" n.clone(),
            NodesClient.diff(diff("gpu999", ""))),
        ask!(GET "nodes/gpu001/diff?since=someday" n.clone(),
            NodesClient.diff(diff("", "someday"))),
        ask!(GET "nodes/gpu001/diff?since=yesterday" n.clone(),
            NodesClient.diff(diff("", "yesterday"))),
        ask!(GET "nodes/gpu001/diff" n.clone(), NodesClient.diff(diff("", ""))),
        ask!(GET "nodes/gpu001/diff?with=gpu002&since=yesterday" n,
            NodesClient.diff(diff("gpu002", "yesterday"))),
    ]
}

fn conformance() -> Vec<Case> {
    let n = Value::Null;
    let rule = |value: Value| {
        json!({"nodes": "gpu[001-002]",
            "classes": {"kernel": {"keys": {"kernel.osrelease": value}}}})
    };
    vec![
        ask!(GET "conformance/groups" n.clone(),
            ConformanceClient.groups(v1::GroupsRequest::default())),
        ask!(GET "conformance/groups?class=nik" n.clone(),
            ConformanceClient.groups(v1::GroupsRequest { class: "nik".to_owned() })),
        ask!(GET "conformance/drift" n.clone(), ConformanceClient.drift(v1::DriftRequest {})),
        ask!(GET "conformance/changes" n.clone(),
            ConformanceClient.changes(v1::ChangesRequest::default())),
        ask!(GET "conformance/changes?since=someday" n.clone(),
            ConformanceClient.changes(v1::ChangesRequest { since: "someday".to_owned() })),
        ask!(GET "conformance/baselines" n.clone(),
            ConformanceClient.list_baselines(v1::ListBaselinesRequest {})),
        ask!(GET "conformance/baselines/a100" n.clone(),
            ConformanceClient.get_baseline(v1::GetBaselineRequest { name: "a100".to_owned() })),
        ask!(GET "conformance/baselines/h100@x" n.clone(),
            ConformanceClient.get_baseline(v1::GetBaselineRequest { name: "h100@x".to_owned() })),
        ask!(PUT "conformance/baselines/h100" rule(json!({"any_of": ["6.8.0"]})),
            ConformanceClient.set_baseline(kernel(text("6.8.0")))),
        ask!(PUT "conformance/baselines/h100" rule(json!({"any_of": [""]})),
            ConformanceClient.set_baseline(kernel(text("")))),
        ask!(PUT "conformance/baselines/h100" json!({}),
            ConformanceClient.set_baseline(v1::SetBaselineRequest {
                name: "h100".to_owned(), ..Default::default() })),
        ask!(PUT "conformance/baselines/h100" json!({"nodes": "gpu001", "from_group": "xyz"}),
            ConformanceClient.set_baseline(v1::SetBaselineRequest {
                name: "h100".to_owned(), nodes: Some(name()),
                from_group: Some("xyz".to_owned()), ..Default::default() })),
        ask!(DELETE "conformance/baselines/h100" n.clone(),
            ConformanceClient.delete_baseline(v1::DeleteBaselineRequest {
                name: "h100".to_owned(), ..Default::default() })),
        ask!(GET "conformance/baselines/h100/diff?with=gpu001" n.clone(),
            ConformanceClient.diff_baseline(v1::DiffBaselineRequest {
                name: "h100".to_owned(), with: name() })),
        ask!(GET "conformance/brake" n, ConformanceClient.get_brake(v1::GetBrakeRequest {})),
        ask!(POST "conformance/brake/release" json!({"reason": "why"}),
            ConformanceClient.release_brake(v1::ReleaseBrakeRequest {
                reason: "why".to_owned(), idempotency_key: None })),
        ask!(POST "conformance/brake/release" json!({"reason": " "}),
            ConformanceClient.release_brake(v1::ReleaseBrakeRequest {
                reason: " ".to_owned(), idempotency_key: None })),
    ]
}

fn others() -> Vec<Case> {
    let n = Value::Null;
    let set = |nodes| v1::UpdateProjectRequest {
        path: "atlas/web".to_owned(),
        max_nodes: Some(v1::LimitChangeValue {
            change: Some(v1::limit_change_value::Change::Set(nodes)),
        }),
        ..Default::default()
    };
    let id = 1;
    let project = || "atlas/web".to_owned();
    vec![
        ask!(POST "allocations/1/hold" n.clone(),
            AllocationsClient.hold(v1::HoldRequest { id: 1, idempotency_key: None })),
        ask!(POST "allocations/9/release" n.clone(),
            AllocationsClient.release(v1::ReleaseRequest { id: 9, idempotency_key: None })),
        ask!(GET "projects/atlas/web" n.clone(),
            ProjectsClient.get(v1::GetProjectRequest { path: "atlas/web".to_owned() })),
        ask!(GET "projects/atlas/nowhere" n.clone(),
            ProjectsClient.get(v1::GetProjectRequest { path: "atlas/nowhere".to_owned() })),
        Case {
            method: Method::PUT,
            path: "projects/atlas/web",
            body: json!({"max_nodes": 40}),
            call: Box::new(move |channel, bearer| {
                let request = by(bearer, set(40));
                let asked = async move { ProjectsClient::new(channel).update(request).await };
                asked.map(|done| done.map(drop)).boxed()
            }),
            changes: true,
        },
        Case {
            method: Method::DELETE,
            path: "projects/atlas/web",
            body: n,
            call: Box::new(move |channel, bearer| {
                let path = project();
                let request = v1::DeleteProjectRequest {
                    path,
                    idempotency_key: (id > 1).then(String::new),
                };
                let request = by(bearer, request);
                let asked = async move { ProjectsClient::new(channel).delete(request).await };
                asked.map(|done| done.map(drop)).boxed()
            }),
            changes: true,
        },
    ]
}

pub(super) async fn channel(fixture: &ApiFixture) -> Channel {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&fixture.ca_pem));
    let endpoint = Channel::from_shared(fixture.url("")).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

async fn rest(fixture: &ApiFixture, caller: &str, case: &Case) -> Rejection {
    let url = fixture.url(&format!("/api/v1/{}", case.path));
    let request = fixture.raw().request(case.method.clone(), url);
    let request = request.bearer_auth(fixture.token(caller));
    let request = match &case.body {
        Value::Null => request,
        body => request.json(body),
    };
    let answer = request.send().await.unwrap();
    match answer.status().is_success() {
        true => None,
        false => said(answer.json().await.unwrap()),
    }
}

async fn grpc(fixture: &ApiFixture, caller: &str, case: &Case) -> Rejection {
    let status = (case.call)(channel(fixture).await, &fixture.token(caller))
        .await
        .err()?;
    let problem: Problem = Problem::from_grpc(&status).unwrap();
    said(problem)
}

/// Fixture with a waiting allocation of alice.
async fn furnished() -> ApiFixture {
    let fixture = ApiFixture::furnished().await;
    let id = fixture.submit("alice", "atlas/web", 1).await;
    assert_eq!(id, AllocationId(1));
    fixture
}

#[tokio::test]
async fn both_faces_say_the_same_of_nodes_conformance_and_projects() {
    let shared = furnished().await;
    let mut wrong = Vec::new();
    let mut table = Vec::new();
    for case in nodes().into_iter().chain(conformance()).chain(others()) {
        let mut row = Vec::new();
        for caller in CALLERS {
            let (a, b) = match case.changes {
                false => (
                    rest(&shared, caller, &case).await,
                    grpc(&shared, caller, &case).await,
                ),
                // One cluster per response, so that no response depends on an earlier one.
                true => {
                    let (a, b) = (furnished().await, furnished().await);
                    (rest(&a, caller, &case).await, grpc(&b, caller, &case).await)
                }
            };
            row.push(a.as_ref().map_or(200, |(status, ..)| *status).to_string());
            if a != b {
                let Case { method, path, .. } = &case;
                wrong.push(format!("{caller}: {method} {path}: {a:?} but {b:?}"));
            }
        }
        table.push(format!(
            "{:60} {}",
            format!("{} {}", case.method, case.path),
            row.join(" ")
        ));
    }
    println!("{}", table.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The results must include successes and refusals: an interface that rejected everything would agree with itself.
    let all = table.join(" ");
    for status in [" 200", " 400", " 403", " 404"] {
        assert!(all.contains(status), "{status}: {all}");
    }
}

#[tokio::test]
async fn both_faces_tell_the_same_of_a_baseline_of_groups_and_of_drift() {
    let fixture = furnished().await;
    let (op, eye) = (fixture.token("op"), fixture.client("eye"));
    let op = op.as_str();
    let mut client = ConformanceClient::new(channel(&fixture).await);
    let set = kernel(text("6.8.0"));
    let set = client.set_baseline(by(op, set)).await.unwrap().into_inner();
    assert_eq!((set.version, set.classes), (1, vec!["kernel".to_owned()]));
    let again = v1::SetBaselineRequest {
        expected_version: Some(7),
        ..kernel(text("6.8.1"))
    };
    let stale = client.set_baseline(by(op, again)).await.unwrap_err();
    assert_eq!(stale.code(), tonic::Code::FailedPrecondition);

    let name = "h100".to_owned();
    let ours = client.get_baseline(by(op, v1::GetBaselineRequest { name }));
    let ours = ours.await.unwrap().into_inner();
    let theirs = eye.baseline("h100").await.unwrap();
    assert_eq!(ours, v1::Baseline::from(theirs));
    assert_eq!(ours.classes["kernel"].keys["kernel.osrelease"], "6.8.0");
    assert_eq!(
        (ours.nodes.as_str(), ours.by.as_str()),
        ("gpu[001-002]", "op")
    );
    let list = client
        .list_baselines(by(op, v1::ListBaselinesRequest {}))
        .await;
    assert_eq!(list.unwrap().into_inner().items.len(), 1);

    let class = "kernel".to_owned();
    let groups = client.groups(by(op, v1::GroupsRequest { class })).await;
    let groups = groups.unwrap().into_inner().groups;
    let sizes: Vec<u32> = groups.iter().map(|group| group.count).collect();
    assert_eq!((sizes, groups[1].nodes.as_str()), (vec![23, 1], "gpu003"));
    let theirs = eye.conformance_groups(Some("kernel")).await.unwrap();
    let theirs: Vec<v1::Group> = theirs.groups.into_iter().map(Into::into).collect();
    assert_eq!(groups, theirs);

    let drift = client.drift(by(op, v1::DriftRequest {})).await;
    let theirs = eye.drift().await.unwrap();
    assert_eq!(drift.unwrap().into_inner(), v1::DriftResponse::from(theirs));
    let held = client.get_brake(by(op, v1::GetBrakeRequest {})).await;
    assert_eq!(held.unwrap().into_inner().held, None);
    let gone = v1::DeleteBaselineRequest {
        name: "h100".to_owned(),
        expected_version: Some(1),
        idempotency_key: None,
    };
    client.delete_baseline(by(op, gone)).await.unwrap();
    assert!(eye.baselines().await.unwrap().is_empty());
}
