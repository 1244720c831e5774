//! Reservations.

use super::fixture::{ApiFixture, ask, job};
use lattice_client::{
    AllocationRequest, SubmitOptions,
    api::reservation::{ReservationRequest, ReservationView},
};
use lattice_quorum_types::{Revision, allocation::RankExit};
use reqwest::Method;
use serde_json::{Value, json};

fn request(body: Value) -> ReservationRequest {
    serde_json::from_value(body).unwrap()
}

#[tokio::test]
async fn nodes_are_kept_changed_and_let_go() {
    let fixture = ApiFixture::furnished().await;
    let op = fixture.client("op");
    let course = request(
        json!({"nodes": "gpu[001-004]", "duration": "2h", "users": ["alice"],
        "projects": ["atlas/web"], "reason": "course", "expected_revision": 0}),
    );
    let made = op.set_reservation("course", &course, None).await.unwrap();
    assert_eq!((made.nodes.as_str(), made.node_count), ("gpu[001-004]", 4));
    assert!(made.active && made.until.is_some());
    assert_eq!((made.by.as_str(), made.users.len()), ("op", 1));
    // The reservation exists already.
    let again = op
        .set_reservation("course", &course, None)
        .await
        .unwrap_err();
    let problem = again.problem().unwrap();
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (409, "reservation_changed")
    );
    assert_eq!(problem.field.as_deref(), Some("expected_revision"));
    let mut larger = course.clone();
    larger.groups = vec!["dragonfly-0".to_owned()];
    larger.from = Some("now+1hour".to_owned());
    larger.expected_revision = Some(made.revision);
    let changed = op.set_reservation("course", &larger, None).await.unwrap();
    assert!(changed.revision > made.revision && !changed.active);
    // gpu004, gpu008, … gpu024 are in that group.
    assert_eq!(changed.node_count, 9);
    assert_eq!(op.reservation("course").await.unwrap(), changed);
    assert_eq!(op.reservations().await.unwrap(), [changed]);
    op.delete_reservation("course", None).await.unwrap();
    assert!(op.reservations().await.unwrap().is_empty());
    for error in [
        op.reservation("course").await.map(drop).unwrap_err(),
        op.delete_reservation("course", None)
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(error.problem().unwrap().code, "unknown_reservation");
    }
}

#[tokio::test]
async fn hidden_objects_look_absent() {
    let fixture = ApiFixture::furnished().await;
    let course = request(json!({"nodes": "gpu001", "users": ["alice", "bob"],
        "projects": ["atlas/web"], "reason": "course"}));
    let op = fixture.client("op");
    op.set_reservation("course", &course, None).await.unwrap();
    let seen = fixture.client("alice").reservation("course").await.unwrap();
    assert_eq!((seen.users, seen.usable), (vec!["alice".to_owned()], true));
    assert_eq!(seen.projects, ["atlas/web"]);
    let seen = fixture.client("diver").reservation("course").await.unwrap();
    assert_eq!((seen.projects.len(), seen.usable), (0, false));
}

