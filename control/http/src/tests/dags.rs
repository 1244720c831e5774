//! DAG endpoints.

use super::{
    fixture::{ApiFixture, MAX_DAG_SIZE, ask, job},
    grpc::{by, channel, submit},
    submission::read_some,
};
use lattice_api::v1::{self, dags_client::DagsClient};
use lattice_client::{
    AllocationRequest, ClientError, SubmitOptions,
    api::dag::{DagRequest, DagView},
};
use lattice_quorum_types::{AllocationId, allocation::RankExit};
use reqwest::Method;
use serde_json::{Value, json};
use tonic::Code;

fn member(name: &str, more: Value) -> Value {
    let mut member = json!({"name": name, "project": "atlas/web", "nodes": 1, "argv": ["true"]});
    let more = more.as_object().unwrap().clone();
    member.as_object_mut().unwrap().extend(more);
    member
}

fn graph(members: Vec<Value>) -> DagRequest {
    serde_json::from_value(json!({"name": "nightly", "members": members})).unwrap()
}

/// `prepare`, then `train` on success or `mend` on failure, and `clean` after `train`.
fn nightly() -> DagRequest {
    graph(vec![
        member("prepare", json!({})),
        member("train", json!({"after": ["prepare"], "nodes": 2})),
        member("mend", json!({"after": {"failure": ["prepare"]}})),
        member(
            "clean",
            json!({"after": [{"member": "train", "condition": "any"}]}),
        ),
    ])
}

fn states(dag: &DagView) -> Vec<&str> {
    let members = dag.members.iter();
    members.map(|m| m.state.as_deref().unwrap_or("?")).collect()
}

async fn runs(fixture: &ApiFixture, id: AllocationId, nodes: &[&str], code: i32) {
    fixture.assign(id, nodes).await;
    for node in nodes {
        fixture.begins(id, node).await;
    }
    for node in nodes {
        fixture.ends(id, node, RankExit::Exited { code }).await;
    }
}

#[tokio::test]
async fn a_graph_is_submitted_followed_and_found_when_it_has_ended() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let made = alice.submit_dag(&nightly(), Some("once")).await.unwrap();
    let again = alice.submit_dag(&nightly(), Some("once")).await.unwrap();
    assert_eq!(made, again);
    let dag = alice.dag(made.id).await.unwrap();
    assert_eq!(
        (dag.name.as_str(), dag.user.as_str(), dag.state.as_str()),
        ("nightly", "alice", "running")
    );
    assert_eq!(
        (dag.project.as_str(), dag.size, dag.unfinished),
        ("atlas/web", 4, 4)
    );
    assert_eq!(states(&dag), ["pending", "blocked", "blocked", "blocked"]);
    let ids: Vec<AllocationId> = dag.members.iter().map(|m| m.allocation).collect();
    let first = alice.allocation(ids[0]).await.unwrap();
    let place = first.dag.unwrap();
    assert_eq!((place.dag, place.member.as_str()), (made.id, "prepare"));

    runs(&fixture, ids[0], &["gpu001"], 0).await;
    let dag = alice.dag(made.id).await.unwrap();
    assert_eq!(
        states(&dag),
        ["completed", "pending", "cancelled", "blocked"]
    );
    let why = dag.members[2].stop.as_deref().unwrap();
    assert!(why.contains("waited for failure"), "{why}");
    runs(&fixture, ids[1], &["gpu001", "gpu002"], 3).await;
    runs(&fixture, ids[3], &["gpu003"], 0).await;
    let dag = alice.dag(made.id).await.unwrap();
    assert_eq!((dag.state.as_str(), dag.unfinished), ("completed", 0));
    assert!(dag.ended_at.is_some());
    assert_eq!(
        states(&dag),
        ["completed", "failed", "cancelled", "completed"]
    );
    let (status, answer) = ask(
        &fixture,
        "alice",
        Method::DELETE,
        &format!("dags/{}", made.id),
        Value::Null,
    )
    .await;
    assert_eq!((status, &answer["code"]), (409, &json!("wrong_state")));
}

