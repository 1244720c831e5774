//! Submission: rejection of impossible requests, and dry runs.

use super::{
    fixture::{ApiFixture, ask, job, operator_envelope},
    grpc::{by, channel},
};
use lattice_api::{Problem, v1};
use lattice_client::{
    AllocationRequest, AuditFilter, ClientError, SubmitOptions, SubmitResult,
    api::{allocation::ConstraintsBody, outlook::OutlookView},
};
use lattice_conformance::{NodeDocument, NodeResources, Reading};
use lattice_engine::{core::Wakes, inputs::System, observed_state};
use lattice_placement::Liveness;
use lattice_quorum_types::{Command, NodeId, UnixMillis, node::Lifecycle};
use lattice_view::PingOutcome;
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;
use tonic::Code;
use v1::{allocations_client::AllocationsClient, dags_client::DagsClient};

/// The first 16 nodes have a document with four A100; the others are unknown.
pub(super) fn read_some(fixture: &ApiFixture) {
    let document = |n: u32| {
        let node = format!("gpu{n:03}");
        let document = NodeDocument {
            version: 1,
            node: node.clone(),
            topology_group: Some(format!("dragonfly-{}", n % 4)),
            identity: Default::default(),
            resources: NodeResources {
                gpu_model: Reading::Present("NVIDIA A100-SXM4-80GB".to_owned()),
                gpu_count: Reading::Present(4),
                memory_bytes: Reading::Present(1 << 39),
                ..NodeResources::default()
            },
        };
        let (digest, _) = document.encode().unwrap();
        (NodeId::new(node).unwrap(), (digest, Arc::new(document)))
    };
    observed_state::documents(&fixture.core, (1..=16).map(document).collect());
}

/// Makes every node alive.
fn all_answer(fixture: &ApiFixture) {
    let view = fixture.core.view();
    let alive = |id: &NodeId| {
        let found = PingOutcome {
            liveness: Liveness::Alive,
            reason: None,
            boot: None,
            reply_addr: None,
        };
        (id.clone(), found)
    };
    observed_state::liveness(&fixture.core, &view.nodes.keys().map(alive).collect());
}

fn asking(nodes: u32, constraints: ConstraintsBody) -> AllocationRequest {
    AllocationRequest {
        constraints,
        ..job("atlas/web", nodes)
    }
}

fn model(name: &str) -> ConstraintsBody {
    ConstraintsBody {
        gpu_models: vec![name.to_owned()],
        ..ConstraintsBody::default()
    }
}

async fn submit(
    fixture: &ApiFixture,
    request: &AllocationRequest,
    dry_run: bool,
) -> Result<SubmitResult, ClientError> {
    let options = SubmitOptions { key: None, dry_run };
    fixture.client("alice").submit(request, options).await
}

fn problem(answer: Result<SubmitResult, ClientError>) -> Problem {
    match answer {
        Err(ClientError::Refused(problem)) => *problem,
        other => panic!("{other:?}"),
    }
}

async fn outlook(fixture: &ApiFixture, request: &AllocationRequest) -> OutlookView {
    let answer = submit(fixture, request, true).await.unwrap();
    assert_eq!((answer.id, answer.dry_run), (None, true));
    answer.outlook.unwrap()
}

#[tokio::test]
async fn what_no_node_could_be_is_refused_and_what_one_may_be_is_not() {
    let fixture = ApiFixture::furnished().await;
    // The hardware of these nodes is still unknown.
    assert!(
        submit(&fixture, &asking(1, model("h200")), false)
            .await
            .is_ok()
    );
    read_some(&fixture);
    // Eight nodes may have them.
    assert!(
        submit(&fixture, &asking(8, model("h200")), false)
            .await
            .is_ok()
    );
    for dry_run in [true, false] {
        let refused = problem(submit(&fixture, &asking(9, model("h200")), dry_run).await);
        assert_eq!(
            (refused.status, &*refused.code, refused.field.as_deref()),
            (422, "impossible", Some("constraints.gpu_models"))
        );
        assert_eq!(
            refused.detail,
            "constraints.gpu_models: only 8 nodes of vCluster default match, 9 are requested; \
             available: NVIDIA A100-SXM4-80GB (16), unknown (8)"
        );
        // A refusal by the quorum has priority.
        let mut many = asking(21, model("h200"));
        many.project = "atlas/physics".to_owned();
        let refused = problem(submit(&fixture, &many, dry_run).await);
        assert_eq!(refused.code, "limit_exceeded");
    }
    let mut client = AllocationsClient::new(channel(&fixture).await);
    for dry_run in [true, false] {
        let message = v1::SubmitRequest {
            project: "atlas/web".to_owned(),
            nodes: 9,
            argv: vec!["true".to_owned()],
            constraints: Some(v1::Constraints {
                gpu_models: vec!["h200".to_owned()],
                ..Default::default()
            }),
            dry_run,
            ..Default::default()
        };
        let refused = client
            .submit(by(&fixture, "alice", message))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let grpc_problem = Problem::from_grpc(&refused).unwrap();
        assert_eq!(
            (grpc_problem.status, &*grpc_problem.code),
            (422, "impossible")
        );
    }
}