#[tokio::test]
async fn lists_later_conflicts() {
    let fixture = ApiFixture::furnished().await;
    let submit = |project: &str, walltime: Option<&str>| {
        let request = AllocationRequest {
            walltime: walltime.map(ToOwned::to_owned),
            ..job(project, 1)
        };
        let alice = fixture.client("alice");
        async move {
            let submitted = alice.submit(&request, SubmitOptions::default()).await;
            submitted.unwrap().id.unwrap()
        }
    };
    let short = submit("atlas/web", Some("30m")).await;
    let long = submit("atlas/web", Some("2h")).await;
    let endless = submit("atlas/web", None).await;
    let meant = submit("atlas/physics", None).await;
    let elsewhere = submit("atlas/web", None).await;
    for (id, node) in [
        (short, "gpu001"),
        (long, "gpu002"),
        (endless, "gpu003"),
        (meant, "gpu004"),
        (elsewhere, "gpu005"),
    ] {
        fixture.assign(id, &[node]).await;
        fixture.begins(id, node).await;
    }
    let conflict_rows = |made: &ReservationView| {
        let conflicts = made.conflicts.iter();
        conflicts.map(|one| one.allocation).collect::<Vec<_>>()
    };
    let op = fixture.client("op");
    let mut window = request(
        json!({"nodes": "gpu[001-004]", "from": "now+1hour", "duration": "4h",
        "projects": ["atlas/physics"], "reason": "BIOS"}),
    );
    let made = op.set_reservation("firmware", &window, None).await.unwrap();
    assert_eq!(conflict_rows(&made), [long, endless]);
    assert_eq!(made.conflicts[0].nodes, "gpu002");
    let until = made.conflicts.iter().map(|one| one.until.is_some());
    assert_eq!(until.collect::<Vec<_>>(), [true, false]);
    // The reservation has begun, so an allocation that would have ended before is a conflict as well.
    window.from = None;
    let made = op.set_reservation("firmware", &window, None).await.unwrap();
    assert_eq!(conflict_rows(&made), [short, long, endless]);
    // A caller without access to these allocations does not see them.
    let seen = fixture
        .client("diver")
        .reservation("firmware")
        .await
        .unwrap();
    assert_eq!(seen.conflicts, []);
    fixture
        .ends(long, "gpu002", RankExit::Exited { code: 0 })
        .await;
    let seen = op.reservation("firmware").await.unwrap();
    assert_eq!(conflict_rows(&seen), [short, endless]);
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_its_field() {
    let fixture = ApiFixture::furnished().await;
    for (change, field) in [
        (json!({"nodes": null}), "nodes"),
        (json!({"nodes": "gpu[1-"}), "nodes"),
        (json!({"nodes": "gpu999"}), "nodes"),
        (json!({"groups": ["dragonfly-9"]}), "groups"),
        (json!({"from": "teatime"}), "from"),
        (json!({"until": "2020-01-01"}), "until"),
        (json!({"until": "tomorrow", "duration": "1h"}), "duration"),
        (json!({"duration": "-1h"}), "duration"),
        (json!({"projects": ["no//where"]}), "projects"),
        (json!({"projects": ["nowhere"]}), "projects"),
        (json!({"reason": " "}), "reason"),
        (json!({"node": "gpu001"}), "node"),
    ] {
        let mut body = json!({"nodes": "gpu001", "reason": "why"});
        let change = change.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(change);
        let (status, problem) =
            ask(&fixture, "op", Method::PUT, "reservations/r", body.clone()).await;
        assert!((400..500).contains(&status), "{body}: {status}");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    let (status, problem) = ask(
        &fixture,
        "op",
        Method::PUT,
        "reservations/a%20b",
        json!({"nodes": "gpu001", "reason": "why"}),
    )
    .await;
    assert_eq!((status, &problem["field"]), (400, &json!("name")));
    assert!(
        fixture
            .client("op")
            .reservations()
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn work_names_the_reservation_that_it_uses() {
    let fixture = ApiFixture::furnished().await;
    let course = request(json!({"nodes": "gpu[001-002]", "users": ["alice"], "reason": "course"}));
    let made = fixture
        .client("op")
        .set_reservation("course", &course, None)
        .await
        .unwrap();
    assert!(made.revision > Revision(0));
    let inside = |nodes| AllocationRequest {
        reservation: Some("course".to_owned()),
        ..job("atlas/web", nodes)
    };
    let submit = |caller: &str, request| {
        let client = fixture.client(caller);
        async move { client.submit(&request, SubmitOptions::default()).await }
    };
    let id = submit("alice", inside(2)).await.unwrap().id.unwrap();
    let shown = fixture.client("alice").allocation(id).await.unwrap();
    assert_eq!(shown.reservation.as_deref(), Some("course"));
    for (caller, nodes, text) in [
        ("bob", 1, "is not open to bob"),
        ("alice", 3, "has 2 nodes"),
    ] {
        let error = submit(caller, inside(nodes)).await.unwrap_err();
        let problem = error.problem().unwrap();
        assert_eq!(problem.field.as_deref(), Some("reservation"));
        assert!(problem.detail.contains(text), "{}", problem.detail);
    }
}