#[tokio::test]
async fn submitter_cancels_graph() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let id = alice.submit_dag(&nightly(), None).await.unwrap().id;
    for (caller, status) in [("bob", 403), ("eye", 403), ("diver", 404)] {
        let error = fixture.client(caller).cancel_dag(id).await.unwrap_err();
        assert_eq!(error.problem().unwrap().status, status, "{caller}");
    }
    let dag = alice.cancel_dag(id).await.unwrap();
    assert_eq!(
        (dag.state.as_str(), dag.cancelled_by.as_deref()),
        ("cancelled", Some("alice"))
    );
    assert_eq!(states(&dag), ["cancelled"; 4]);
}

#[tokio::test]
async fn graphs_are_listed_by_visible_project() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(alice.submit_dag(&nightly(), None).await.unwrap().id);
    }
    alice.cancel_dag(ids[1]).await.unwrap();
    let listed = alice.dags(None).await.unwrap();
    assert_eq!(listed.iter().map(|dag| dag.id).collect::<Vec<_>>(), ids);
    assert!(
        listed
            .iter()
            .all(|dag| dag.members.is_empty() && dag.size == 4)
    );
    assert_eq!(alice.dags(Some("atlas")).await.unwrap().len(), 3);
    let (status, page) = ask(&fixture, "alice", Method::GET, "dags?limit=2", Value::Null).await;
    assert_eq!((status, page["items"].as_array().unwrap().len()), (200, 2));
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = format!("dags?limit=2&cursor={cursor}");
    let (_, rest) = ask(&fixture, "alice", Method::GET, &rest, Value::Null).await;
    assert_eq!(rest["items"][0]["id"], ids[2]);
    assert_eq!(rest.get("next_cursor"), None);
    // An administrator of another tenant does not see this tenant.
    let diver = fixture.client("diver");
    assert!(diver.dags(None).await.unwrap().is_empty());
    for error in [
        diver.dags(Some("atlas")).await.map(drop).unwrap_err(),
        diver.dag(ids[0]).await.map(drop).unwrap_err(),
        diver.dag_graph(ids[0]).await.map(drop).unwrap_err(),
        alice.dags(Some("nobody")).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.problem().unwrap().status, 404, "{error}");
    }
}

