//! Tenants, headroom, cluster-wide limits and refusals by limits, over REST and gRPC.

use super::fixture::{ApiFixture, ask, job};
use lattice_api::{Problem, v1};
use lattice_client::{
    ClientError,
    api::{project::*, tenant::*},
};
use lattice_engine::tasks::{lease::Lease, schedule::Schedule};
use lattice_quorum_types::{
    AllocationId, AllocationState, Command, VclusterName, command::Fence, id::LeaseName,
    limit::Patch,
};
use reqwest::Method;
use serde_json::{Value, json};
use tonic::Code;

#[tokio::test]
async fn a_tenant_is_made_changed_in_the_seeds_own_form_and_taken_down() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let request = TenantRequest {
        id: "physics".to_owned(),
        max_nodes: Patch::Set(200),
        admins: vec!["bob".to_owned()],
        ..TenantRequest::default()
    };
    let made = root.create_tenant(&request).await.unwrap();
    assert_eq!(
        (made.max_nodes, made.max_concurrent_allocations),
        (Some(200), None)
    );
    let body = json!({"max_nodes": 250, "max_concurrent_allocations": 50});
    let (status, answer) = ask(&fixture, "root", Method::PUT, "tenants/physics", body).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&answer["max_nodes"], &answer["max_concurrent_allocations"]),
        (&json!(250), &json!(50))
    );
    // A field left out stays.
    let body = json!({"max_nodes": 100});
    let (_, answer) = ask(&fixture, "root", Method::PUT, "tenants/physics", body).await;
    assert_eq!(
        (&answer["max_nodes"], &answer["max_concurrent_allocations"]),
        (&json!(100), &json!(50))
    );
    let names = root.tenants().await.unwrap();
    let names: Vec<_> = names.iter().map(|tenant| tenant.id.as_str()).collect();
    assert_eq!(names, ["atlas", "physics"]);
    for (body, field) in [
        (
            json!({"max_nodes": 1, "gpu_hours_budget": -1}),
            "gpu_hours_budget",
        ),
        (json!({"fair_share_target": 1.5}), "fair_share_target"),
        (json!({"max_nodes": -1}), "max_nodes"),
        (json!({"max_nodes": null}), "max_nodes"),
        (json!({"max_node": 1}), "max_node"),
    ] {
        let (status, answer) = ask(&fixture, "root", Method::PUT, "tenants/physics", body).await;
        assert_eq!((status, &answer["field"]), (400, &json!(field)));
    }
    let unchanged = root.tenant("physics").await.unwrap();
    assert_eq!(unchanged.max_nodes, Some(100));
    root.delete_tenant("physics").await.unwrap();
    let gone = root.tenant("physics").await.unwrap_err();
    assert!(matches!(gone, ClientError::NotFound(_)), "{gone:?}");
    let project = root.tenant("atlas/web").await.unwrap_err();
    assert!(project.to_string().contains("give one name"), "{project}");
}

#[tokio::test]
async fn rejects_tenant_limit_below_projects_sum() {
    let fixture = ApiFixture::furnished().await;
    let body = json!({"max_nodes": 60});
    let (status, answer) = ask(&fixture, "root", Method::PUT, "tenants/atlas", body).await;
    assert_eq!(status, 409);
    assert_eq!(answer["type"], "urn:lattice:problem:limit_conflict");
    assert_eq!(answer["title"], "Limits would contradict each other");
    assert_eq!(
        answer["detail"],
        "limit rejected: the max_nodes of the children of \"atlas\" would add up to 70, more than \
         its own 60; raise \"atlas\" or lower a child first"
    );
    let level = json!({"path": "atlas", "limit_name": "max_nodes", "current": 70, "requested": 0,
        "limit": 60});
    assert_eq!(answer["violations"], json!([level]));
    let mut admin =
        v1::admin_service_client::AdminServiceClient::new(super::grpc::channel(&fixture).await);
    let update = v1::UpdateTenantRequest {
        id: "atlas".to_owned(),
        max_nodes: Some(v1::LimitChangeValue {
            change: Some(v1::limit_change_value::Change::Set(60)),
        }),
        ..Default::default()
    };
    let refused = admin
        .update_tenant(super::grpc::by(&fixture, "root", update))
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let problem = Problem::from_grpc(&refused).unwrap();
    assert_eq!(serde_json::to_value(problem).unwrap(), answer);
}

