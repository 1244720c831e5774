//! vClusters over REST and gRPC: their tenants, and the ownership of nodes.

use super::fixture::{ApiFixture, ask, job};
use lattice_api::{
    Problem,
    scheduler::{AllReservations, ReservationsView},
    v1,
    vcluster::{VclusterNodesRequest, VclusterRequest},
};
use lattice_client::{ClientError, SubmitOptions};
use lattice_engine::tasks::{lease::Lease, schedule::Schedule};
use lattice_quorum_types::{
    Command, NodeId, Outcome, VclusterName,
    command::Fence,
    id::LeaseName,
    scheduler::{ScalingPatch, SchedulerPatch, SettingPatch},
};
use reqwest::Method;
use serde_json::{Value, json};
use tonic::{Code, Status, transport::Channel};
use v1::admin_service_client::AdminServiceClient;

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
    let (status, told) = ask(&fixture, "root", Method::PUT, "vclusters/night", body).await;
    assert_eq!((status, &told["tenants"]), (200, &json!(["atlas"])));
    assert_eq!(
        (&told["description"], &told["version"]),
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

    let (status, told) = ask(
        &fixture,
        "root",
        Method::DELETE,
        "vclusters/night",
        Value::Null,
    )
    .await;
    assert_eq!((status, &told["code"]), (409, &json!("vcluster_in_use")));
    assert!(told["detail"].as_str().unwrap().contains("gpu[003-004]"));
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
    let (status, told) = ask(
        &fixture,
        "root",
        Method::PUT,
        "vclusters/mll",
        weight.clone(),
    )
    .await;
    assert_eq!((status, &told["code"]), (404, &json!("unknown_vcluster")));
    let detail = told["detail"].as_str().unwrap();
    assert!(
        detail.contains("`lattice admin vcluster set mll`"),
        "{detail}"
    );
    assert_eq!(root.vclusters().await.unwrap().len(), 1);

    let (status, told) = ask(&fixture, "root", Method::PUT, "vclusters/default", weight).await;
    assert_eq!((status, &told["version"]), (200, &json!(0)));
    assert_eq!(told["scheduler"]["weights"]["energy"], json!(0.1));
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
        let (is, told) = ask(&fixture, "root", method, path, body).await;
        assert_eq!((is, &told["field"]), (status, &field), "{path}");
    }
    let taken = json!({"nodes": "gpu[001-003]"});
    let (status, told) = ask(
        &fixture,
        "root",
        Method::POST,
        "vclusters/right/nodes",
        taken.clone(),
    )
    .await;
    assert_eq!((status, &told["code"]), (409, &json!("ownership_conflict")));
    let detail = told["detail"].as_str().unwrap();
    for node in ["gpu001", "gpu002"] {
        let part = format!("node {node} belongs to vCluster \"left\"");
        assert!(detail.contains(&part), "{detail}");
    }
    assert!(!detail.contains("gpu003"), "{detail}");
    assert_eq!(fixture.store.revision(), before, "nothing was changed");

    // gRPC returns the same.
    let mut admin = AdminServiceClient::new(super::grpc::channel(&fixture).await);
    let request = v1::AssignVclusterRequest {
        name: "right".to_owned(),
        nodes: "gpu[001-003]".to_owned(),
        ..Default::default()
    };
    let refused = admin.assign_vcluster(super::grpc::by(&fixture, "root", request));
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let problem = Problem::from_grpc(&refused).unwrap();
    assert_eq!(serde_json::to_value(problem).unwrap(), told);
}