/// A request for more bandwidth than the system has would wait forever, and a misspelt name would be limited by
/// nothing.
#[tokio::test]
async fn bandwidth_that_no_system_of_the_site_has_is_refused() {
    let fixture = ApiFixture::furnished().await;
    let asking = |system: &str, gb_s: f64| AllocationRequest {
        storage_gb_s: [(system.to_owned(), gb_s)].into(),
        ..job("atlas/web", 1)
    };
    // Without configured storage systems, any name is accepted.
    assert!(submit(&fixture, &asking("tape", 1e3), false).await.is_ok());
    let system = System {
        budget_mb_s: 40_000,
        ..System::default()
    };
    let systems = ["home", "scratch"].map(|name| (name.to_owned(), system));
    fixture.core.publish(Wakes::Readers, |view| {
        view.inputs.storage = Arc::new(systems.into());
        Some(Vec::new())
    });
    for dry_run in [true, false] {
        let refused = async |system, gb_s| {
            let refused = problem(submit(&fixture, &asking(system, gb_s), dry_run).await);
            assert_eq!(
                (refused.status, &*refused.code, refused.field.as_deref()),
                (422, "impossible", Some("storage_gb_s"))
            );
            refused.detail
        };
        assert_eq!(
            refused("scratch", 40.5).await,
            "storage_gb_s: requested 40.5 GB/s of \"scratch\"; its total bandwidth is 40 GB/s"
        );
        assert_eq!(
            refused("tape", 1.0).await,
            "storage_gb_s: unknown storage system \"tape\"; configured: home, scratch"
        );
        assert!(
            submit(&fixture, &asking("scratch", 40.0), dry_run)
                .await
                .is_ok()
        );
    }
}

/// The state of a node may change; a retired node stays away.
#[tokio::test]
async fn a_drained_node_may_come_back_and_a_retired_one_does_not() {
    let fixture = ApiFixture::furnished().await;
    let both = || ConstraintsBody {
        nodelist: Some("gpu[023-024]".to_owned()),
        ..ConstraintsBody::default()
    };
    for lifecycle in [Lifecycle::Drained, Lifecycle::Retired] {
        let node = NodeId::new("gpu024").unwrap();
        let command = Command::SetLifecycle { node, lifecycle };
        fixture
            .store
            .apply(&operator_envelope("op", command))
            .unwrap();
        fixture.settled().await;
        let answer = submit(&fixture, &asking(2, both()), true).await;
        match lifecycle {
            Lifecycle::Drained => assert!(answer.is_ok(), "{answer:?}"),
            _ => assert_eq!(
                problem(answer).detail,
                "constraints.nodelist: 1 node of vCluster default is on the node list, 2 are requested"
            ),
        }
    }
    // A repeat with the key of an accepted request returns the first result.
    let key = || SubmitOptions {
        key: Some("once".to_owned()),
        dry_run: false,
    };
    let alice = fixture.client("alice");
    let others = ConstraintsBody {
        nodelist: Some("gpu[022-023]".to_owned()),
        ..ConstraintsBody::default()
    };
    let request = asking(2, others);
    let first = alice.submit(&request, key()).await.unwrap();
    let node = NodeId::new("gpu023").unwrap();
    let lifecycle = Lifecycle::Retired;
    let command = Command::SetLifecycle { node, lifecycle };
    fixture
        .store
        .apply(&operator_envelope("op", command))
        .unwrap();
    fixture.settled().await;
    assert_eq!(alice.submit(&request, key()).await.unwrap().id, first.id);
    let anew = alice.submit(&request, SubmitOptions::default()).await;
    assert_eq!(problem(anew).code, "impossible");
}

