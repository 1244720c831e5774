//! The same through gRPC.

use super::bed::Bed;
use lattice_api::{Problem, v1};
use tonic::{
    Code, Request,
    transport::{Certificate, Channel, ClientTlsConfig},
};
use v1::{
    admin_service_client::AdminServiceClient, allocations_client::AllocationsClient,
    nodes_client::NodesClient, projects_client::ProjectsClient,
};

async fn channel(bed: &Bed) -> Channel {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&bed.ca_pem));
    let endpoint = Channel::from_shared(bed.url("")).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

fn by<T>(bed: &Bed, who: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {}", bed.token(who));
    request
        .metadata_mut()
        .insert("authorization", bearer.parse().unwrap());
    request
}

fn submit(project: &str, nodes: u32) -> v1::SubmitRequest {
    v1::SubmitRequest {
        project: project.to_owned(),
        nodes,
        argv: vec!["true".to_owned()],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_limit_refusal_is_failed_precondition_with_the_problem_in_its_details() {
    let bed = Bed::furnished().await;
    let mut client = AllocationsClient::new(channel(&bed).await);
    let message = submit("atlas/physics/simulation", 21);
    let refused = client.submit(by(&bed, "alice", message)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(
        refused.message().lines().count(),
        2,
        "{}",
        refused.message()
    );
    let problem: Problem = serde_json::from_slice(refused.details()).unwrap();
    assert_eq!(problem.violations.len(), 2);
    let unknown = client
        .submit(by(&bed, "alice", submit("atlas/x", 1)))
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let none = client
        .submit(by(&bed, "alice", submit("atlas/web", 0)))
        .await
        .unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn who_has_no_token_or_no_right_is_told_so() {
    let bed = Bed::furnished().await;
    let mut client = AllocationsClient::new(channel(&bed).await);
    let nobody = client.submit(submit("atlas/web", 1)).await.unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated);
    let viewer = client
        .submit(by(&bed, "eye", submit("atlas/web", 1)))
        .await
        .unwrap_err();
    assert_eq!(viewer.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn an_allocation_goes_its_way_and_repeats_are_one() {
    let bed = Bed::furnished().await;
    let mut client = AllocationsClient::new(channel(&bed).await);
    let keyed = || v1::SubmitRequest {
        idempotency_key: Some("k".to_owned()),
        ..submit("atlas/web", 2)
    };
    let first = client
        .submit(by(&bed, "alice", keyed()))
        .await
        .unwrap()
        .into_inner();
    let again = client
        .submit(by(&bed, "alice", keyed()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.id, again.id);
    for odd in ["a\tb", "k\u{e9}y", ""] {
        let message = v1::SubmitRequest {
            idempotency_key: Some(odd.to_owned()),
            ..submit("atlas/web", 2)
        };
        let refused = client.submit(by(&bed, "alice", message)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{odd:?}");
    }
    let id = first.id.unwrap();
    let dry = v1::SubmitRequest {
        dry_run: true,
        ..submit("atlas/web", 1)
    };
    assert_eq!(
        client
            .submit(by(&bed, "alice", dry))
            .await
            .unwrap()
            .into_inner()
            .id,
        None
    );
    let list = client
        .list(by(&bed, "alice", v1::ListAllocationsRequest::default()))
        .await;
    assert_eq!(list.unwrap().into_inner().items.len(), 1);
    let why = client
        .explain(by(&bed, "alice", v1::ExplainRequest { id }))
        .await
        .unwrap();
    assert_eq!(why.into_inner().state, "pending");
    let cancel = v1::CancelRequest {
        id,
        idempotency_key: None,
    };
    let ended = client
        .cancel(by(&bed, "alice", cancel))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (ended.user.as_str(), ended.state.as_str()),
        ("alice", "cancelled")
    );
    let got = client
        .get(by(&bed, "bob", v1::GetAllocationRequest { id }))
        .await
        .unwrap();
    assert_eq!(got.into_inner().state, "cancelled");
}

#[tokio::test]
async fn nodes_projects_and_status_answer_as_rest_does() {
    let bed = Bed::furnished().await;
    let channel = channel(&bed).await;
    let mut nodes = NodesClient::new(channel.clone());
    let page = v1::ListNodesRequest {
        limit: 20,
        cursor: String::new(),
    };
    let page = nodes
        .list(by(&bed, "eye", page))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (page.items.len(), page.next_cursor.as_deref()),
        (20, Some("gpu020"))
    );
    let name = "gpu999".to_owned();
    let none = nodes
        .get(by(&bed, "eye", v1::GetNodeRequest { name }))
        .await
        .unwrap_err();
    assert_eq!(none.code(), Code::NotFound);
    let mut projects = ProjectsClient::new(channel.clone());
    let tree = projects
        .tree(by(&bed, "eye", v1::TreeRequest::default()))
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
    };
    let refused = projects
        .set_limits(by(&bed, "root", set))
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
        .create_tenant(by(&bed, "root", tenant("ocean")))
        .await
        .unwrap();
    assert_eq!(made.into_inner().max_nodes, Some(9));
    let deep = admin
        .create_tenant(by(&bed, "root", tenant("ocean/a")))
        .await
        .unwrap_err();
    assert_eq!(deep.code(), Code::InvalidArgument);
    let twice = admin
        .create_tenant(by(&bed, "root", tenant("ocean")))
        .await
        .unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
    let status = admin
        .get_status(by(&bed, "eye", v1::GetStatusRequest {}))
        .await
        .unwrap();
    assert_eq!(status.into_inner().nodes, 24);
}