#[tokio::test]
async fn both_faces_tell_the_same_and_no_tenant_of_another() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let ocean = super::projects::request("ocean", Some(9));
    root.create_project(&ocean, None).await.unwrap();
    let both = for_tenants(&["atlas", "ocean"]);
    root.set_vcluster("night", &both, None).await.unwrap();
    root.assign_vcluster("night", &nodes("gpu001", None), None)
        .await
        .unwrap();
    lend(&fixture, "gpu002", "night").await;

    let mut admin = AdminServiceClient::new(super::grpc::channel(&fixture).await);
    for (who, tenants) in [("eye", &["atlas", "ocean"][..]), ("diver", &["ocean"])] {
        let client = fixture.client(who);
        let one = client.vcluster("night").await.unwrap();
        assert_eq!(one.tenants.as_ref().unwrap(), tenants);
        assert_eq!(
            (one.nodes.as_str(), one.borrowed.as_str()),
            ("gpu001", "gpu002")
        );
        let name = "night".to_owned();
        let asked = super::grpc::by(&fixture, who, v1::GetVclusterRequest { name });
        let told = admin.get_vcluster(asked).await.unwrap().into_inner();
        assert_eq!(told, v1::Vcluster::from(one));
        let list = client.vclusters().await.unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].lent, "gpu002", "of default");
        let request = v1::ListVclustersRequest {
            limit: 1,
            cursor: list[0].name.clone(),
        };
        let page = admin.list_vclusters(super::grpc::by(&fixture, who, request));
        let page = page.await.unwrap().into_inner();
        assert_eq!(page.items, [v1::Vcluster::from(list[1].clone())]);
        assert_eq!(page.next_cursor, None);
    }

    // A caller that may see none of its tenants is informed whether the vCluster is usable.
    for (tenants, usable) in [(&["atlas"][..], true), (&[], false)] {
        let request = for_tenants(tenants);
        root.set_vcluster("night", &request, None).await.unwrap();
        let told = fixture.client("diver").vcluster("night").await.unwrap();
        assert_eq!((told.tenants, told.usable), (Some(vec![]), usable));
    }

    // gRPC sets the same as REST.
    let request = v1::SetVclusterRequest {
        name: "night".to_owned(),
        tenants: Some(v1::TenantsChange {
            all: true,
            names: Vec::new(),
        }),
        ..Default::default()
    };
    let set = admin.set_vcluster(super::grpc::by(&fixture, "root", request));
    let set = set.await.unwrap().into_inner();
    assert!(set.all_tenants && set.tenants.is_empty(), "{set:?}");
    let all = v1::Reservations::from(ReservationsView::All(AllReservations::All));
    let scheduler = v1::SchedulerChange {
        profile: Some("interactive".to_owned()),
        reservations: Some(all),
        checkpoint_gb_s: Some(200.0),
        ..Default::default()
    };
    let scheduler = schedule(&fixture, &mut admin, scheduler).await.unwrap();
    assert_eq!(scheduler.weights.unwrap().wait_time, 0.3);
    assert_eq!(scheduler.reservations, Some(all));
    assert_eq!(scheduler.checkpoint_gb_s, Some(200.0));
    let taken_back = v1::SchedulerChange {
        no_checkpoint_gb_s: true,
        ..Default::default()
    };
    let scheduler = schedule(&fixture, &mut admin, taken_back).await.unwrap();
    assert_eq!(scheduler.checkpoint_gb_s, None);
    for (field, change) in [
        (
            "scheduler.reservations",
            v1::SchedulerChange {
                reservations: Some(v1::Reservations::default()),
                ..Default::default()
            },
        ),
        (
            "scheduler.checkpoint_gb_s",
            v1::SchedulerChange {
                checkpoint_gb_s: Some(1.0),
                no_checkpoint_gb_s: true,
                ..Default::default()
            },
        ),
    ] {
        let refused = schedule(&fixture, &mut admin, change).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let problem = Problem::from_grpc(&refused).unwrap();
        assert_eq!(problem.field.as_deref(), Some(field));
    }
    let kept = root.vcluster("night").await.unwrap().scheduler;
    let all = ReservationsView::All(AllReservations::All);
    assert_eq!(kept.reservations, all, "what is refused changes nothing");
    let request = v1::DeleteVclusterRequest {
        name: "night".to_owned(),
        ..Default::default()
    };
    let refused = admin.delete_vcluster(super::grpc::by(&fixture, "root", request));
    assert_eq!(refused.await.unwrap_err().code(), Code::FailedPrecondition);
}

/// Changes the scheduler of `night`.
async fn schedule(
    fixture: &ApiFixture,
    admin: &mut AdminServiceClient<Channel>,
    change: v1::SchedulerChange,
) -> Result<v1::Scheduler, Status> {
    let request = v1::SetVclusterRequest {
        name: "night".to_owned(),
        scheduler: Some(change),
        ..Default::default()
    };
    let set = admin.set_vcluster(super::grpc::by(fixture, "root", request));
    Ok(set.await?.into_inner().scheduler.unwrap())
}

/// Lends a node, as the sharing reconciler does.
async fn lend(fixture: &ApiFixture, node: &str, to: &str) {
    let lease = LeaseName::new("borrow").unwrap();
    let acquired = fixture.service_answer(Command::AcquireLease {
        lease: lease.clone(),
        holder: "c1".to_owned(),
        ttl_ms: 60_000,
    });
    let Outcome::Leased { epoch, .. } = acquired.unwrap().outcome else {
        panic!("not leased");
    };
    fixture.settled().await;
    let node = NodeId::new(node).unwrap();
    let view = fixture.core.view();
    let record = view.node(&node).unwrap().record.clone().unwrap();
    let command = Command::LendNode {
        node,
        to: VclusterName::new(to).unwrap(),
        version: record.version,
    };
    fixture.fenced(Fence { lease, epoch }, command);
    fixture.settled().await;
}