#[tokio::test]
async fn limit_changes_follow_roles() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    for (path, admin) in [("ocean", "alice"), ("ocean/deep", "bob")] {
        let request = ProjectRequest {
            path: path.to_owned(),
            limits: LimitsBody {
                max_nodes: Some(9),
                max_concurrent_allocations: None,
            }
            .into(),
            admins: vec![admin.to_owned()],
            ..ProjectRequest::default()
        };
        root.create_project(&request, None).await.unwrap();
    }
    let set = async |principal: &str, path: &str, nodes: u64| {
        let body = json!({"changes": [{"path": path, "max_nodes": nodes}]});
        ask(&fixture, principal, Method::PUT, "limits", body)
            .await
            .0
    };
    // The administrator of the parent may; that of the project itself and all other callers may not.
    assert_eq!(set("alice", "ocean/deep", 8).await, 200);
    assert_eq!(set("bob", "ocean/deep", 9).await, 403);
    assert_eq!(set("alice", "ocean", 10).await, 403);
    assert_eq!(set("op", "ocean/deep", 7).await, 403);
    // A tenant administrator sets the limits of its projects, not those of the tenant.
    assert_eq!(set("warden", "ocean/deep", 7).await, 200);
    assert_eq!(set("warden", "ocean", 1000).await, 403);
    let body = json!({"max_nodes": 1000});
    assert_eq!(
        ask(&fixture, "warden", Method::PUT, "tenants/ocean", body)
            .await
            .0,
        403
    );
    assert_eq!(set("root", "ocean", 10).await, 200);
}

/// Overcommitment concerns every tenant: an administrator of one tenant may not force limits, over REST or gRPC, though
/// it may set the same limits without force.
#[tokio::test]
async fn limits_are_forced_by_administrators_of_the_whole_cluster_only() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    for (path, nodes) in [("ocean", 9), ("ocean/deep", 5), ("ocean/deep/trench", 5)] {
        let request = super::projects::request(path, Some(nodes));
        root.create_project(&request, None).await.unwrap();
    }
    let before = fixture.store.revision();
    let batch =
        |force: bool| json!({"changes": [{"path": "ocean/deep", "max_nodes": 3}], "force": force});
    let (status, answer) = ask(&fixture, "warden", Method::PUT, "limits", batch(false)).await;
    assert_eq!((status, &answer["code"]), (409, &json!("limit_conflict")));
    let (status, answer) = ask(&fixture, "warden", Method::PUT, "limits", batch(true)).await;
    assert_eq!((status, &answer["code"]), (403, &json!("forbidden")));
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("concerns the whole cluster"), "{detail}");
    let request = v1::SetLimitsRequest {
        changes: vec![v1::LimitChange {
            path: "ocean/deep".to_owned(),
            max_nodes: Some(v1::LimitChangeValue {
                change: Some(v1::limit_change_value::Change::Set(3)),
            }),
            ..Default::default()
        }],
        force: true,
        ..Default::default()
    };
    let channel = super::grpc::channel(&fixture).await;
    let mut projects = v1::projects_client::ProjectsClient::new(channel);
    let refused = projects.set_limits(super::grpc::by(&fixture, "warden", request.clone()));
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let problem = Problem::from_grpc(&refused).unwrap();
    assert_eq!(serde_json::to_value(problem).unwrap(), answer);
    assert_eq!(fixture.store.revision(), before, "nothing was changed");

    let forced = projects.set_limits(super::grpc::by(&fixture, "root", request));
    forced.await.unwrap();
    let deep = root.project("ocean/deep").await.unwrap();
    assert_eq!((deep.limits.max_nodes, deep.overcommitted), (Some(3), true));
}

#[tokio::test]
async fn headroom_names_every_level_and_no_project_takes_its_place() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let room = root.headroom("atlas/physics/simulation").await.unwrap();
    assert_eq!((room.nodes, room.allocations), (Some(10), None));
    let levels: Vec<_> = room
        .levels
        .iter()
        .map(|level| level.path.as_str())
        .collect();
    assert_eq!(
        levels,
        ["atlas/physics/simulation", "atlas/physics", "atlas"]
    );
    let unknown = root.headroom("atlas/none").await.unwrap_err();
    assert!(matches!(unknown, ClientError::NotFound(_)), "{unknown:?}");
    let taken = super::projects::request("atlas/headroom", Some(1));
    let taken = root.create_project(&taken, None).await.unwrap_err();
    assert_eq!(taken.problem().unwrap().field.as_deref(), Some("path"));
    let hidden = fixture.client("diver").headroom("atlas").await.unwrap_err();
    assert!(matches!(hidden, ClientError::NotFound(_)), "{hidden:?}");
}