#[tokio::test]
async fn dry_run_reports_start_without_trace() {
    let fixture = ApiFixture::furnished().await;
    read_some(&fixture);
    all_answer(&fixture);
    let op = fixture.client("op");
    let audit = async || {
        let page = op.audit_page(&AuditFilter::default(), 0, None).await;
        page.unwrap().items.len()
    };
    let (before, revision) = (audit().await, fixture.store.revision());
    let six = outlook(&fixture, &asking(6, ConstraintsBody::default())).await;
    // Topology groups alternate: gpu004, gpu008, ... are one.
    assert_eq!(
        six.summary,
        "would start now on gpu[004,008,012,016,020,024], in 1 group (dragonfly-0)"
    );
    assert!(six.starts_now);
    assert_eq!(six.nodes.as_deref(), Some("gpu[004,008,012,016,020,024]"));
    assert_eq!(
        (six.groups, six.span),
        (vec!["dragonfly-0".to_owned()], Some(1))
    );
    assert_eq!(six.explanation, None);
    // One of four groups, and no other job is ahead; all nine factors count.
    let score = six.score.unwrap();
    assert_eq!((score.ahead, score.factors.len()), (0, 9));
    let named = |name| score.factors.iter().find(|factor| factor.name == name);
    assert_eq!(named("topology").map(|factor| factor.value), Some(0.75));
    let products = score
        .factors
        .iter()
        .map(|factor| factor.value * factor.weight);
    assert_eq!(products.sum::<f64>(), score.sum);
    assert_eq!(fixture.store.revision(), revision);
    assert_eq!(audit().await, before);
    let queued = op.allocations(&Default::default()).await.unwrap();
    assert!(queued.is_empty());
}

