//! Lost answers, refusals, outages and a rotated token.

use crate::{
    common::{BEGIN, HOUR},
    waldur::{SyncFixture, id},
};
use lattice_fake_waldur::{Fault, Moment, Rule, Version};
use lattice_waldur::cluster::AccountedCluster as _;
use std::fs;

/// Each request succeeds once while its reply is lost. Nothing exists twice.
#[tokio::test]
async fn an_answer_that_is_lost_makes_nothing_twice() {
    for path in [
        "/api/customers/",
        "/api/projects/",
        "/api/marketplace-service-providers/",
        "/api/marketplace-categories/",
        "/api/marketplace-provider-offerings/",
        "/api/marketplace-provider-offerings/*/activate/",
        "/api/marketplace-orders/",
        "/api/marketplace-orders/*/approve_by_provider/",
        "/api/marketplace-orders/*/set_state_done/",
        "/api/marketplace-provider-resources/*/set_backend_id/",
        "/api/marketplace-component-usages/set_usage/",
    ] {
        let mut fixture = SyncFixture::new(Version::V7).await;
        fixture.world.ran("physics/higgs", "batch", 1, HOUR);
        fixture.waldur.add_fault(
            Rule::new(path, Fault::lost_answer())
                .method("POST")
                .times(1),
        );
        let status = fixture.round().await;
        assert!(status.failure.is_some(), "{path}");
        assert_eq!(fixture.world.head().acknowledged, 0, "{path}");
        fixture.wait(10 * 60_000);
        if path.contains("set_backend_id") {
            fixture.succeeded(true);
        }
        let status = fixture.round().await;
        assert_eq!(status.failure, None, "{path}");
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
        let made = fixture.waldur.snapshot();
        let count = (
            made.customers.len(),
            made.projects.len(),
            made.offerings.len(),
        );
        assert_eq!(count, (2, 1, 1), "{path}");
        assert_eq!((made.resources.len(), made.orders.len()), (1, 1), "{path}");
    }
}

#[tokio::test]
async fn retries_outages_and_parks_refusals() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.round().await;
    // One resource is rejected: the total of the other is reported, and the usage records are acknowledged.
    let made = fixture.waldur.snapshot();
    let bio = made
        .resources
        .iter()
        .find(|r| r["backend_id"] == "lattice:alps:bio@batch")
        .unwrap();
    let uuid = bio["uuid"].as_str().unwrap().to_owned();
    let refused = Fault::status(400);
    fixture
        .waldur
        .add_fault(Rule::new("/api/marketplace-component-usages/set_usage/", refused).times(1));
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!(status.failure, None);
    assert_eq!(status.parked.len(), 1, "{status:?}");
    assert!(
        status.parked.keys().next().unwrap().contains("bio@batch"),
        "{status:?}"
    );
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
        200
    );
    let head = fixture.world.head();
    assert_eq!(head.acknowledged, head.last);
    // The rejected request is retried a quarter of an hour later.
    fixture.round().await;
    assert_eq!(
        fixture.totals("2026-11")[&id("bio@batch", "node_hours")],
        100
    );
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!(status.parked.len(), 0, "{status:?}");
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());

    // Status 429 gives the time of the retry.
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.waldur.add_fault(
        Rule::new(
            "/api/*",
            Fault::Status {
                code: 429,
                retry_after_s: Some(120),
                when: Moment::Before,
            },
        )
        .times(1),
    );
    let status = fixture.round().await;
    let wait = status.retry_at.unwrap().since(fixture.world.now());
    assert!(wait >= 120_000, "{wait}");
    fixture.wait(60_000);
    let asked = fixture.waldur.requests().len();
    fixture.round().await;
    assert_eq!(fixture.waldur.requests().len(), asked, "it waits");
    fixture.wait(61_000);
    assert_eq!(fixture.round().await.failure, None);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());

    // A resource that was terminated in Waldur is no longer used, and a new one is ordered at once for later usage.
    fixture.waldur.set_auto_approve(true);
    let end = format!("/api/marketplace-resources/{uuid}/terminate/");
    let (status, _) = fixture
        .waldur
        .request_as_admin("POST", &end, &serde_json::json!({}));
    assert_eq!(status, 200);
    fixture.world.ran("bio", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    let resources = fixture.waldur.snapshot().resources;
    let of_bio = resources
        .iter()
        .filter(|r| r["backend_id"] == "lattice:alps:bio@batch");
    assert_eq!(of_bio.count(), 2);
    // The amounts of the first resource are not billed again.
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.succeeded(false);
    fixture.round().await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

#[tokio::test]
async fn rereads_rotated_token() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let old = fs::read_to_string(fixture.folder.path().join("token")).unwrap();
    let new = fixture.waldur.issue_token("admin", None);
    fixture.waldur.revoke_token(&old);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert!(status.failure.unwrap().contains("rejects the token"));
    fs::write(fixture.folder.path().join("token"), &new).unwrap();
    fixture.wait(60_000);
    assert_eq!(fixture.round().await.failure, None);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    // A rotation during operation has no effect on the reports.
    let newer = fixture.waldur.issue_token("admin", None);
    fs::write(fixture.folder.path().join("token"), &newer).unwrap();
    fixture.waldur.revoke_token(&new);
    fixture.world.ran("physics", "batch", 1, HOUR);
    assert_eq!(fixture.round().await.failure, None);
}
