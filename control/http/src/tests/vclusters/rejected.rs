//! Invalid and conflicting requests for vClusters: status and field of the response, and no change of the state.

use super::{
    super::{
        fixture::{ApiFixture, ask},
        grpc,
    },
    nodes,
};
use lattice_api::{Problem, v1, vcluster::VclusterRequest};
use reqwest::Method;
use serde_json::{Value, json};
use tonic::Code;
use v1::admin_service_client::AdminServiceClient;

#[tokio::test]
async fn what_is_wrong_is_named_by_its_field_and_nothing_is_moved() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    for name in ["left", "right"] {
        let request = VclusterRequest::default();
        root.set_vcluster(name, &request, None).await.unwrap();
    }
    root.assign_vcluster("left", &nodes("gpu[001-002]", None), None)
        .await
        .unwrap();
    let before = fixture.store.revision();
    let put = |path: &'static str, body: Value| (Method::PUT, path, body);
    let post = |body: Value| (Method::POST, "vclusters/right/nodes", body);
    for ((method, path, body), status, field) in [
        (put("vclusters/a%20b", json!({})), 400, json!("name")),
        (
            put("vclusters/left", json!({"tenants": ["a b"]})),
            400,
            json!("tenants"),
        ),
        (
            put("vclusters/left", json!({"tenants": ["atlas/web"]})),
            400,
            json!("tenants"),
        ),
        (
            put("vclusters/left", json!({"tenants": ["nobody"]})),
            404,
            Value::Null,
        ),
        (
            put("vclusters/left", json!({"scheduler": {"profile": "ml"}})),
            400,
            json!("scheduler.profile"),
        ),
        (
            put(
                "vclusters/left",
                json!({"scheduler": {"weights": {"energy": -1}}}),
            ),
            400,
            json!("scheduler.weights.energy"),
        ),
        (
            put(
                "vclusters/left",
                json!({"scheduler": {"reference_wait_s": 0}}),
            ),
            400,
            json!("scheduler.reference_wait_s"),
        ),
        (
            put(
                "vclusters/left",
                json!({"scheduler": {"reservations": "many"}}),
            ),
            400,
            json!("scheduler.reservations"),
        ),
        (
            put(
                "vclusters/left",
                json!({"scheduler": {"weights": {"energy": 1e300}}}),
            ),
            400,
            json!("scheduler.weights.energy"),
        ),
        (
            put(
                "vclusters/left",
                json!({"scheduler": {"weights": {"energy": 1e-9}}}),
            ),
            400,
            json!("scheduler.weights.energy"),
        ),
        (
            put("vclusters/left", json!({"tenant": "atlas"})),
            400,
            json!("tenant"),
        ),
        (
            put("vclusters/left", json!({"expected_version": 7})),
            409,
            Value::Null,
        ),
        (post(json!({"nodes": ""})), 400, json!("nodes")),
        (post(json!({"nodes": "gpu[1-"})), 400, json!("nodes")),
        (post(json!({"nodes": "gpu[003-099]"})), 404, json!("nodes")),
        (post(json!({"nodes": "gpu099"})), 404, json!("nodes")),
        (
            post(json!({"nodes": "gpu003", "from": "a b"})),
            400,
            json!("from"),
        ),
    ] {
        let (is, answer) = ask(&fixture, "root", method, path, body).await;
        assert_eq!((is, &answer["field"]), (status, &field), "{path}");
    }
    let taken = json!({"nodes": "gpu[001-003]"});
    let (status, answer) = ask(
        &fixture,
        "root",
        Method::POST,
        "vclusters/right/nodes",
        taken.clone(),
    )
    .await;
    assert_eq!(
        (status, &answer["code"]),
        (409, &json!("ownership_conflict"))
    );
    let detail = answer["detail"].as_str().unwrap();
    for node in ["gpu001", "gpu002"] {
        let part = format!("node {node} belongs to vCluster \"left\"");
        assert!(detail.contains(&part), "{detail}");
    }
    assert!(!detail.contains("gpu003"), "{detail}");
    assert_eq!(fixture.store.revision(), before, "nothing was changed");

    // gRPC returns the same.
    let mut admin = AdminServiceClient::new(grpc::channel(&fixture).await);
    let request = v1::AssignVclusterRequest {
        name: "right".to_owned(),
        nodes: "gpu[001-003]".to_owned(),
        ..Default::default()
    };
    let refused = admin.assign_vcluster(grpc::by(&fixture, "root", request));
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let problem = Problem::from_grpc(&refused).unwrap();
    assert_eq!(serde_json::to_value(problem).unwrap(), answer);
}
