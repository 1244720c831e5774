//! Answers to orders of customers by type of offering, and requests at which Waldur fails.

use crate::{
    common::{BEGIN, HOUR, path, vcluster},
    waldur::{SyncFixture, id},
};
use lattice_fake_waldur::{Fault, OfferingSpec, Role, Rule, Version};
use lattice_quorum_types::Command;
use lattice_waldur::cluster::AccountedCluster as _;
use serde_json::{Value, json};
use std::fs;

/// A fixture with one resource of `physics` in an offering of this type.
async fn fixture(spec: OfferingSpec) -> SyncFixture {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let spec = spec
        .usage("gpu_hours", "0.25")
        .usage("node_hours", "1")
        .limit("max_nodes");
    let offering = fixture.waldur.add_offering(&spec).unwrap().uuid;
    fixture.settings.offerings = [(vcluster("batch"), offering)].into();
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    fixture
}

/// Orders this number of nodes, and returns the order's UUID.
fn order_nodes(fixture: &SyncFixture, nodes: u64) -> String {
    let made = fixture.waldur.snapshot();
    let resource = made.resources[0]["uuid"].as_str().unwrap();
    let target = format!("/api/marketplace-resources/{resource}/update_limits/");
    let body = json!({"limits": {"max_nodes": nodes}});
    let (status, made) = fixture.waldur.request_as_admin("POST", &target, &body);
    assert_eq!(status, 200, "{made}");
    made["order_uuid"].as_str().unwrap().to_owned()
}

fn order(fixture: &SyncFixture, uuid: &str) -> Value {
    let target = format!("/api/marketplace-orders/{uuid}/");
    fixture
        .waldur
        .request_as_admin("GET", &target, &json!({}))
        .1
}

fn resource_state(fixture: &SyncFixture) -> Value {
    fixture.waldur.snapshot().resources[0]["state"].clone()
}

