//! vClusters over REST and gRPC: their tenants, and the ownership of nodes.

mod rejected;
mod rest_and_grpc;
mod settings;

use super::fixture::{ApiFixture, ask, job};
use lattice_api::vcluster::{VclusterNodesRequest, VclusterRequest};
use lattice_client::{ClientError, SubmitOptions};
use lattice_engine::tasks::{lease::Lease, schedule::Schedule};
use lattice_quorum_types::{Command, Outcome, VclusterName, command::Fence, id::LeaseName};
use reqwest::Method;
use serde_json::{Value, json};

fn for_tenants(names: &[&str]) -> VclusterRequest {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    VclusterRequest {
        tenants: Some(Some(names)),
        ..VclusterRequest::default()
    }
}

fn nodes(list: &str, from: Option<&str>) -> VclusterNodesRequest {
    VclusterNodesRequest {
        nodes: list.to_owned(),
        from: from.map(str::to_owned),
    }
}

#[tokio::test]
async fn one_is_defined_given_nodes_used_and_taken_down() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let [default] = root.vclusters().await.unwrap().try_into().unwrap();
    assert_eq!(
        (default.name.as_str(), default.version, default.node_count),
        ("default", 0, 24)
    );
    assert_eq!(default.nodes, "gpu[001-024]");

    let request = VclusterRequest {
        description: Some("at night".to_owned()),
        expected_version: Some(0),
        ..VclusterRequest::default()
    };
    let made = root.set_vcluster("night", &request, None).await.unwrap();
    assert_eq!((made.tenants, made.version), (None, 1));
    let body = json!({"tenants": ["atlas"]});
    let (status, answer) = ask(&fixture, "root", Method::PUT, "vclusters/night", body).await;
    assert_eq!((status, &answer["tenants"]), (200, &json!(["atlas"])));
    assert_eq!(
        (&answer["description"], &answer["version"]),
        (&json!("at night"), &json!(2)),
        "a field left out stays"
    );

    let moved = root
        .assign_vcluster("night", &nodes("gpu[003-004]", None), None)
        .await
        .unwrap();
    assert_eq!(moved.nodes, "gpu[003-004]");
    let night = root.vcluster("night").await.unwrap();
    assert_eq!(
        (night.nodes.as_str(), night.node_count),
        ("gpu[003-004]", 2)
    );
    assert_eq!(root.vcluster("default").await.unwrap().node_count, 22);
    let node = root.node("gpu003").await.unwrap();
    assert_eq!((node.vcluster.as_str(), node.lent_by), ("night", None));

    let mut work = job("atlas/web", 1);
    work.vcluster = Some("night".to_owned());
    let alice = fixture.client("alice");
    let made = alice.submit(&work, SubmitOptions::default()).await.unwrap();
    let shown = alice.allocation(made.id.unwrap()).await.unwrap();
    assert_eq!(shown.vcluster, "night");
    let closed = for_tenants(&[]);
    root.set_vcluster("night", &closed, None).await.unwrap();
    let refused = alice.submit(&work, SubmitOptions::default()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("\"night\" is not open to tenant \"atlas\""),
        "{refused}"
    );

    let (status, answer) = ask(
        &fixture,
        "root",
        Method::DELETE,
        "vclusters/night",
        Value::Null,
    )
    .await;
    assert_eq!((status, &answer["code"]), (409, &json!("vcluster_in_use")));
    assert!(answer["detail"].as_str().unwrap().contains("gpu[003-004]"));
    root.set_vcluster("default", &VclusterRequest::default(), None)
        .await
        .unwrap();
    let back = nodes("gpu[003-004]", Some("night"));
    root.assign_vcluster("default", &back, None).await.unwrap();
    root.delete_vcluster("night", Some(3), None).await.unwrap();
    let gone = root.vcluster("night").await.unwrap_err();
    assert!(matches!(gone, ClientError::NotFound(_)), "{gone:?}");
}

