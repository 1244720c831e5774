//! Tokens limited to some tenants: the other tenants are invisible.

use super::{
    fixture::{ApiFixture, PATIENCE, ask, job},
    grpc::{by, channel},
    projects::request,
};
use futures::TryStreamExt;
use lattice_api::v1::{self, nodes_client::NodesClient};
use lattice_client::{
    AllocationFilter, LogOptions, SubmitOptions,
    api::{
        event::{Change, StreamEvent},
        project::ProjectUpdate,
    },
};
use lattice_quorum_types::AllocationId;
use reqwest::Method;
use serde_json::{Value, json};

async fn ocean() -> ApiFixture {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    root.create_project(&request("ocean", Some(9)), None)
        .await
        .unwrap();
    fixture
}

#[tokio::test]
async fn other_tenants_projects_and_allocations_are_not_there() {
    let fixture = ocean().await;
    let other = fixture.submit("alice", "atlas/web", 1).await;
    let own = fixture.submit("alice", "ocean", 1).await;
    let diver = fixture.client("diver");
    let tree = diver.projects(None).await.unwrap();
    assert_eq!(tree.len(), 1);
    let list = diver
        .allocations(&AllocationFilter::default())
        .await
        .unwrap();
    assert_eq!((list.len(), list[0].id), (1, own));
    assert_eq!(diver.allocation(own).await.unwrap().user, "alice");
    let absent = |error: lattice_client::ClientError| {
        assert_eq!(error.exit_code(), 4, "{error}");
    };
    absent(diver.project("atlas").await.unwrap_err());
    absent(diver.projects(Some("atlas")).await.unwrap_err());
    absent(diver.delete_project("atlas/web").await.unwrap_err());
    let update = ProjectUpdate::default();
    absent(
        diver
            .update_project("atlas/web", &update)
            .await
            .unwrap_err(),
    );
    absent(diver.allocation(other).await.unwrap_err());
    absent(diver.explanation(other).await.unwrap_err());
    absent(diver.cancel(other).await.unwrap_err());
    absent(
        diver
            .logs(other, LogOptions::default())
            .await
            .err()
            .unwrap(),
    );
    let one = job("atlas/web", 1);
    let submit = diver.submit(&one, SubmitOptions::default());
    absent(submit.await.unwrap_err());
    assert_eq!(
        fixture.client("op").allocation(other).await.unwrap().state,
        "pending"
    );
    assert_eq!(diver.cancel(own).await.unwrap().state, "cancelled");
}

#[tokio::test]
async fn foreign_events_are_hidden() {
    let fixture = ocean().await;
    let events = fixture.client("diver").events(None).await.unwrap();
    fixture.submit("alice", "atlas/web", 1).await;
    fixture.submit("alice", "ocean", 1).await;
    let mut events = std::pin::pin!(events.into_stream());
    let next = tokio::time::timeout(PATIENCE, events.try_next());
    let Some(StreamEvent::Changes(first)) = next.await.unwrap().unwrap() else {
        panic!("no change was told");
    };
    let visible = first.changes.iter().filter_map(|change| match change {
        Change::Allocation { record, .. } => Some(record.id),
        _ => None,
    });
    assert_eq!(visible.collect::<Vec<_>>(), [AllocationId(2)]);
}

#[tokio::test]
async fn their_names_and_limits_are_not_in_the_metrics() {
    let fixture = ocean().await;
    let get = fixture.raw().get(fixture.url("/metrics"));
    let get = get
        .bearer_auth(fixture.token("diver"))
        .send()
        .await
        .unwrap();
    let text = get.text().await.unwrap();
    for name in ["limit", "used"] {
        let own = format!("lattice_project_nodes_{name}{{project=\"ocean\"}}");
        assert!(text.contains(&own), "{own} in {text}");
    }
    assert!(!text.contains("atlas"), "{text}");
    // Metrics of all tenants together are for operators of the whole cluster.
    let whole = fixture.raw().get(fixture.url("/metrics"));
    let whole = whole.bearer_auth(fixture.token("op")).send().await.unwrap();
    let whole = whole.text().await.unwrap();
    for name in ["lattice_autoscaling_", "lattice_preemption"] {
        assert!(whole.contains(name), "{name} in {whole}");
        assert!(!text.contains(name), "{name} in {text}");
    }
}