/// Last parts of the paths of all POST requests, which are cleared.
fn posts(fixture: &SyncFixture) -> Vec<String> {
    let requests = fixture.waldur.requests();
    fixture.waldur.clear_requests();
    let posts = requests.iter().filter(|one| one.method == "POST");
    posts
        .map(|one| {
            one.target
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[tokio::test]
async fn each_type_of_offering_gets_the_calls_that_it_knows() {
    for (spec, accepts, refuses) in [
        (
            OfferingSpec::basic("batch"),
            &["approve_by_provider"][..],
            &["reject_by_provider"][..],
        ),
        (
            OfferingSpec::slurm("batch"),
            &[
                "set_state",
                "approve_by_provider",
                "set_state_done",
                "set_state",
            ],
            &["set_state_erred", "reject_by_provider"],
        ),
    ] {
        let mut fixture = fixture(spec).await;
        posts(&fixture);
        let accepted = order_nodes(&fixture, 70);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
        assert_eq!(order(&fixture, &accepted)["state"], "done");
        assert_eq!(fixture.world.max_nodes("physics"), Some(70));
        assert_eq!(posts(&fixture), accepts);
        // A project of physics may use 50 nodes.
        let refused = order_nodes(&fixture, 20);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
        let shown = order(&fixture, &refused);
        assert_eq!(shown["state"], "rejected");
        assert_eq!(posts(&fixture), refuses);
        let has_reason = shown["error_message"].as_str().unwrap().contains("50");
        assert_eq!(has_reason, refuses.len() == 2, "{shown}");
        assert_eq!(resource_state(&fixture), "OK");
    }
}

/// The reason makes the resource Erred until the refusal. A refusal that is not permitted must not leave it so: its usage
/// would not be billed.
#[tokio::test]
async fn a_refusal_that_is_not_permitted_leaves_the_resource_ok() {
    let mut fixture = fixture(OfferingSpec::slurm("batch")).await;
    let token = fixture.waldur.add_user("site", Role::Provider);
    let provider = fixture.waldur.snapshot().offerings[0]["customer_uuid"].clone();
    let rights = ["RESOURCE.SET_USAGE", "ORDER.APPROVE"];
    assert!(
        fixture
            .waldur
            .grant(provider.as_str().unwrap(), "site", &rights)
    );
    fs::write(fixture.folder.path().join("token"), token).unwrap();
    fixture.succeeded(true);
    order_nodes(&fixture, 20);
    fixture.round().await;
    assert_eq!(resource_state(&fixture), "OK");
    fixture.world.ran("physics", "batch", 1, HOUR);
    assert_eq!(fixture.round().await.parked.len(), 0);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// A refusal that is interrupted after its reason is refused again: an Erred resource counts with the ordered limit.
#[tokio::test]
async fn an_interrupted_refusal_is_repeated() {
    let mut fixture = fixture(OfferingSpec::slurm("batch")).await;
    let refused = order_nodes(&fixture, 20);
    fixture.waldur.add_fault(
        Rule::new(
            "/api/marketplace-orders/*/reject_by_provider/",
            Fault::status(503),
        )
        .times(1),
    );
    assert!(fixture.round().await.failure.is_some());
    assert_eq!(resource_state(&fixture), "Erred");
    fixture.wait(10 * 60_000);
    fixture.round().await;
    assert_eq!(order(&fixture, &refused)["state"], "rejected");
    assert_eq!(fixture.world.max_nodes("physics"), Some(100));
    assert_eq!(resource_state(&fixture), "OK");
}

/// Waldur answers some requests with status 500 for ever. Each is set aside, and the round continues.
#[tokio::test]
async fn a_request_at_which_waldur_fails_stops_no_round() {
    for path_of_fault in [
        "/api/marketplace-orders/",
        "/api/marketplace-orders/*/approve_by_provider/",
        "/api/marketplace-orders/*/set_state_done/",
        "/api/marketplace-provider-resources/*/set_backend_id/",
        "/api/marketplace-provider-resources/*/terminate/",
        "/api/marketplace-component-usages/set_usage/",
        "/api/projects/",
    ] {
        let mut fixture = fixture(OfferingSpec::slurm("batch")).await;
        fixture.world.project("physics/old", 1);
        fixture.world.ran("physics/old", "batch", 1, HOUR);
        fixture.round().await;
        let deleted = path("physics/old");
        fixture
            .world
            .admin(Command::DeleteProject { path: deleted });
        fixture.world.ran("bio", "batch", 1, HOUR);
        fixture.waldur.add_fault(
            Rule::new(path_of_fault, Fault::status(500))
                .method("POST")
                .times(1),
        );
        let status = fixture.round().await;
        assert_eq!(status.failure, None, "{path_of_fault}");
        let reasons: Vec<_> = status.parked.values().map(|one| &one.reason).collect();
        assert_eq!(reasons.len(), 1, "{path_of_fault}: {reasons:?}");
        assert!(
            reasons[0].contains("status 500"),
            "{path_of_fault}: {reasons:?}"
        );
        let head = fixture.world.head();
        assert_eq!(head.acknowledged, head.last, "{path_of_fault}");
        fixture.wait(16 * 60_000);
        let status = fixture.round().await;
        assert_eq!(
            (status.failure, status.parked.len()),
            (None, 0),
            "{path_of_fault}"
        );
        let bio = fixture.totals("2026-11")[&id("bio@batch", "node_hours")];
        assert_eq!(bio, 100, "{path_of_fault}");
    }
}

/// An offering that cannot be used is one line, whatever the number of its projects; the other offerings continue.
#[tokio::test]
async fn an_unusable_offering_is_one_line() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let spec = OfferingSpec::slurm("batch")
        .usage("gpu_hours", "0.25")
        .usage("node_hours", "1")
        .archived_plan("old", &[]);
    let offering = fixture.waldur.add_offering(&spec).unwrap().uuid;
    fixture.settings.offerings = [(vcluster("batch"), offering)].into();
    fixture.succeeded(true);
    for project in ["physics", "physics/higgs", "bio"] {
        fixture.world.ran(project, "batch", 1, HOUR);
    }
    fixture.world.ran("bio", "debug", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!(status.failure, None);
    let lines: Vec<_> = status
        .parked
        .iter()
        .map(|(key, line)| (key, &line.reason))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0].0, "offering of batch");
    assert!(lines[0].1.contains("add one in Waldur"), "{lines:?}");
    let debug = fixture.totals("2026-11")[&id("bio@debug", "node_hours")];
    assert_eq!(debug, 100);
}