/// Two callers that change different weights concurrently both succeed; the next plan orders the queue by them.
#[tokio::test]
async fn weights_are_changed_one_by_one_and_shown_with_the_reason() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let shown = root.vcluster("default").await.unwrap().scheduler;
    assert_eq!((shown.weights.topology, shown.weights_sum), (0.15, 1.0));
    let body = json!({"scheduler": {"profile": "ml-training", "reservations": 64}});
    let (status, told) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
    assert_eq!(status, 200);
    assert_eq!(told["scheduler"]["weights"]["topology"], json!(0.25));
    let weight = |name: &str, weight: f64| json!({"scheduler": {"weights": {name: weight}}});
    let (energy, class) = (weight("energy", 0.4), weight("priority", 0.7));
    let (one, other) = tokio::join!(
        ask(&fixture, "root", Method::PUT, "vclusters/default", energy),
        ask(&fixture, "root", Method::PUT, "vclusters/default", class),
    );
    assert_eq!((one.0, other.0), (200, 200));
    let now = root.vcluster("default").await.unwrap().scheduler;
    assert_eq!((now.weights.energy, now.weights.priority), (0.4, 0.7));
    assert_eq!(now.weights.topology, 0.25, "as the profile has it");
    assert_eq!(now.reservations, ReservationsView::First(64));
    let (status, _) = ask(
        &fixture,
        "alice",
        Method::PUT,
        "vclusters/default",
        json!({}),
    )
    .await;
    assert_eq!(status, 403);
}