#[tokio::test]
async fn foreign_node_ownership_is_hidden() {
    let fixture = ocean().await;
    let events = fixture.client("diver").events(None).await.unwrap();
    let mut events = std::pin::pin!(events.into_stream());
    fixture.claim("bob", "atlas/web", "gpu006").await;
    fixture.claim("bob", "ocean", "gpu007").await;
    let (mut texts, mut claimed) = (Vec::new(), 0);
    while claimed < 2 {
        let next = tokio::time::timeout(PATIENCE, events.try_next()).await;
        let text = match next.unwrap().unwrap().unwrap() {
            StreamEvent::Changes(changes) => serde_json::to_string(&changes).unwrap(),
            StreamEvent::Observed(observed) => serde_json::to_string(&observed).unwrap(),
            other => panic!("{other:?}"),
        };
        claimed += text.matches("\"claimed\"").count();
        texts.push(text);
    }
    for path in ["nodes", "nodes/gpu006", "nodes/gpu007"] {
        let (_, nodes) = ask(&fixture, "diver", Method::GET, path, Value::Null).await;
        texts.push(nodes.to_string());
    }
    let mut nodes = NodesClient::new(channel(&fixture).await);
    let page = nodes.list(by(&fixture, "diver", v1::ListNodesRequest::default()));
    let page = page.await.unwrap().into_inner();
    texts.push(format!("{page:?}"));
    for text in &texts {
        assert!(!text.contains("atlas"), "{text}");
    }
    // A claim of another tenant is shown without details, one of the own tenant with all of them.
    let (_, theirs) = ask(&fixture, "diver", Method::GET, "nodes/gpu006", Value::Null).await;
    assert_eq!(theirs["claim"]["user"], "(another tenant)");
    let (_, own) = ask(&fixture, "diver", Method::GET, "nodes/gpu007", Value::Null).await;
    let of = |node: &Value| json!([node["claim"]["user"], node["claim"]["purpose"]]);
    assert_eq!(of(&own), json!(["bob", "genomes"]));
    let (_, whole) = ask(&fixture, "op", Method::GET, "nodes/gpu006", Value::Null).await;
    assert_eq!(whole["claim"]["project"], "atlas/web");
    let release = json!({"reason": "why"});
    let (status, answer) = ask(
        &fixture,
        "warden",
        Method::POST,
        "nodes/gpu006/release",
        release,
    )
    .await;
    assert_eq!(status, 403);
    assert!(
        !answer["detail"].as_str().unwrap().contains("bob"),
        "{answer}"
    );
}

#[tokio::test]
async fn reservation_users_are_visible_to_operators_and_themselves() {
    let fixture = ocean().await;
    let course = json!({"nodes": "gpu001", "duration": "1h", "users": ["bob", "diver"],
        "projects": ["atlas/web", "ocean"], "reason": "course"});
    let (status, _) = ask(&fixture, "op", Method::PUT, "reservations/course", course).await;
    assert_eq!(status, 200);
    for (caller, users, projects) in [
        ("op", json!(["bob", "diver"]), json!(["atlas/web", "ocean"])),
        ("diver", json!(["diver"]), json!(["ocean"])),
        ("dean", json!([]), json!(["ocean"])),
    ] {
        let (_, answer) = ask(
            &fixture,
            caller,
            Method::GET,
            "reservations/course",
            Value::Null,
        )
        .await;
        let list = |name: &str| answer.get(name).cloned().unwrap_or(json!([]));
        assert_eq!(
            (list("users"), list("projects")),
            (users, projects),
            "{caller}"
        );
    }
}

#[tokio::test]
async fn tenant_admin_is_limited_to_tenant() {
    let fixture = ocean().await;
    let dean = fixture.client("dean");
    let own = fixture.submit("alice", "ocean", 1).await;
    assert_eq!(dean.allocation(own).await.unwrap().user, "alice");
    let longer = json!({"walltime": "2h"});
    let path = format!("allocations/{own}/extend");
    let (status, answer) = ask(&fixture, "dean", Method::POST, &path, longer).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(dean.cancel(own).await.unwrap().state, "cancelled");
    let deep = request("ocean/deep", Some(4));
    let made = dean.create_project(&deep, None);
    assert_eq!(made.await.unwrap().path, "ocean/deep");
    let batch = |path: &str| json!({"changes": [{"path": path, "max_nodes": 2}]});
    let put = async |path: &str| {
        ask(&fixture, "dean", Method::PUT, "limits", batch(path))
            .await
            .0
    };
    assert_eq!(put("ocean/deep").await, 200);
    assert_eq!((put("ocean").await, put("atlas/web").await), (403, 404));
    // The quorum applies the usual rules: children share what their parent has.
    let (path, more) = ("projects/ocean/deep", json!({"max_nodes": 10}));
    let (status, answer) = ask(&fixture, "dean", Method::PUT, path, more).await;
    assert_eq!(status, 409, "{answer}");
    dean.delete_project("ocean/deep").await.unwrap();
    // All actions are recorded under the caller's name, and the caller reads those about its tenant.
    let (_, audit) = ask(&fixture, "dean", Method::GET, "audit?by=dean", Value::Null).await;
    assert!(audit["items"].as_array().unwrap().len() >= 3, "{audit}");
}