#[tokio::test]
async fn the_limits_of_the_cluster_are_set_left_alone_and_lifted() {
    let fixture = ApiFixture::furnished().await;
    let limits = "system/limits";
    let (_, answer) = ask(&fixture, "eye", Method::GET, limits, Value::Null).await;
    assert_eq!(
        answer,
        json!({"sensitive_pool_size": null, "limit_policy": "strict"})
    );
    let set = json!({"sensitive_pool_size": 32});
    assert_eq!(
        ask(&fixture, "op", Method::PUT, limits, set.clone())
            .await
            .0,
        403
    );
    assert_eq!(
        ask(&fixture, "warden", Method::PUT, limits, set.clone())
            .await
            .0,
        403
    );
    let (_, answer) = ask(&fixture, "root", Method::PUT, limits, set).await;
    assert_eq!(answer["sensitive_pool_size"], 32);
    let (_, answer) = ask(&fixture, "root", Method::PUT, limits, json!({})).await;
    assert_eq!(answer["sensitive_pool_size"], 32);
    let (status, answer) = ask(&fixture, "root", Method::PUT, limits, json!({"pool": 1})).await;
    assert_eq!((status, &answer["field"]), (400, &json!("pool")));
    let lift = json!({"sensitive_pool_size": null});
    let (_, answer) = ask(&fixture, "root", Method::PUT, limits, lift).await;
    assert_eq!(answer["sensitive_pool_size"], Value::Null);
    let policy = |name: &str| json!({"limit_policy": name});
    let place = "system/limit-policy";
    let (status, answer) = ask(&fixture, "root", Method::PUT, place, policy("loose")).await;
    assert_eq!((status, &answer["field"]), (400, &json!("limit_policy")));
    let (_, answer) = ask(&fixture, "root", Method::PUT, place, policy("flat")).await;
    assert_eq!(answer["limit_policy"], "flat");
    let over = super::projects::request("atlas/many", Some(1_000));
    fixture
        .client("root")
        .create_project(&over, None)
        .await
        .unwrap();
    let (status, answer) = ask(&fixture, "root", Method::PUT, place, policy("strict")).await;
    assert_eq!((status, &answer["code"]), (409, &json!("limit_conflict")));
}

/// A job that passed submission and no longer fits waits, shows the reason, and is not proposed again until there is
/// headroom at every level.
#[tokio::test]
async fn what_lost_its_room_waits_for_headroom_and_goes_on_when_there_is_some() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let id = fixture.submit("alice", "atlas/web", 2).await;
    let update = ProjectUpdate {
        max_nodes: Patch::Set(1),
        ..ProjectUpdate::default()
    };
    root.update_project("atlas/web", &update).await.unwrap();
    let lease = LeaseName::new("schedule.default").unwrap();
    let acquire = Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    };
    let leased = fixture.service_answer(acquire).unwrap();
    let lattice_quorum_types::Outcome::Leased { epoch, .. } = leased.outcome else {
        panic!("{leased:?}")
    };
    let fence = || Fence {
        lease: lease.clone(),
        epoch,
    };
    let vcluster = VclusterName::new("default").unwrap();
    let held = Lease::new(lease.clone(), "c1".to_owned());
    let mut schedule = Schedule::new(fixture.scheduler_parts(), held, vcluster);
    let report = schedule.reconcile(fence()).await;
    assert_eq!((report.proposed, report.waiting), (0, 1));
    let view = root.allocation(id).await.unwrap();
    println!("{view:#?}");
    assert_eq!(view.state, AllocationState::Pending.as_str());
    let reason = view.reason.unwrap();
    assert!(reason.contains("waiting for quota headroom"), "{reason}");
    assert!(
        reason.contains("project \"atlas/web\" max_nodes (current: 0, requested: 2, limit: 1)"),
        "{reason}"
    );
    let update = ProjectUpdate {
        max_nodes: Patch::Set(2),
        ..ProjectUpdate::default()
    };
    root.update_project("atlas/web", &update).await.unwrap();
    schedule.reconcile(fence()).await;
    let view = root.allocation(id).await.unwrap();
    assert!(!view.reason.unwrap_or_default().contains("quota"));
}