/// REST and gRPC accept and show the same settings; a setting stays when others are set later.
#[tokio::test]
async fn how_work_is_moved_is_set_shown_and_taken_back() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let usual = root.vcluster("default").await.unwrap().movement;
    assert_eq!((usual.set.len(), usual.unread.len()), (0, 0));
    assert_eq!(usual.preemption.near_completion_threshold_s, 300.0);
    let body = json!({"movement": {
        "preemption": {"patience_s": 0.25, "max_victims": 2},
        "sharing": {"lending_limit": 24, "return_grace_s": 1.5},
    }});
    let (status, told) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
    assert_eq!((status, &told["version"]), (200, &json!(0)));
    assert_eq!(told["movement"]["preemption"]["patience_s"], json!(0.25));
    let set = [
        "preemption.max_victims",
        "preemption.patience_s",
        "sharing.lending_limit",
    ];
    for name in set {
        let told = told["movement"]["set"].as_array().unwrap();
        assert!(told.contains(&json!(name)), "{name}: {told:?}");
    }
    // The schedulers use these settings.
    fixture.settled().await;
    let name = VclusterName::new("default").unwrap();
    let rules = fixture.core.view().movement_of(&name);
    assert_eq!(
        (
            rules.preemption.patience_ms,
            rules.preemption.policy.max_victims
        ),
        (250, 2)
    );
    assert_eq!(rules.lend.return_grace_ms, 1500);

    let mut admin = AdminServiceClient::new(super::grpc::channel(&fixture).await);
    let request = v1::SetVclusterRequest {
        name: "default".to_owned(),
        movement: Some(v1::MovementChange {
            checkpoint: Some(v1::CheckpointSettingsChange {
                timeout_s: Some(2.5),
                ..Default::default()
            }),
            reset: set.map(str::to_owned).to_vec(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let set = admin.set_vcluster(super::grpc::by(&fixture, "root", request));
    let set = set.await.unwrap().into_inner();
    let shown = root.vcluster("default").await.unwrap();
    assert_eq!(v1::Vcluster::from(shown.clone()), set);
    let movement = shown.movement;
    assert_eq!(movement.checkpoint.timeout_s, 2.5);
    assert_eq!(
        movement.set,
        ["sharing.return_grace_s", "checkpoint.timeout_s"]
    );
    assert_eq!(movement.preemption, usual.preemption);
    assert_eq!(movement.sharing.lending_limit, None);
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused_by_name_on_both_faces() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let before = fixture.store.revision();
    for (group, field, value, words) in [
        (
            "sharing",
            "lending_limit",
            json!(25),
            "exceeds the 24 nodes of the vCluster; set at most 24",
        ),
        (
            "sharing",
            "return_grace_s",
            json!(-1),
            "-1 s is out of range; it must be from 0",
        ),
        ("sharing", "return_grace_s", json!("soon"), "invalid type"),
        (
            "sharing",
            "lend_limit",
            json!(2),
            "did you mean `lending_limit`?",
        ),
        (
            "preemption",
            "max_victims",
            json!(4),
            "it must be from 1 to 3",
        ),
        ("preemption", "max_victims", json!(1.5), "expected u32"),
        (
            "checkpoint",
            "min_interval_s",
            json!(30_000),
            "at most max_interval_s (21600000)",
        ),
        ("checkpoint", "timeout_s", json!(100_000), "to 86400000 ms"),
        ("scaling", "threshold", json!(1), "from 1e-6 to 0.999999"),
        ("scaling", "evaluation_s", json!(0), "from 1 to"),
    ] {
        let body = json!({"movement": {group: {field: value}}});
        let (status, told) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
        assert_eq!((status, &told["code"]), (400, &json!("invalid")));
        assert_eq!(told["field"], json!(format!("movement.{group}.{field}")));
        let detail = told["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
    }
    // gRPC, with values that JSON cannot express, and an unknown name.
    let mut admin = AdminServiceClient::new(super::grpc::channel(&fixture).await);
    for (movement, field, words) in [
        (
            v1::MovementChange {
                scaling: Some(v1::ScalingChange {
                    threshold: Some(f64::NAN),
                    ..Default::default()
                }),
                ..Default::default()
            },
            "movement.scaling.threshold",
            "a finite number",
        ),
        (
            v1::MovementChange {
                reset: vec!["sharing.return_grace".to_owned()],
                ..Default::default()
            },
            "movement.sharing.return_grace",
            "did you mean sharing.return_grace_s?",
        ),
    ] {
        let request = v1::SetVclusterRequest {
            name: "default".to_owned(),
            movement: Some(movement),
            ..Default::default()
        };
        let refused = admin.set_vcluster(super::grpc::by(&fixture, "root", request));
        let refused = refused.await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let problem = Problem::from_grpc(&refused).unwrap();
        assert_eq!(problem.field.as_deref(), Some(field));
        let detail = problem.detail.clone();
        assert!(detail.contains(words), "{detail}");
    }
    assert_eq!(fixture.store.revision(), before, "nothing was changed");

    // Nodes for sensitive jobs are not lent, whichever setting comes last.
    let sensitive = json!({"scheduler": {"profile": "sensitive"}});
    let lends = json!({"movement": {"sharing": {"allow_lending": true}}});
    for (first, second) in [(&sensitive, &lends), (&lends, &sensitive)] {
        let request = VclusterRequest::default();
        root.set_vcluster("ward", &request, None).await.unwrap();
        let (status, _) = ask(
            &fixture,
            "root",
            Method::PUT,
            "vclusters/ward",
            first.clone(),
        )
        .await;
        assert_eq!(status, 200);
        let (status, told) = ask(
            &fixture,
            "root",
            Method::PUT,
            "vclusters/ward",
            second.clone(),
        )
        .await;
        assert_eq!(status, 400);
        assert_eq!(told["field"], json!("movement.sharing.allow_lending"));
        root.delete_vcluster("ward", None, None).await.unwrap();
    }
    let request = serde_json::from_value(sensitive).unwrap();
    root.set_vcluster("ward", &VclusterRequest::default(), None)
        .await
        .unwrap();
    let ward = root.set_vcluster("ward", &request, None).await.unwrap();
    assert!(!ward.movement.sharing.allow_lending);
    assert_eq!(ward.scheduler.profile.as_deref(), Some("sensitive"));
}

/// Concurrent requests may store settings that do not fit together: the view reports them, and defaults apply.
#[tokio::test]
async fn reports_stored_settings_that_do_not_fit() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let settings = SchedulerPatch {
        scaling: ScalingPatch {
            evaluate_ms: SettingPatch::Set(1),
            ..ScalingPatch::default()
        },
        ..SchedulerPatch::default()
    };
    let stored = Command::SetScheduler {
        vcluster: VclusterName::new("default").unwrap(),
        change: Box::default(),
        settings: Box::new(settings),
        expected_version: None,
    };
    fixture
        .store
        .apply(&super::fixture::admin_envelope(stored))
        .unwrap();
    fixture.settled().await;
    let movement = root.vcluster("default").await.unwrap().movement;
    assert_eq!(movement.scaling.evaluation_s, 60.0);
    assert_eq!(movement.set, [""; 0]);
    assert_eq!(
        movement.unread,
        [
            "movement.scaling.up_window_s: it is 120000 ms; it must be at most 1440 times \
             evaluation_s (1440)"
        ]
    );
    // A change of another group is checked with it, and one that makes it fit is accepted.
    let body =
        json!({"movement": {"preemption": {"patience_s": 5}, "scaling": {"evaluation_s": null}}});
    let (status, changed) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
    assert_eq!((status, &changed["movement"]["unread"]), (200, &json!([])));
}
