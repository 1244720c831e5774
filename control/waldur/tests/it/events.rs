//! Single events: their order, the buffers in an outage, and the restore of the cluster from a backup.

use crate::{
    common::{BEGIN, HOUR},
    waldur::SyncFixture,
};
use lattice_fake_waldur::{Fault, Rule, Version};
use lattice_waldur::{cluster::AccountedCluster as _, journal::Bounds};
use std::collections::BTreeMap;

/// For deployments with the paths of the document.
#[tokio::test]
async fn sends_events_once_in_order() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 2, HOUR);
    // The invoice of a tenant begins with its first usage.
    fixture.round().await;
    fixture.waldur.add_fault(
        Rule::new("/api/invoices/*/items/", Fault::lost_answer())
            .method("POST")
            .skip(2)
            .times(1),
    );
    for _ in 0..3 {
        fixture.world.ran("physics", "batch", 1, HOUR / 4);
    }
    assert!(fixture.round().await.failure.is_some());
    fixture.wait(10 * 60_000);
    fixture.succeeded(false);
    assert_eq!(fixture.round().await.failure, None);
    let items = fixture.waldur.seed_items();
    let keys: Vec<String> = items
        .iter()
        .filter_map(|item| item.idempotency_key.clone())
        .collect();
    assert_eq!(keys.len(), 8);
    let number = |key: &String| -> (u64, u64) {
        let (revision, ordinal) = key.split_once('-').unwrap();
        (revision.parse().unwrap(), ordinal.parse().unwrap())
    };
    assert!(
        keys.iter().map(number).collect::<Vec<_>>().is_sorted(),
        "{keys:?}"
    );
    let first = &items[0].body;
    assert_eq!(
        (&first["type"], &first["gpus"]),
        (&"allocation.started".into(), &8.into())
    );
    assert_eq!(first["gpu_types"]["H100"], 8);
    let second = &items[1].body;
    assert_eq!(second["type"], "allocation.completed");
    assert_eq!(
        (second["gpu_hours"].as_f64(), second["duration_s"].as_f64()),
        (Some(8.0), Some(3_600.0))
    );
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

#[tokio::test]
async fn rejected_event_blocks_no_others() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 2, HOUR);
    fixture.round().await;
    fixture.waldur.add_fault(
        Rule::new("/api/invoices/*/items/", Fault::status(400))
            .method("POST")
            .times(1),
    );
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 1));
    assert_eq!(fixture.waldur.seed_items().len(), 3);
    fixture.round().await;
    assert_eq!(fixture.waldur.seed_items().len(), 3);
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!((status.parked.len(), status.sent), (0, 4));
    assert_eq!(fixture.waldur.seed_items().len(), 4);
}

#[tokio::test]
async fn each_allocation_is_an_order_where_a_site_wants_that() {
    let mut fixture =
        SyncFixture::with(Version::V8, |settings| settings.order_per_allocation = true).await;
    fixture.world.ran("physics", "batch", 2, HOUR);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    fixture.succeeded(false);
    fixture.round().await;
    let made = fixture.waldur.snapshot();
    assert_eq!(made.resources.len(), 2);
    assert!(
        made.resources.iter().all(|r| r["state"] == "Terminated"),
        "{:?}",
        made.resources
    );
    let gpu: i128 = fixture
        .totals("2026-11")
        .iter()
        .filter(|((_, kind), _)| kind == "gpu_hours")
        .map(|(_, n)| n)
        .sum();
    assert_eq!(gpu, 1_200);
}

/// With memory and disk full, the newest events are dropped and counted, and all totals stay correct.
#[tokio::test]
async fn full_buffer_drops_newest_and_keeps_totals() {
    let small = Bounds { memory: 4, disk: 6 };
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.bounds = small).await;
    fixture.waldur.down().await;
    for _ in 0..8 {
        fixture.world.ran("physics", "batch", 1, HOUR);
    }
    let status = fixture.round().await;
    assert_eq!(
        (status.in_memory, status.on_disk, status.dropped),
        (4, 6, 6)
    );
    assert!(status.is_full);
    assert_eq!(status.dropped_unacknowledged, 6);
    // The counts need no answer of Waldur.
    assert_eq!(status.collected_at, Some(fixture.world.now()));
    assert_eq!(status.pushed_at, None);
    assert_eq!(fixture.world.head().dropped, 0);
    fixture.waldur.up().await;
    fixture.wait(10 * 60_000);
    let status = fixture.round().await;
    assert_eq!(
        (status.in_memory, status.on_disk, status.dropped),
        (0, 0, 6)
    );
    let head = fixture.world.head();
    assert_eq!((head.acknowledged, head.dropped), (head.last, 6));
    assert_eq!(status.dropped_unacknowledged, 0);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// The restored cluster uses the numbers of the lost usage records again. A rejected event of a lost record is not