/// Refusal is the default; the request itself or the setting of the tenant lets the allocation wait.
#[tokio::test]
async fn submit_above_usage_waits_if_requested() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let request = TenantRequest {
        id: "physics".to_owned(),
        max_nodes: Patch::Set(4),
        ..TenantRequest::default()
    };
    let made = root.create_tenant(&request).await.unwrap();
    assert_eq!(made.on_limit, "reject");
    let runs = fixture.submit("alice", "physics", 2).await;
    fixture.assign(runs, &["gpu001", "gpu002"]).await;
    let submit = async |nodes: u32, on_limit: Option<&str>| {
        let mut body = serde_json::to_value(job("physics", nodes)).unwrap();
        if let Some(on_limit) = on_limit {
            body["on_limit"] = json!(on_limit);
        }
        ask(&fixture, "alice", Method::POST, "allocations", body).await
    };
    let refusal = json!(
        "allocation rejected: tenant \"physics\" would exceed max_nodes quota (current: 2, \
         requested: 3, limit: 4)"
    );
    let (status, answer) = submit(3, None).await;
    assert_eq!((status, &answer["detail"]), (409, &refusal));
    let (_, answer) = submit(3, Some("wait")).await;
    let waits = AllocationId(answer["id"].as_u64().unwrap());
    let view = root.allocation(waits).await.unwrap();
    assert_eq!(view.state, AllocationState::Pending.as_str());
    let usage = root.tenant("physics").await.unwrap().usage;
    assert_eq!((usage.nodes, usage.allocations), (2, 1));
    // The request is above the limit itself.
    let (status, answer) = submit(5, Some("wait")).await;
    assert_eq!((status, &answer["code"]), (409, &json!("limit_exceeded")));
    let level = json!({"path": "physics", "limit_name": "max_nodes", "current": 2, "requested": 5,
        "limit": 4});
    assert_eq!(answer["violations"], json!([level]));
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("could never start"), "{detail}");
    let (status, answer) = submit(3, Some("queue")).await;
    assert_eq!((status, &answer["field"]), (400, &json!("on_limit")));

    let channel = super::grpc::channel(&fixture).await;
    let mut allocations = v1::allocations_client::AllocationsClient::new(channel.clone());
    let message = |on_limit: &str| v1::SubmitRequest {
        on_limit: on_limit.to_owned(),
        ..super::grpc::submit("physics", 3)
    };
    let asked = super::grpc::by(&fixture, "alice", message(""));
    let refused = allocations.submit(asked).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(json!(refused.message()), refusal);
    let asked = super::grpc::by(&fixture, "alice", message("wait"));
    assert!(allocations.submit(asked).await.is_ok());
}

#[tokio::test]
async fn tenant_lets_its_submits_wait() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let request = TenantRequest {
        id: "ocean".to_owned(),
        max_nodes: Patch::Set(4),
        on_limit: Some("wait".to_owned()),
        ..TenantRequest::default()
    };
    let made = root.create_tenant(&request).await.unwrap();
    assert_eq!((made.on_limit.as_str(), made.max_nodes), ("wait", Some(4)));
    let runs = fixture.submit("alice", "ocean", 2).await;
    fixture.assign(runs, &["gpu001", "gpu002"]).await;
    fixture.submit("alice", "ocean", 3).await;
    let submit = async |on_limit: &str| {
        let mut body = serde_json::to_value(job("ocean", 3)).unwrap();
        body["on_limit"] = json!(on_limit);
        ask(&fixture, "alice", Method::POST, "allocations", body)
            .await
            .0
    };
    assert_eq!(submit("reject").await, 409, "the request overrides");
    let set = async |caller: &str, on_limit: &str| {
        let body = json!({"on_limit": on_limit});
        ask(&fixture, caller, Method::PUT, "tenants/ocean", body).await
    };
    for caller in ["alice", "warden", "op", "waldur"] {
        assert_eq!(set(caller, "reject").await.0, 403, "{caller}");
    }
    let (status, answer) = set("root", "queue").await;
    assert_eq!((status, &answer["field"]), (400, &json!("on_limit")));
    let (status, answer) = set("root", "reject").await;
    assert_eq!(
        (status, &answer["on_limit"], &answer["max_nodes"]),
        (200, &json!("reject"), &json!(4))
    );
    let refused = serde_json::to_value(job("ocean", 3)).unwrap();
    let (status, _) = ask(&fixture, "alice", Method::POST, "allocations", refused).await;
    assert_eq!(status, 409);

    let mut admin =
        v1::admin_service_client::AdminServiceClient::new(super::grpc::channel(&fixture).await);
    let update = v1::UpdateTenantRequest {
        id: "ocean".to_owned(),
        on_limit: "wait".to_owned(),
        ..Default::default()
    };
    let changed = admin.update_tenant(super::grpc::by(&fixture, "root", update));
    assert_eq!(changed.await.unwrap().into_inner().on_limit, "wait");
    let shown = root.tenants().await.unwrap();
    let shown: Vec<_> = shown
        .iter()
        .map(|tenant| (tenant.id.as_str(), tenant.on_limit.as_str()))
        .collect();
    assert_eq!(shown, [("atlas", "reject"), ("ocean", "wait")]);
}

/// Members of a graph wait in any case, so one that requests to be refused is a mistake.
#[tokio::test]
async fn member_of_a_graph_always_waits() {
    let fixture = ApiFixture::furnished().await;
    let graph = |on_limit: &str| {
        let mut member = serde_json::to_value(job("atlas/web", 2)).unwrap();
        member["name"] = json!("a");
        member["on_limit"] = json!(on_limit);
        json!({"members": [member]})
    };
    let (status, refusal) = ask(&fixture, "alice", Method::POST, "dags", graph("reject")).await;
    assert_eq!(
        (status, &refusal["field"]),
        (400, &json!("members.a.on_limit"))
    );
    let (_, answer) = ask(&fixture, "alice", Method::POST, "dags", graph("wait")).await;
    assert!(answer["id"].is_u64(), "{answer}");
}