#[tokio::test]
async fn a_graph_is_drawn_as_it_is_asked_for() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let id = alice.submit_dag(&nightly(), None).await.unwrap().id;
    let graph = alice.dag_graph(id).await.unwrap();
    assert_eq!((graph.nodes.len(), graph.edges.len()), (4, 3));
    let edge = &graph.edges[1];
    assert_eq!(
        (
            edge.from.as_str(),
            edge.to.as_str(),
            edge.condition.as_str()
        ),
        ("prepare", "mend", "failure")
    );
    let url = |query: &str| fixture.url(&format!("/api/v1/dags/{id}/graph{query}"));
    let get = |query: &str, accept: &str| {
        let request = fixture
            .raw()
            .get(url(query))
            .bearer_auth(fixture.token("alice"));
        request.header("accept", accept).send()
    };
    for (query, accept, is_dot) in [
        ("", "*/*", false),
        ("", "text/vnd.graphviz", true),
        ("?format=dot", "application/json", true),
        ("?format=json", "text/vnd.graphviz", false),
    ] {
        let answer = get(query, accept).await.unwrap();
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            kind.contains("graphviz"),
            is_dot,
            "{query} {accept}: {kind}"
        );
        let text = answer.text().await.unwrap();
        match is_dot {
            true => assert_eq!(text, graph.to_dot()),
            false => assert!(text.starts_with('{')),
        }
    }
    assert_eq!(get("?format=svg", "*/*").await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_graph_is_read_as_yaml_too() {
    let fixture = ApiFixture::furnished().await;
    let yaml = "name: nightly\nmembers:\n\
        - {name: prepare, project: atlas/web, nodes: 1, argv: [./prepare], walltime: 1h}\n\
        - name: train\n  project: atlas/web\n  nodes: 4\n  argv: [./train]\n  after: [prepare]\n";
    let post = |kind: &'static str, body: String| {
        let request = fixture.raw().post(fixture.url("/api/v1/dags"));
        let request = request.bearer_auth(fixture.token("alice"));
        request.header("content-type", kind).body(body).send()
    };
    let made: Value = post("application/yaml", yaml.to_owned())
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let dag = fixture
        .client("alice")
        .dag(made["id"].as_u64().unwrap())
        .await
        .unwrap();
    assert_eq!(dag.members[1].after[0].member, "prepare");
    for (kind, body, status, field) in [
        ("text/plain", yaml.to_owned(), 415, Value::Null),
        (
            "application/yaml",
            yaml.replace("walltime", "waltime"),
            400,
            json!("members[0].waltime"),
        ),
        (
            "application/yaml",
            yaml.replace("nodes: 4", "nodes: four"),
            400,
            json!("members[1].nodes"),
        ),
        (
            "application/yaml",
            "members: [".to_owned(),
            400,
            Value::Null,
        ),
        // Otherwise it would be read as if left out.
        (
            "application/yaml",
            yaml.replace("nodes: 4", "nodes: 4\n  data_ready: .nan"),
            400,
            json!("members[1].data_ready"),
        ),
        // Otherwise the last of two values would apply.
        (
            "application/yaml",
            yaml.replace("nodes: 4", "nodes: 4\n  nodes: 5"),
            400,
            Value::Null,
        ),
        (
            "application/json",
            r#"{"members": [{"name": "a", "project": "atlas/web", "nodes": 1, "nodes": 2}]}"#
                .to_owned(),
            400,
            json!("members[0].nodes"),
        ),
        (
            "application/json",
            format!(r#"{{"name": "{}", "members": []}}"#, "n".repeat(1 << 20)),
            413,
            Value::Null,
        ),
    ] {
        let answer = post(kind, body).await.unwrap();
        assert_eq!(answer.status(), status);
        let problem: Value = answer.json().await.unwrap();
        println!("{problem:#}");
        assert_eq!(problem["field"], field, "{problem}");
    }
}

#[tokio::test]
async fn graphs_that_cannot_be_are_refused_by_their_field() {
    let fixture = ApiFixture::furnished().await;
    let many = (0..=MAX_DAG_SIZE).map(|n| member(&format!("m{n}"), json!({})));
    let with = |more: Value| vec![member("a", more)];
    for (members, status, field, text) in [
        (vec![], 400, "members", "at least one member"),
        (
            many.collect(),
            400,
            "members",
            "DAG exceeds maximum size (51 allocations, limit: 50)",
        ),
        (
            vec![
                member("a", json!({"after": ["c"]})),
                member("b", json!({"after": ["a"]})),
                member("c", json!({"after": ["b"]})),
            ],
            400,
            "members",
            "wait for each other",
        ),
        (
            with(json!({"after": ["b"]})),
            400,
            "members.a.after",
            "no member has the name \"b\"",
        ),
        (
            vec![member("a", json!({})), member("a", json!({}))],
            400,
            "members[1].name",
            "two members",
        ),
        (
            with(json!({"nodes": 0})),
            400,
            "members.a.nodes",
            "at least 1",
        ),
        (
            with(json!({"array": "0-9:0"})),
            400,
            "members.a.array",
            "the step is at least 1",
        ),
        (
            with(json!({"after": {"done": ["a"]}})),
            400,
            "members.a.after",
            "is not one of",
        ),
        (with(json!({"class": 11})), 400, "members.a.class", "11"),
        (
            with(json!({"nodez": 1})),
            400,
            "members[0].nodez",
            "unknown field",
        ),
        (
            with(json!({"nodes": 2, "constraints": {"nodelist": "gpu001"}})),
            400,
            "members.a.constraints.nodelist",
            "1 eligible node, but 2 needed",
        ),
    ] {
        let body = json!({"name": "g", "members": members});
        for path in ["dags", "dags?dry_run=true"] {
            let (shown_status, problem) =
                ask(&fixture, "alice", Method::POST, path, body.clone()).await;
            assert_eq!(shown_status, status, "{path}: {problem}");
            assert_eq!(problem["field"], field, "{path}: {problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(text), "{path}: {detail}");
        }
    }
    assert!(fixture.client("alice").dags(None).await.unwrap().is_empty());
    let status = fixture.client("alice").status().await.unwrap();
    assert!(status.allocations_by_state.values().all(|n| *n == 0));
}

#[tokio::test]
async fn a_dry_run_of_a_graph_judges_it_as_a_submit_and_changes_nothing() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let mut members = nightly().members;
    let more = json!({"array": "0-9", "walltime": "90m", "vcluster": "default"});
    members.push(serde_json::from_value(member("sweep", more)).unwrap());
    let asked = DagRequest {
        members,
        ..nightly()
    };
    let before = alice.status().await.unwrap().revision;
    let judged = alice.dry_run_dag(&asked).await.unwrap();
    assert_eq!((judged.dry_run, judged.revision), (true, before));
    assert_eq!(alice.status().await.unwrap().revision, before);
    assert!(alice.dags(None).await.unwrap().is_empty());
    let shown: Vec<Value> = judged
        .members
        .iter()
        .map(|member| serde_json::to_value(member).unwrap())
        .collect();
    let whole = |name: &str, nodes: u32| {
        let project = "atlas/web";
        json!({"name": name, "project": project, "vcluster": "default", "nodes": nodes})
    };
    let after = |mut member: Value, on: &str, condition: &str| {
        member["after"] = json!([{"member": on, "condition": condition}]);
        member
    };
    let mut sweep = whole("sweep", 1);
    (sweep["elements"], sweep["walltime"]) = (json!(10), json!("1h30m"));
    let expected = [
        whole("prepare", 1),
        after(whole("train", 2), "prepare", "success"),
        after(whole("mend", 1), "prepare", "failure"),
        after(whole("clean", 1), "train", "any"),
        sweep,
    ];
    assert_eq!(shown, expected);
    // A member that can never be satisfied is rejected as in a submission.
    let wide = graph(vec![
        member("a", json!({})),
        member("b", json!({"nodes": 30})),
    ]);
    let [judged, submitted] = [
        alice.dry_run_dag(&wide).await.map(drop),
        alice.submit_dag(&wide, None).await.map(drop),
    ]
    .map(|refused| refused.unwrap_err().problem().unwrap().clone());
    assert_eq!((judged.status, judged.code.as_str()), (409, "too_large"));
    assert_eq!(judged.field.as_deref(), Some("members.b"));
    assert!(
        judged.detail.starts_with("members.b: 30 nodes"),
        "{judged:?}"
    );
    assert_eq!(judged, submitted);
    read_some(&fixture);
    let rare = json!({"nodes": 9, "constraints": {"gpu_models": ["h200"]}});
    let rare = graph(vec![member("a", json!({})), member("b", rare)]);
    let refused = alice.dry_run_dag(&rare).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!((problem.status, problem.code.as_str()), (422, "impossible"));
    let field = "members.b.constraints.gpu_models";
    assert_eq!(problem.field.as_deref(), Some(field));
    // A caller that may not submit receives no forecast either.
    for (caller, status) in [("eye", 403), ("diver", 404)] {
        let error = fixture
            .client(caller)
            .dry_run_dag(&asked)
            .await
            .unwrap_err();
        assert_eq!(error.problem().unwrap().status, status, "{caller}");
    }
    for path in ["dags?dry_run=maybe", "dags?dryrun=true"] {
        let body = serde_json::to_value(nightly()).unwrap();
        let (status, answer) = ask(&fixture, "alice", Method::POST, path, body).await;
        assert_eq!(status, 400, "{answer}");
        assert!(
            answer["detail"].as_str().unwrap().contains("dry"),
            "{answer}"
        );
    }
    assert_eq!(alice.status().await.unwrap().revision, before);
}

#[tokio::test]
async fn grpc_graph_dry_run_matches_rest() {
    let fixture = ApiFixture::furnished().await;
    let mut client = DagsClient::new(channel(&fixture).await);
    let of = |name: &str| v1::DagMemberRequest {
        request: Some(v1::SubmitRequest {
            name: Some(name.to_owned()),
            ..submit("atlas/web", 2)
        }),
        after: Vec::new(),
    };
    let message = |on: &str| v1::SubmitDagRequest {
        name: "g".to_owned(),
        members: vec![
            of("a"),
            v1::DagMemberRequest {
                after: vec![v1::DagEdge {
                    member: on.to_owned(),
                    condition: String::new(),
                }],
                ..of("b")
            },
        ],
        idempotency_key: None,
        dry_run: true,
    };
    let alice = fixture.client("alice");
    let before = alice.status().await.unwrap().revision;
    let answer = client.submit(by(&fixture, "alice", message("a"))).await;
    let answer = answer.unwrap().into_inner();
    assert_eq!((answer.id, answer.revision), (None, before.0));
    let body = json!({"name": "g", "members": [
        member("a", json!({"nodes": 2})), member("b", json!({"nodes": 2, "after": ["a"]})),
    ]});
    let rest = serde_json::from_value(body).unwrap();
    let rest = alice.dry_run_dag(&rest).await.unwrap();
    assert_eq!(v1::SubmitDagResponse::from(rest), answer);
    let refused = client.submit(by(&fixture, "alice", message("c"))).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("members.b.after"), "{refused}");
    assert_eq!(alice.status().await.unwrap().revision, before);
    let wet = v1::SubmitDagRequest {
        dry_run: false,
        ..message("a")
    };
    let made = client.submit(by(&fixture, "alice", wet)).await.unwrap();
    assert!(made.into_inner().id.is_some());
}