/// retried either; one of a record in the backup is.
#[tokio::test]
async fn restored_cluster_sends_no_event_of_lost_records() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    assert_eq!(fixture.round().await.failure, None);
    let rejection = || {
        Rule::new("/api/invoices/*/items/", Fault::status(400))
            .method("POST")
            .times(1)
    };
    fixture.waldur.add_fault(rejection());
    fixture.world.start("physics", "batch", 1);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 1));
    let backup = fixture.world.saved();
    fixture.waldur.add_fault(rejection());
    fixture.world.start("physics/higgs", "batch", 1);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 2));
    assert_eq!(status.acknowledged, 4);
    fixture.waldur.down().await;
    for _ in 0..2 {
        fixture.world.ran("physics/higgs", "batch", 1, HOUR);
    }
    assert_eq!(fixture.round().await.in_memory, 4);
    fixture.world.restore(backup);
    // The clock of the restored state follows.
    fixture.wait(0);
    fixture.world.ran("bio", "batch", 1, HOUR);
    fixture.waldur.up().await;
    // The retry of rejected events is due.
    fixture.wait(16 * 60_000);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.in_memory), (None, 0));
    assert_eq!(status.parked, BTreeMap::new());
    let items = fixture.waldur.seed_items();
    let sent: Vec<_> = items
        .iter()
        .map(|item| (item.body["number"].as_u64(), item.body["tenant"].as_str()))
        .collect();
    assert_eq!(
        sent,
        [
            (Some(1), Some("physics")),
            (Some(2), Some("physics")),
            (Some(3), Some("physics")),
            (Some(4), Some("bio")),
            (Some(5), Some("bio")),
        ]
    );
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// The restored cluster has more usage records than were read before the restore, so only its revision shows the
/// restore, in the same process and after a restart.
#[tokio::test]
async fn restored_cluster_with_more_records_sends_no_event_of_lost_records() {
    for is_restarted in [false, true] {
        let mut fixture =
            SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
        fixture.waldur.set_seed_paths(true);
        fixture.world.ran("physics", "batch", 1, HOUR);
        assert_eq!(fixture.round().await.failure, None);
        let backup = fixture.world.saved();
        fixture.waldur.down().await;
        fixture.world.ran("physics/higgs", "batch", 1, HOUR);
        assert_eq!(fixture.round().await.in_memory, 2);
        fixture.world.restore(backup);
        // The clock of the restored state follows.
        fixture.wait(0);
        for _ in 0..2 {
            fixture.world.ran("bio", "batch", 1, HOUR);
        }
        if is_restarted {
            fixture.succeeded(true);
        }
        fixture.waldur.up().await;
        fixture.wait(10 * 60_000);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.in_memory), (None, 0));
        let items = fixture.waldur.seed_items();
        let sent: Vec<_> = items
            .iter()
            .map(|item| (item.body["number"].as_u64(), item.body["tenant"].as_str()))
            .collect();
        assert_eq!(
            sent,
            [
                (Some(1), Some("physics")),
                (Some(2), Some("physics")),
                (Some(3), Some("bio")),
                (Some(4), Some("bio")),
                (Some(5), Some("bio")),
                (Some(6), Some("bio")),
            ],
            "restarted: {is_restarted}"
        );
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    }
}

/// An outage of two hours at a hundred events per minute, with the buffers of the document; then Waldur is back.
#[tokio::test]
async fn an_outage_of_two_hours_loses_nothing_and_keeps_the_order() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| settings.seed_paths = true).await;
    fixture.waldur.set_seed_paths(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let before = fixture.waldur.seed_items().len();
    fixture.waldur.down().await;
    for minute in 0..120 {
        let mut running = Vec::new();
        for n in 0..50 {
            let project = ["physics", "physics/higgs", "bio"][n % 3];
            running.push(fixture.world.start(project, "batch", 1));
        }
        fixture.wait(60_000);
        running.into_iter().for_each(|id| fixture.world.end(id));
        let status = fixture.round().await;
        assert!(status.failure.is_some(), "minute {minute}");
        assert_eq!(status.dropped, 0);
    }
    let status = fixture.status();
    assert_eq!((status.in_memory, status.on_disk), (10_000, 2_000));
    fixture.waldur.up().await;
    fixture.wait(6 * 60_000);
    let status = fixture.round().await;
    assert_eq!(
        (status.failure, status.in_memory, status.on_disk),
        (None, 0, 0)
    );
    let items = fixture.waldur.seed_items();
    assert_eq!(items.len() - before, 12_000);
    let numbers: Vec<u64> = items
        .iter()
        .map(|item| item.body["number"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b));
    assert!(items.iter().all(|item| item.received == 1));
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}