#[tokio::test]
async fn an_accounting_system_sets_what_tenants_may_use_and_never_by_force() {
    let fixture = ocean().await;
    let put = async |caller: &str, id: &str, body: Value| {
        ask(
            &fixture,
            caller,
            Method::PUT,
            &format!("tenants/{id}"),
            body,
        )
        .await
    };
    let budget = json!({"max_nodes": 7, "gpu_hours_budget": 1000, "fair_share_target": 0.2});
    let (status, answer) = put("waldur", "ocean", budget.clone()).await;
    assert_eq!((status, &answer["max_nodes"]), (200, &json!(7)), "{answer}");
    assert_eq!(put("tide", "ocean", budget.clone()).await.0, 200);
    assert_eq!(put("tide", "atlas", budget).await.0, 404);
    for caller in ["waldur", "tide"] {
        let (status, answer) = put(caller, "ocean", json!({"max_nodes": 7, "force": true})).await;
        assert_eq!(status, 403, "{answer}");
    }
    // Setting a limit below what its projects have needs force, and therefore another caller.
    assert_eq!(put("waldur", "atlas", json!({"max_nodes": 1})).await.0, 409);
    let (_, list) = ask(&fixture, "tide", Method::GET, "tenants", Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

/// 200 nodes, all of which `physics` may hold, with `in_use` of them held.
async fn physics(in_use: usize) -> (ApiFixture, AllocationId) {
    let fixture = ApiFixture::empty().await;
    let tenant = request("physics", Some(200));
    fixture
        .client("root")
        .create_project(&tenant, None)
        .await
        .unwrap();
    let names: Vec<String> = (1..=200).map(|n| format!("n{n:03}")).collect();
    names.iter().for_each(|name| fixture.add_node(name));
    fixture.settled().await;
    let nodes = u32::try_from(in_use).unwrap();
    let id = fixture.submit("alice", "physics", nodes).await;
    let names: Vec<&str> = names[..in_use].iter().map(String::as_str).collect();
    fixture.assign(id, &names).await;
    (fixture, id)
}

/// The numbers of the specification, exactly: 195 nodes of 200, and 10 more.
#[tokio::test]
async fn what_a_tenant_would_hold_too_much_is_refused_as_documented() {
    let (fixture, _) = physics(195).await;
    let more = serde_json::to_value(job("physics", 10)).unwrap();
    let (status, answer) = ask(&fixture, "alice", Method::POST, "allocations", more).await;
    assert_eq!(
        (status, answer["detail"].as_str().unwrap()),
        (
            409,
            "allocation rejected: tenant \"physics\" would exceed max_nodes quota (current: 195, \
             requested: 10, limit: 200)"
        )
    );
    fixture.submit("alice", "physics", 5).await;
}

/// 150 nodes are held when Waldur lowers 200 to 100: running jobs continue, waiting jobs keep waiting, and a new
/// request is rejected with both numbers.
#[tokio::test]
async fn a_tenant_that_is_lowered_below_what_it_holds_keeps_it() {
    let (fixture, runs) = physics(150).await;
    let waits = fixture.submit("alice", "physics", 20).await;
    let lower = json!({"max_nodes": 100});
    let (status, answer) = ask(&fixture, "waldur", Method::PUT, "tenants/physics", lower).await;
    assert_eq!(
        (status, &answer["max_nodes"]),
        (200, &json!(100)),
        "{answer}"
    );
    let more = serde_json::to_value(job("physics", 1)).unwrap();
    let (status, answer) = ask(&fixture, "alice", Method::POST, "allocations", more).await;
    assert_eq!(
        (status, answer["detail"].as_str().unwrap()),
        (
            409,
            "allocation rejected: tenant \"physics\" exceeds max_nodes quota\n  Current usage: 150 nodes\n  \
             New limit: 100 nodes\n  Hint: Wait for running allocations to complete, or contact your tenant admin."
        )
    );
    let alice = fixture.client("alice");
    assert_eq!(alice.allocation(runs).await.unwrap().ranks.len(), 150);
    assert_eq!(alice.allocation(waits).await.unwrap().state, "pending");
}