#[tokio::test]
async fn members_may_come_after_what_is_not_in_the_graph() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let request = AllocationRequest {
        array: Some("0-3".to_owned()),
        ..job("atlas/web", 1)
    };
    let array = alice.submit(&request, SubmitOptions::default()).await;
    let array = array.unwrap().id.unwrap();
    let outside = |text: String| graph(vec![member("a", json!({ "dependency": text }))]);
    let made = alice
        .submit_dag(&outside(format!("afterany:{array}_2")), None)
        .await
        .unwrap();
    let dag = alice.dag(made.id).await.unwrap();
    let shown = alice.allocation(dag.members[0].allocation).await.unwrap();
    assert_eq!(shown.dependencies[0].on, AllocationId(array.0 + 3));
    let refused = alice
        .submit_dag(&outside(format!("afterany:{array}_9")), None)
        .await;
    let Err(ClientError::NotFound(problem)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(problem.field.as_deref(), Some("members.a.dependency"));
}

/// The member waited for an element of an array outside of the DAG, which the view no longer has.
#[tokio::test]
async fn member_stop_names_element_of_ended_array() {
    let fixture = ApiFixture::furnished().await;
    let alice = fixture.client("alice");
    let request = AllocationRequest {
        array: Some("0-3".to_owned()),
        ..job("atlas/web", 1)
    };
    let array = alice.submit(&request, SubmitOptions::default()).await;
    let array = array.unwrap().id.unwrap();
    let dependent = json!({ "dependency": format!("afterok:{array}_2") });
    let dag = graph(vec![member("a", dependent)]);
    let id = alice.submit_dag(&dag, None).await.unwrap().id;
    runs(&fixture, AllocationId(array.0 + 3), &["gpu001"], 1).await;
    let stop = format!("allocation {array}_2 was failed; this one waited for success");
    for is_array_ended in [false, true] {
        if is_array_ended {
            alice.cancel(array).await.unwrap();
        }
        let dag = alice.dag(id).await.unwrap();
        let shown = dag.members[0].stop.as_deref();
        assert_eq!(shown, Some(&*stop), "{is_array_ended}");
    }
}