/// Scheduler settings alone do not create a vCluster from a misspelt name, nor change the ownership of nodes.
#[tokio::test]
async fn settings_of_a_scheduler_alone_define_none() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let weight = json!({"scheduler": {"weights": {"energy": 0.1}}});
    let (status, answer) = ask(
        &fixture,
        "root",
        Method::PUT,
        "vclusters/mll",
        weight.clone(),
    )
    .await;
    assert_eq!((status, &answer["code"]), (404, &json!("unknown_vcluster")));
    let detail = answer["detail"].as_str().unwrap();
    assert!(
        detail.contains("`lattice admin vcluster set mll`"),
        "{detail}"
    );
    assert_eq!(root.vclusters().await.unwrap().len(), 1);

    let (status, answer) = ask(&fixture, "root", Method::PUT, "vclusters/default", weight).await;
    assert_eq!((status, &answer["version"]), (200, &json!(0)));
    assert_eq!(answer["scheduler"]["weights"]["energy"], json!(0.1));
    let request = VclusterRequest::default();
    root.set_vcluster("night", &request, None).await.unwrap();
    let taken = nodes("gpu001", None);
    root.assign_vcluster("night", &taken, None).await.unwrap();
    let default = root.set_vcluster("default", &request, None).await.unwrap();
    assert_eq!(
        (default.version, default.scheduler.weights.energy),
        (1, 0.1)
    );
    let taken = nodes("gpu002", None);
    let refused = root.assign_vcluster("night", &taken, None).await;
    assert!(matches!(refused.unwrap_err(), ClientError::Refused(_)));

    // `default` exists even without nodes and without a definition.
    let rest = nodes("gpu[002-024]", Some("default"));
    root.assign_vcluster("night", &rest, None).await.unwrap();
    root.delete_vcluster("default", Some(1), None)
        .await
        .unwrap();
    fixture.settled().await;
    let default = root.vcluster("default").await.unwrap();
    assert_eq!((default.version, default.node_count), (0, 0));
    assert_eq!(root.vclusters().await.unwrap().len(), 2);
}

/// The response is the committed definition: a further query could fail, or return a later change by another caller.
#[tokio::test]
async fn cached_answer_needs_no_request() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    fixture.store.set_unreadable(true);
    let request = for_tenants(&["atlas"]);
    let set = root.set_vcluster("default", &request, None).await.unwrap();
    assert_eq!((set.version, set.node_count), (1, 24));
    assert_eq!(set.tenants, Some(vec!["atlas".to_owned()]));
    assert!(root.vcluster("default").await.is_err());
    fixture.store.set_unreadable(false);
    assert_eq!(root.vcluster("default").await.unwrap(), set);
}

/// A misspelt name is rejected at once, and the explanation of an allocation in a vCluster without nodes names the
/// vCluster.
#[tokio::test]
async fn refuses_undefined_vcluster_and_reports_empty_one() {
    let fixture = ApiFixture::furnished().await;
    let (root, alice) = (fixture.client("root"), fixture.client("alice"));
    let mut work = job("atlas/web", 1);
    work.vcluster = Some("night".to_owned());
    let refused = alice.submit(&work, SubmitOptions::default()).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, ClientError::NotFound(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("`lattice admin vcluster list`"), "{text}");

    let request = VclusterRequest::default();
    root.set_vcluster("night", &request, None).await.unwrap();
    let made = alice.submit(&work, SubmitOptions::default()).await.unwrap();
    root.delete_vcluster("night", None, None).await.unwrap();
    fixture.settled().await;
    let lease = LeaseName::new("schedule.night").unwrap();
    let acquired = fixture.service_answer(Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    });
    let Outcome::Leased { epoch, .. } = acquired.unwrap().outcome else {
        panic!("not leased");
    };
    let held = Lease::new(lease.clone(), "c1".to_owned());
    let mut schedule = Schedule::new(
        fixture.scheduler_parts(),
        held,
        VclusterName::new("night").unwrap(),
    );
    schedule.reconcile(Fence { lease, epoch }).await;
    let shown = alice.allocation(made.id.unwrap()).await.unwrap();
    let reason = shown.reason.unwrap();
    assert!(
        reason.contains("vCluster \"night\" has no nodes"),
        "{reason}"
    );
}
