//! The same operations over gRPC.

use super::fixture::{ApiFixture, PATIENCE};
use lattice_api::{Problem, v1};
use tokio::time::timeout;
use tonic::{
    Code, Request,
    transport::{Certificate, Channel, ClientTlsConfig},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use v1::{
    admin_service_client::AdminServiceClient, allocations_client::AllocationsClient,
    nodes_client::NodesClient, projects_client::ProjectsClient,
};

pub(super) async fn channel(fixture: &ApiFixture) -> Channel {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&fixture.ca_pem));
    let endpoint = Channel::from_shared(fixture.url("")).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

pub(super) fn by<T>(fixture: &ApiFixture, caller: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {}", fixture.token(caller));
    request
        .metadata_mut()
        .insert("authorization", bearer.parse().unwrap());
    request
}

pub(super) fn submit(project: &str, nodes: u32) -> v1::SubmitRequest {
    v1::SubmitRequest {
        project: project.to_owned(),
        nodes,
        argv: vec!["true".to_owned()],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_limit_refusal_is_failed_precondition_with_the_problem_in_its_details() {
    let fixture = ApiFixture::furnished().await;
    let mut client = AllocationsClient::new(channel(&fixture).await);
    let message = submit("atlas/physics/simulation", 21);
    let refused = client
        .submit(by(&fixture, "alice", message))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(
        refused.message().lines().count(),
        2,
        "{}",
        refused.message()
    );
    let problem: Problem = Problem::from_grpc(&refused).unwrap();
    assert_eq!(problem.violations.len(), 2);
    let unknown = client
        .submit(by(&fixture, "alice", submit("atlas/x", 1)))
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let none = client
        .submit(by(&fixture, "alice", submit("atlas/web", 0)))
        .await
        .unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn rejects_missing_token_and_missing_right() {
    let fixture = ApiFixture::furnished().await;
    let mut client = AllocationsClient::new(channel(&fixture).await);
    let nobody = client.submit(submit("atlas/web", 1)).await.unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated);
    let viewer = client
        .submit(by(&fixture, "eye", submit("atlas/web", 1)))
        .await
        .unwrap_err();
    assert_eq!(viewer.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn an_allocation_goes_its_way_and_repeats_are_one() {
    let fixture = ApiFixture::furnished().await;
    let mut client = AllocationsClient::new(channel(&fixture).await);
    let keyed = || v1::SubmitRequest {
        idempotency_key: Some("k".to_owned()),
        ..submit("atlas/web", 2)
    };
    let first = client
        .submit(by(&fixture, "alice", keyed()))
        .await
        .unwrap()
        .into_inner();
    let again = client
        .submit(by(&fixture, "alice", keyed()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.id, again.id);
    for odd in ["a\tb", "k\u{e9}y", ""] {
        let message = v1::SubmitRequest {
            idempotency_key: Some(odd.to_owned()),
            ..submit("atlas/web", 2)
        };
        let refused = client
            .submit(by(&fixture, "alice", message))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{odd:?}");
    }
    let id = first.id.unwrap();
    let dry = v1::SubmitRequest {
        dry_run: true,
        ..submit("atlas/web", 1)
    };
    assert_eq!(
        client
            .submit(by(&fixture, "alice", dry))
            .await
            .unwrap()
            .into_inner()
            .id,
        None
    );
    let list = client
        .list(by(&fixture, "alice", v1::ListAllocationsRequest::default()))
        .await;
    assert_eq!(list.unwrap().into_inner().items.len(), 1);
    let why = client
        .explain(by(&fixture, "alice", v1::ExplainRequest { id }))
        .await
        .unwrap();
    assert_eq!(why.into_inner().state, "pending");
    let cancel = v1::CancelRequest {
        id,
        idempotency_key: None,
    };
    let ended = client
        .cancel(by(&fixture, "alice", cancel))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (ended.user.as_str(), ended.state.as_str()),
        ("alice", "cancelled")
    );
    let got = client
        .get(by(&fixture, "bob", v1::GetAllocationRequest { id }))
        .await
        .unwrap();
    assert_eq!(got.into_inner().state, "cancelled");
}

#[tokio::test]
async fn a_demand_goes_in_and_comes_out_and_what_is_not_a_number_is_refused() {
    let fixture = ApiFixture::furnished().await;
    let mut client = AllocationsClient::new(channel(&fixture).await);
    let asked = v1::SubmitRequest {
        data_ready: Some(0.8),
        checkpoint_time: "5m".to_owned(),
        storage_gb_s: [("scratch".to_owned(), 40.0)].into(),
        ..submit("atlas/web", 1)
    };
    let not_a_number = v1::SubmitRequest {
        data_ready: Some(f64::NAN),
        ..asked.clone()
    };
    let refused = client.submit(by(&fixture, "alice", not_a_number)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("NaN"), "{refused:?}");
    let answer = client.submit(by(&fixture, "alice", asked.clone())).await;
    let id = answer.unwrap().into_inner().id.unwrap();
    let got = client.get(by(&fixture, "alice", v1::GetAllocationRequest { id }));
    let got = got.await.unwrap().into_inner();
    assert_eq!(got.data_ready, asked.data_ready);
    assert_eq!(got.checkpoint_time, Some(asked.checkpoint_time));
    assert_eq!(got.storage_gb_s, asked.storage_gb_s);
}

#[tokio::test]
async fn nodes_projects_and_status_answer_as_rest_does() {
    let fixture = ApiFixture::furnished().await;
    let channel = channel(&fixture).await;
    let mut nodes = NodesClient::new(channel.clone());
    let page = v1::ListNodesRequest {
        limit: 20,
        cursor: String::new(),
    };
    let page = nodes
        .list(by(&fixture, "eye", page))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (page.items.len(), page.next_cursor.as_deref()),
        (20, Some("gpu020"))
    );
    let name = "gpu999".to_owned();
    let none = nodes
        .get(by(&fixture, "eye", v1::GetNodeRequest { name }))
        .await
        .unwrap_err();
    assert_eq!(none.code(), Code::NotFound);
    let mut projects = ProjectsClient::new(channel.clone());
    let tree = projects
        .tree(by(&fixture, "eye", v1::TreeRequest::default()))
        .await
        .unwrap();
    assert_eq!(tree.into_inner().items.len(), 4);
    let set = v1::SetLimitsRequest {
        changes: vec![v1::LimitChange {
            path: "atlas/web".to_owned(),
            max_nodes: Some(v1::LimitChangeValue {
                change: Some(v1::limit_change_value::Change::Set(500)),
            }),
            max_concurrent_allocations: None,
        }],
        idempotency_key: None,
        force: false,
    };
    let refused = projects
        .set_limits(by(&fixture, "root", set))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let mut admin = AdminServiceClient::new(channel);
    let tenant = |path: &str| v1::CreateProjectRequest {
        path: path.to_owned(),
        max_nodes: Some(9),
        ..Default::default()
    };
    let made = admin
        .create_tenant(by(&fixture, "root", tenant("ocean")))
        .await
        .unwrap();
    assert_eq!(made.into_inner().max_nodes, Some(9));
    let deep = admin
        .create_tenant(by(&fixture, "root", tenant("ocean/a")))
        .await
        .unwrap_err();
    assert_eq!(deep.code(), Code::InvalidArgument);
    let twice = admin
        .create_tenant(by(&fixture, "root", tenant("ocean")))
        .await
        .unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
    let status = admin
        .get_status(by(&fixture, "eye", v1::GetStatusRequest {}))
        .await
        .unwrap();
    assert_eq!(status.into_inner().nodes, 24);
}

#[tokio::test]
async fn administrators_find_the_same_here() {
    let fixture = ApiFixture::furnished().await;
    let mut admin = AdminServiceClient::new(channel(&fixture).await);
    let create = v1::CreateTokenRequest {
        role: "agent".to_owned(),
        ttl: "1h".to_owned(),
        nodes: Some("gpu[101-104]".to_owned()),
        cidrs: vec!["10.1.0.0/16".to_owned()],
        replace: true,
        ..Default::default()
    };
    let denied = admin.create_token(by(&fixture, "op", create.clone())).await;
    assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    let made = admin
        .create_token(by(&fixture, "root", create))
        .await
        .unwrap();
    let made = made.into_inner();
    let list = v1::ListTokensRequest {};
    let list = admin.list_tokens(by(&fixture, "root", list)).await.unwrap();
    let token = &list.into_inner().items[0];
    assert_eq!(
        (&token.id, token.uses_left, token.replace),
        (&made.id, 1, true)
    );
    assert_eq!(token.nodes, "gpu[101-104]");
    let revoke = v1::RevokeTokenRequest {
        id: made.id,
        idempotency_key: None,
    };
    admin
        .revoke_token(by(&fixture, "root", revoke.clone()))
        .await
        .unwrap();
    let gone = admin.revoke_token(by(&fixture, "root", revoke)).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
    let revoke = v1::RevokeCertificatesRequest {
        role: "agent".to_owned(),
        name: "gpu001".to_owned(),
        reason: "the disk was sold".to_owned(),
        idempotency_key: None,
    };
    admin
        .revoke_certificates(by(&fixture, "root", revoke))
        .await
        .unwrap();
    let list = v1::ListCertificatesRequest::default();
    let list = admin
        .list_certificates(by(&fixture, "op", list))
        .await
        .unwrap();
    assert_eq!(list.into_inner().items[0].state, "revoked");
    let id = fixture.submit("alice", "atlas/web", 1).await;
    fixture.assign(id, &["gpu002"]).await;
    let drain = v1::DrainNodeRequest {
        name: "gpu002".to_owned(),
        reason: "the cage is dark".to_owned(),
        force_release: true,
        idempotency_key: None,
    };
    let drained = admin.drain_node(by(&fixture, "op", drain)).await.unwrap();
    assert_eq!(drained.into_inner().allocation, Some(id.0));
    let query = v1::QueryAuditRequest {
        action: "force_released".to_owned(),
        ..Default::default()
    };
    let found = admin.query_audit(by(&fixture, "op", query)).await.unwrap();
    let found = found.into_inner();
    assert_eq!((found.items.len(), found.next_after), (1, None));
    assert_eq!(found.items[0].by, "op");
    let whole: lattice_api::audit::AuditView = serde_json::from_str(&found.items[0].json).unwrap();
    assert_eq!(whole.hash, found.items[0].hash);
    let none = v1::AuthorityPin {
        pin: "0123456789ab".to_owned(),
        idempotency_key: None,
    };
    let none = admin.promote_authority(by(&fixture, "root", none)).await;
    assert_eq!(none.unwrap_err().code(), Code::NotFound);
    let all = v1::ListAuthoritiesRequest {};
    let all = admin
        .list_authorities(by(&fixture, "op", all))
        .await
        .unwrap();
    assert!(all.into_inner().items.is_empty());
}

/// Probes and generic clients have no token; an invalid one changes nothing.
#[tokio::test]
async fn health_and_reflection_answer_everybody() {
    let fixture = ApiFixture::furnished().await;
    let channel = channel(&fixture).await;
    let mut health = HealthClient::new(channel.clone());
    let of = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    let mut bad = Request::new(of(""));
    let nobody = "Bearer nobody-nobody-nobody".parse().unwrap();
    bad.metadata_mut().insert("authorization", nobody);
    let asked = [
        bad,
        Request::new(of("")),
        Request::new(of("lattice.v1.Nodes")),
        by(&fixture, "eye", of("lattice.v1.AdminService")),
        by(&fixture, "waldur", of("lattice.v1.Allocations")),
    ];
    for request in asked {
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    let unknown = health.check(of("lattice.v1.Nothing")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let mut statuses = health.watch(of("lattice.v1.Nothing")).await.unwrap();
    let first = statuses.get_mut().message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::ServiceUnknown);
    drop(statuses);

    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let asked = futures::stream::iter([list]);
    let mut answers = reflection
        .server_reflection_info(asked)
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(listed)) = answer else {
        panic!("{answer:?}")
    };
    let names: Vec<&str> = listed.service.iter().map(|s| s.name.as_str()).collect();
    for name in [
        "lattice.v1.AdminService",
        "lattice.v1.Conformance",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
}

/// Nothing is written here, so from some time on the quorum counts as silent.
#[tokio::test]
async fn health_reports_quorum_loss_and_recovery() {
    let fixture = ApiFixture::furnished().await;
    let mut health = HealthClient::new(channel(&fixture).await);
    let of = HealthCheckRequest::default();
    let mut statuses = health.watch(of.clone()).await.unwrap().into_inner();
    let mut next = async || {
        let message = timeout(PATIENCE, statuses.message()).await.unwrap();
        message.unwrap().unwrap().status()
    };
    assert_eq!(next().await, ServingStatus::Serving);
    assert_eq!(next().await, ServingStatus::NotServing);
    let now = health.check(of).await.unwrap().into_inner().status();
    assert_eq!(now, ServingStatus::NotServing);
    let ready = fixture
        .raw()
        .get(fixture.url("/readyz"))
        .send()
        .await
        .unwrap();
    assert_eq!(ready.status(), 503);
    fixture.add_node("late001");
    assert_eq!(next().await, ServingStatus::Serving);
}
