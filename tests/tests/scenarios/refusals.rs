//! Steps for refusals: the same mistake with REST, gRPC and on the command line, each with the field's name.

use crate::{step, steps::Step, users, world::World};
use lattice_api::{
    AllocationRequest, Problem,
    dag::{AfterBody, DagRequest, MemberRequest},
    v1,
};
use lattice_client::AllocationFilter;
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Output;
use v1::{allocations_client::AllocationsClient, dags_client::DagsClient};

/// Parses a document of a scenario; it is YAML, as for the command line.
fn yaml(text: &str) -> Value {
    serde_yaml_ng::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Adds fields that a scenario leaves out.
fn with_rest(mut asked: Value) -> Value {
    for (field, value) in [
        ("project", json!("acme")),
        ("nodes", json!(1)),
        ("argv", json!(["true"])),
    ] {
        let fields = asked.as_object_mut().unwrap();
        fields.entry(field).or_insert(value);
    }
    asked
}

/// gRPC message of the same request.
fn message(request: AllocationRequest) -> v1::SubmitRequest {
    v1::SubmitRequest {
        project: request.project,
        nodes: request.nodes,
        name: request.name,
        argv: request.argv,
        class: request.class.map(Into::into),
        array: request.array.unwrap_or_default(),
        scale: request.scale.map(Into::into),
        ..v1::SubmitRequest::default()
    }
}

fn member(member: MemberRequest) -> v1::DagMemberRequest {
    let edge = |member: String, condition: String| v1::DagEdge { member, condition };
    let after = match member.after {
        AfterBody::Names(names) => names
            .into_iter()
            .map(|name| edge(name, String::new()))
            .collect(),
        AfterBody::Edges(edges) => edges
            .into_iter()
            .map(|one| edge(one.member, one.condition.unwrap_or_default()))
            .collect(),
        AfterBody::ByCondition(by) => by
            .into_iter()
            .flat_map(|(condition, names)| {
                names.into_iter().map(move |name| (name, condition.clone()))
            })
            .map(|(name, condition)| edge(name, condition))
            .collect(),
    };
    v1::DagMemberRequest {
        request: Some(message(member.request)),
        after,
    }
}

/// Refusal of a DAG, with REST and gRPC, which must agree, and on the command line.
async fn graph(world: &World, text: &str) -> (Problem, Output) {
    let members = yaml(text);
    let members = members.as_array().unwrap().iter().cloned().map(with_rest);
    let body = json!({"name": "refused", "members": members.collect::<Vec<_>>()});
    let asked = users::refused(world, "alice", "dags", &body).await;
    let typed: DagRequest = serde_json::from_value(body.clone()).unwrap();
    let request = v1::SubmitDagRequest {
        name: typed.name,
        members: typed.members.into_iter().map(member).collect(),
        ..v1::SubmitDagRequest::default()
    };
    let mut client = DagsClient::new(users::channel(world).await);
    let status = client.submit(users::by("alice", request)).await;
    let called = Problem::from_grpc(&status.unwrap_err()).unwrap();
    assert_eq!(
        (&called.field, &called.detail, called.status),
        (&asked.field, &asked.detail, asked.status)
    );
    let file = world.scratch().join("refused.yaml");
    std::fs::write(&file, serde_yaml_ng::to_string(&body).unwrap()).unwrap();
    let args = ["dag", "submit", file.to_str().unwrap()];
    (asked, users::cli(world, "alice", &args))
}

/// Error output of a command, which must have failed.
fn complained(done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(matches!(done.status.code(), Some(1 | 2 | 4)), "{done:?}");
    said
}

fn says(problem: &Problem, field: &str, text: &str) {
    assert_eq!(problem.field.as_deref(), Some(field), "{problem:?}");
    assert!(problem.detail.contains(text), "{text}: {problem:?}");
}

/// Numbers of allocations and DAGs.
async fn count(world: &World) -> (usize, usize) {
    let (all, dags) = (AllocationFilter::default(), None);
    let allocations = world.api().allocations(&all).await.unwrap();
    let dags = world.api().dags(dags).await.unwrap();
    (allocations.len(), dags.len())
}

/// Service with these scaling settings in addition to the usual ones.
fn service(text: &str) -> (AllocationRequest, Value) {
    let mut scale =
        json!({"min_nodes": 1, "max_nodes": 2, "metric": {"prometheus": "load"}, "target": 1});
    let settings = yaml(text);
    for (name, value) in settings.as_object().unwrap() {
        scale[name] = value.clone();
    }
    let body =
        with_rest(json!({"nodes": scale["min_nodes"].as_u64().unwrap().max(1), "scale": scale}));
    // JSON has no representation of values that are not numbers.
    let mut typed = body.clone();
    let mut unnumbered = Vec::new();
    for field in ["target", "down_threshold"] {
        if typed["scale"].get(field).is_some_and(Value::is_null) {
            typed["scale"][field] = json!(0.5);
            unnumbered.push(field);
        }
    }
    let mut request: AllocationRequest = serde_json::from_value(typed).unwrap();
    let scale = request.scale.as_mut().unwrap();
    for field in unnumbered {
        match field {
            "target" => scale.target = f64::NAN,
            _ => scale.down_threshold = Some(f64::NAN),
        }
    }
    (request, body)
}

pub fn steps() -> Vec<Step> {
    vec![
        step!(
            "a graph of {number} members is refused in {text} with",
            |world, said| {
                let before = count(world).await;
                let members = (0..said.number(0)).map(|n| json!({"name": format!("m{n}")}));
                let members = Value::Array(members.collect()).to_string();
                let (problem, done) = graph(world, &members).await;
                let lines = said.pairs().into_iter().map(|(_, line)| line);
                let text = lines.collect::<Vec<_>>().join("\n  ");
                assert_eq!(problem.detail, text);
                says(&problem, said.text(1), "");
                assert!(complained(&done).contains(&text), "{done:?}");
                assert_eq!(count(world).await, before);
            }
        ),
        step!(
            "each of these graphs is refused over REST, gRPC and on the command line",
            |world, said| {
                let before = count(world).await;
                for row in said.rows() {
                    let [members, field, text] = [0, 1, 2].map(|place| row[place].1.as_str());
                    let (problem, done) = graph(world, members).await;
                    says(&problem, field, text);
                    let printed = complained(&done);
                    assert!(
                        printed.contains(text) && printed.contains(field),
                        "{field}: {printed}"
                    );
                }
                assert_eq!(count(world).await, before);
            }
        ),
        step!(
            "each of these services is refused over REST, gRPC and on the command line",
            |world, said| {
                let before = count(world).await;
                for row in said.rows() {
                    let [settings, field, text] = [0, 1, 2].map(|place| row[place].1.as_str());
                    let (request, body) = service(settings);
                    let problem = users::refused(world, "alice", "allocations", &body).await;
                    let is_number = !body.to_string().contains("null");
                    says(&problem, field, if is_number { text } else { "" });
                    let mut client = AllocationsClient::new(users::channel(world).await);
                    let status = client.submit(users::by("alice", message(request))).await;
                    let called = Problem::from_grpc(&status.unwrap_err()).unwrap();
                    says(&called, field, text);
                    let file = world.scratch().join("service.yaml");
                    let member = format!("{body}").replacen('{', "{\"name\": \"web\", ", 1);
                    let graph = format!("{{\"members\": [{member}]}}").replace("null", ".nan");
                    std::fs::write(&file, graph).unwrap();
                    let done =
                        users::cli(world, "alice", &["dag", "submit", file.to_str().unwrap()]);
                    let printed = complained(&done);
                    // A value that is not a number is found before the field's name is checked.
                    let named = if is_number { field } else { "scale" };
                    assert!(printed.contains(named), "{settings}: {printed}");
                }
                assert_eq!(count(world).await, before);
            }
        ),
        step!(
            "each of these is refused over REST, gRPC and on the command line",
            |world, said| {
                let before = count(world).await;
                for row in said.rows() {
                    let [field, value, text] = [0, 1, 2].map(|place| row[place].1.as_str());
                    let given = value
                        .parse::<u32>()
                        .map_or_else(|_| json!(value), |n| json!(n));
                    let body = with_rest(json!({ field: given }));
                    let problem = users::refused(world, "alice", "allocations", &body).await;
                    says(&problem, field, text);
                    let request = message(serde_json::from_value(body).unwrap());
                    let mut client = AllocationsClient::new(users::channel(world).await);
                    let status = client.submit(users::by("alice", request)).await;
                    let called = Problem::from_grpc(&status.unwrap_err()).unwrap();
                    assert_eq!(
                        (called.field, called.detail),
                        (problem.field, problem.detail)
                    );
                    let flag = format!("--{field}={value}");
                    let args = ["submit", "--project", "acme", &flag, "--", "true"];
                    let done = users::cli(world, "alice", &args);
                    let printed = complained(&done);
                    let named = format!("--{field}");
                    assert!(
                        printed.contains(text) && printed.contains(&named),
                        "{printed}"
                    );
                }
                assert_eq!(count(world).await, before);
            }
        ),
        step!(
            "a service whose target is written as NaN is no JSON: {number}",
            |world, said| {
                let (_, body) = service("{target: .nan}");
                let text = body.to_string().replace("null", "NaN");
                let post = (Method::POST, "allocations");
                let (status, refusal) =
                    users::ask(world, "alice", post, "application/json", text).await;
                assert_eq!(u64::from(status), said.number(0), "{refusal}");
            }
        ),
    ]
}