/// The explanation is that of `why`, for a job behind those that wait already.
#[tokio::test]
async fn dry_run_reports_wait_reason() {
    let fixture = ApiFixture::furnished().await;
    read_some(&fixture);
    all_answer(&fixture);
    let id = fixture.submit("alice", "atlas/web", 1).await;
    let nodes: Vec<String> = (1..=20).map(|n| format!("gpu{n:03}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let running = fixture.submit("alice", "atlas/web", 20).await;
    fixture.assign(running, &nodes).await;
    let revision = fixture.store.revision();
    let dry = asking(10, ConstraintsBody::default());
    let said = outlook(&fixture, &dry).await;
    assert!(!said.starts_now);
    assert!(
        said.summary.starts_with("would wait: needs 10 of 24 nodes"),
        "{said:?}"
    );
    let why = said.explanation.unwrap();
    assert_eq!((why.allocation.0, &*why.state), (0, "pending"));
    assert_eq!(why.score.as_ref().unwrap().ahead, 1, "{why:?}");
    // A submission of the same request has the same explanation.
    let made = submit(&fixture, &dry, false).await.unwrap().id.unwrap();
    assert_eq!(made.0, running.0 + 1);
    fixture.settled().await;
    let explanation = fixture.client("alice").explanation(made).await.unwrap();
    assert_eq!(explanation.blocker, why.blocker);
    assert_eq!(explanation.steps, why.steps);
    assert_eq!(fixture.store.revision().0, revision.0 + 1);
    let held = AllocationRequest { hold: true, ..dry };
    assert_eq!(
        outlook(&fixture, &held).await.summary,
        "would wait: on hold"
    );
    // Free nodes do not help a job that waits for something else.
    let year = UnixMillis(fixture.core.now().0 + 400 * 86_400_000);
    let begin = format!("{}-12-01 08:00:30", &lattice_api::text::time(year)[..4]);
    let later = AllocationRequest {
        begin: Some(begin.replace(' ', "T")),
        ..asking(1, ConstraintsBody::default())
    };
    let said = outlook(&fixture, &later).await;
    assert!(!said.starts_now);
    let end = format!("begins at {begin} UTC at the earliest");
    assert!(said.summary.contains(&end), "{said:?}");
    let after = AllocationRequest {
        dependency: Some(format!("afterok:{running}")),
        ..asking(1, ConstraintsBody::default())
    };
    let said = outlook(&fixture, &after).await;
    assert!(!said.starts_now);
    assert_eq!(
        said.summary,
        format!("would wait: waits for allocation {running} (success)")
    );
    println!("{id} is ahead of it");
}

/// Only the first blocked job has a reservation; a dry run estimates a start although it is not the first.
#[tokio::test]
async fn dry_run_reports_earliest_start() {
    let fixture = ApiFixture::furnished().await;
    read_some(&fixture);
    all_answer(&fixture);
    let lasting = |nodes: u32, hours: u32| AllocationRequest {
        walltime: Some(format!("{hours}h")),
        ..asking(nodes, ConstraintsBody::default())
    };
    let running = submit(&fixture, &lasting(20, 1), false).await.unwrap();
    let nodes: Vec<String> = (1..=20).map(|n| format!("gpu{n:03}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    fixture.assign(running.id.unwrap(), &nodes).await;
    // This job would have all nodes from the end of the running one, for two hours.
    submit(&fixture, &lasting(24, 2), false).await.unwrap();
    fixture.settled().await;
    let said = outlook(&fixture, &lasting(10, 8)).await;
    let why = said.explanation.unwrap();
    assert!(why.estimated_start.is_some(), "{why:?}");
    assert!(said.summary.contains("estimated start"), "{}", said.summary);
}

#[tokio::test]
async fn grpc_dry_run_matches_rest() {
    let fixture = ApiFixture::furnished().await;
    all_answer(&fixture);
    let said = outlook(&fixture, &job("atlas/web", 2)).await;
    let mut client = AllocationsClient::new(channel(&fixture).await);
    let message = v1::SubmitRequest {
        project: "atlas/web".to_owned(),
        nodes: 2,
        argv: vec!["true".to_owned()],
        walltime: "10m".to_owned(),
        dry_run: true,
        ..Default::default()
    };
    let answer = client.submit(by(&fixture, "alice", message)).await.unwrap();
    let grpc_outlook = answer.into_inner().outlook.unwrap();
    assert_eq!(grpc_outlook.nodes, said.nodes);
    assert_eq!(grpc_outlook.summary, said.summary);
    assert_eq!(
        (grpc_outlook.groups, grpc_outlook.span),
        (said.groups, said.span)
    );
}

/// The same rule as that of the command line, with the field, for every way to submit.
#[tokio::test]
async fn text_that_is_not_a_script_is_refused_everywhere() {
    let fixture = ApiFixture::furnished().await;
    let channel = channel(&fixture).await;
    for (script, reason) in [
        ("", "it is empty"),
        ("hostname", "it does not begin with #!"),
        ("#!/bin/sh\r\ntrue\r\n", "it has DOS line endings"),
    ] {
        let request = json!({"project": "atlas/web", "nodes": 1, "script": script});
        let mut member = request.clone();
        member["name"] = json!("a");
        let dag = json!({"name": "g", "members": [member]});
        for (path, body, field) in [
            ("allocations", request, "script"),
            ("dags", dag, "members.a.script"),
        ] {
            let (status, problem) = ask(&fixture, "alice", Method::POST, path, body).await;
            assert_eq!((status, &problem["field"]), (400, &json!(field)));
            let expected = format!("{field}: {reason}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.starts_with(&expected), "{detail}");
        }
        let message = || v1::SubmitRequest {
            project: "atlas/web".to_owned(),
            nodes: 1,
            script: Some(script.to_owned()),
            ..Default::default()
        };
        let mut client = AllocationsClient::new(channel.clone());
        let refused = client.submit(by(&fixture, "alice", message())).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let problem = Problem::from_grpc(&refused).unwrap();
        assert_eq!(problem.field.as_deref(), Some("script"));
        let dag = v1::SubmitDagRequest {
            name: "g".to_owned(),
            members: vec![v1::DagMemberRequest {
                request: Some(v1::SubmitRequest {
                    name: Some("a".to_owned()),
                    ..message()
                }),
                after: Vec::new(),
            }],
            ..Default::default()
        };
        let mut client = DagsClient::new(channel.clone());
        let refused = client.submit(by(&fixture, "alice", dag)).await.unwrap_err();
        let problem = Problem::from_grpc(&refused).unwrap();
        assert_eq!(problem.field.as_deref(), Some("members.a.script"));
    }
    let request = AllocationRequest {
        script: Some("#!/bin/sh\ntrue\n".to_owned()),
        ..job("atlas/web", 1)
    };
    submit(&fixture, &request, true).await.unwrap();
}
