//! Settings of a vCluster over REST and gRPC: weights and movement of allocations.

use super::super::{
    fixture::{ApiFixture, admin_envelope, ask},
    grpc,
};
use lattice_api::{Problem, scheduler::ReservationsView, v1, vcluster::VclusterRequest};
use lattice_quorum_types::{
    Command, VclusterName,
    scheduler::{ScalingPatch, SchedulerPatch, SettingPatch},
};
use reqwest::Method;
use serde_json::json;
use tonic::Code;
use v1::admin_service_client::AdminServiceClient;

/// Two callers that change different weights concurrently both succeed; the next plan orders the queue by them.
#[tokio::test]
async fn weights_are_changed_one_by_one_and_shown_with_the_reason() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let shown = root.vcluster("default").await.unwrap().scheduler;
    assert_eq!((shown.weights.topology, shown.weights_sum), (0.15, 1.0));
    let body = json!({"scheduler": {"profile": "ml-training", "reservations": 64}});
    let (status, answer) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
    assert_eq!(status, 200);
    assert_eq!(answer["scheduler"]["weights"]["topology"], json!(0.25));
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
    let (status, answer) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
    assert_eq!((status, &answer["version"]), (200, &json!(0)));
    assert_eq!(answer["movement"]["preemption"]["patience_s"], json!(0.25));
    let set = [
        "preemption.max_victims",
        "preemption.patience_s",
        "sharing.lending_limit",
    ];
    for name in set {
        let set_names = answer["movement"]["set"].as_array().unwrap();
        assert!(set_names.contains(&json!(name)), "{name}: {set_names:?}");
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

    let mut admin = AdminServiceClient::new(grpc::channel(&fixture).await);
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
    let set = admin.set_vcluster(grpc::by(&fixture, "root", request));
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
        let (status, answer) = ask(&fixture, "root", Method::PUT, "vclusters/default", body).await;
        assert_eq!((status, &answer["code"]), (400, &json!("invalid")));
        assert_eq!(answer["field"], json!(format!("movement.{group}.{field}")));
        let detail = answer["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
    }
    // gRPC, with values that JSON cannot express, and an unknown name.
    let mut admin = AdminServiceClient::new(grpc::channel(&fixture).await);
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
        let refused = admin.set_vcluster(grpc::by(&fixture, "root", request));
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
        let (status, answer) = ask(
            &fixture,
            "root",
            Method::PUT,
            "vclusters/ward",
            second.clone(),
        )
        .await;
        assert_eq!(status, 400);
        assert_eq!(answer["field"], json!("movement.sharing.allow_lending"));
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
    fixture.store.apply(&admin_envelope(stored)).unwrap();
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
