//! Monthly totals of a simulated Waldur that replies as a real one did.

use crate::{
    common::{BEGIN, HOUR, path},
    waldur::{SyncFixture, id, stamp},
};
use jiff::tz::TimeZone;
use lattice_fake_waldur::{Version, Waldur};
use lattice_quorum_types::Command;
use lattice_waldur::{cluster::AccountedCluster as _, status::Outcome, sync::ReconcileMode};
use std::fs;

#[tokio::test]
async fn project_usage_reaches_waldur_once() {
    for version in [Version::V7, Version::V8] {
        let mut fixture = SyncFixture::new(version).await;
        fixture.world.ran("physics/higgs", "batch", 2, 3 * HOUR);
        fixture.world.ran("physics", "batch", 1, HOUR / 2);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
        let totals = fixture.totals("2026-11");
        assert_eq!(totals[&id("physics/higgs@batch", "node_hours")], 600);
        assert_eq!(totals[&id("physics/higgs@batch", "gpu_hours")], 2_400);
        assert_eq!(totals[&id("physics@batch", "node_hours")], 50);
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
        let head = fixture.world.head();
        assert_eq!(head.acknowledged, head.last);

        // Usage of running allocations grows; final usage is not reported again.
        let running = fixture.world.start("bio", "batch", 3);
        fixture.wait(HOUR);
        let before = fixture.waldur.set_usage_calls().received;
        fixture.round().await;
        assert_eq!(
            fixture.totals("2026-11")[&id("bio@batch", "gpu_hours")],
            1_200
        );
        assert_eq!(fixture.waldur.set_usage_calls().received, before + 1);
        fixture.wait(HOUR);
        fixture.world.end(running);
        // Another control without the journal continues.
        fixture.succeeded(false);
        fixture.round().await;
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
        let made = fixture.waldur.snapshot();
        // Customers: the cluster itself, physics and bio; three projects; three resources.
        let count = (
            made.customers.len(),
            made.projects.len(),
            made.offerings.len(),
        );
        assert_eq!(count, (3, 3, 1));
        assert_eq!((made.resources.len(), made.orders.len()), (3, 3));
    }
}

#[tokio::test]
async fn each_vcluster_is_an_offering_and_each_project_in_it_a_resource() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.world.ran("physics", "notebooks", 1, HOUR);
    fixture.round().await;
    let made = fixture.waldur.snapshot();
    assert_eq!((made.offerings.len(), made.resources.len()), (2, 2));
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// The end of November in Waldur's time zone, with an allocation that runs across it.
#[tokio::test]
async fn a_month_ends_where_waldur_is_and_work_that_runs_is_split_there() {
    let zone = TimeZone::posix("EET-2EEST,M3.5.0/3,M10.5.0/4").unwrap();
    for version in [Version::V7, Version::V8] {
        let mut fixture = SyncFixture::with(version, |settings| settings.zone = zone.clone()).await;
        let waldur = Waldur::builder()
            .version(version)
            .now(stamp(BEGIN))
            .time_zone(zone.clone());
        fixture.waldur = waldur.start().await.unwrap();
        fixture.settings.api = format!("{}/api/", fixture.waldur.url()).parse().unwrap();
        fs::write(fixture.folder.path().join("token"), fixture.waldur.token()).unwrap();
        fixture.succeeded(true);
        // 2026-11-30T20:00Z: two hours before the end of the month there.
        fixture.wait((20 * 24 + 20) * HOUR);
        let running = fixture.world.start("physics", "batch", 1);
        fixture.wait(HOUR);
        fixture.round().await;
        assert_eq!(
            fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
            100
        );
        fixture.wait(3 * HOUR);
        fixture.world.end(running);
        let status = fixture.round().await;
        assert_eq!(
            fixture.totals("2026-12")[&id("physics@batch", "node_hours")],
            200
        );
        match version {
            // Usage of the last hour cannot be booked any more: this is reported, and nothing waits for it.
            Version::V7 => {
                assert_eq!(
                    fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
                    100
                );
                let (what, parked) = status.parked.iter().next().unwrap();
                assert!(
                    what.contains("2026-11") && parked.reason.contains("not bookable"),
                    "{status:?}"
                );
            }
            Version::V8 => {
                assert_eq!(
                    fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
                    200
                );
                assert_eq!(status.parked.len(), 0, "{status:?}");
            }
        }
        let head = fixture.world.head();
        assert_eq!((status.failure, head.acknowledged), (None, head.last));
    }
}

#[tokio::test]
async fn a_total_is_never_lowered_but_by_a_person() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.ran("physics", "batch", 1, 2 * HOUR);
    fixture.round().await;
    let resource = fixture.waldur.snapshot().resources[0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    // A higher amount was booked manually.
    let body = serde_json::json!({"resource": resource, "usages": [
        {"type": "gpu_hours", "amount": "99.00"}, {"type": "node_hours", "amount": "2.00"}]});
    let (status, _) = fixture.waldur.request_as_admin(
        "POST",
        "/api/marketplace-component-usages/set_usage/",
        &body,
    );
    assert_eq!(status, 201);
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    let (_, parked) = status.parked.iter().next().unwrap();
    assert!(parked.reason.contains("reconcile"), "{parked:?}");
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "gpu_hours")],
        9_900
    );

    let now = fixture.world.now();
    let found = fixture
        .sync
        .reconcile(BEGIN, now, ReconcileMode::Compare)
        .await
        .unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|d| d.outcome == Outcome::Found));
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "gpu_hours")],
        9_900
    );
    let mode = ReconcileMode::Correct;
    let found = fixture
        .sync
        .reconcile(BEGIN, now, mode.clone())
        .await
        .unwrap();
    assert!(
        found.iter().all(|d| d.outcome == Outcome::Corrected),
        "{found:?}"
    );
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    assert_eq!(fixture.sync.reconcile(BEGIN, now, mode).await.unwrap(), []);
    assert_eq!(fixture.round().await.parked.len(), 0);
}

#[tokio::test]
async fn the_resource_of_a_project_that_is_gone_is_ended_after_its_last_usage() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    fixture.world.project("physics/short", 10);
    fixture.world.ran("physics/short", "batch", 1, HOUR);
    fixture.round().await;
    fixture.world.ran("physics/short", "batch", 1, HOUR);
    fixture.world.admin(Command::DeleteProject {
        path: path("physics/short"),
    });
    fixture.round().await;
    let made = fixture.waldur.snapshot();
    assert_eq!(made.resources[0]["state"], "Terminated");
    assert_eq!(
        fixture.totals("2026-11")[&id("physics/short@batch", "node_hours")],
        200
    );
    // Later rounds change nothing.
    fixture.wait(HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    assert_eq!(fixture.waldur.snapshot().resources.len(), 1);
}
