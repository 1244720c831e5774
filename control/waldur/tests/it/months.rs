//! The end of a month: the last round before it, and clocks that differ or are set back.

use crate::{
    common::{BEGIN, HOUR, path},
    found::{SET_USAGE, month_end, move_to, resource},
    waldur::{SyncFixture, id, stamp},
};
use lattice_fake_waldur::{Fault, Moment, Rule, Version};
use lattice_quorum_types::Command;
use lattice_waldur::{
    client::MAX_REQUESTS_AT_ONCE, cluster::AccountedCluster as _, sync::ReconcileMode,
};
use std::time::Duration;

const MINUTE: i64 = 60_000;

/// With an interval of ten minutes, the last round of a month begins shortly before the guard, by Waldur's clock. The
/// month lacks the guard and a few seconds, and not up to ten minutes.
#[tokio::test]
async fn last_round_precedes_the_guard() {
    let interval = Duration::from_secs(600);
    for skew_ms in [-20_000, 0, 20_000] {
        let mut fixture = SyncFixture::new(Version::V7).await;
        fixture.waldur.set_clock_skew(skew_ms);
        move_to(&fixture, -35 * MINUTE);
        let _running = fixture.world.start("physics", "batch", 50);
        let mut rounds = 0;
        // As the reconciler does it: a round each interval, and when the last round of the month is due.
        while fixture.world.now() < month_end() {
            assert_eq!(fixture.round().await.failure, None);
            rounds += 1;
            let due_in = fixture.sync.next_round_in();
            let wait = due_in.map_or(interval, |due_in| due_in.min(interval));
            fixture.wait(u64::try_from(wait.as_millis()).unwrap());
        }
        // Four by the interval, and the last one; a slow machine may need more attempts at the last one.
        assert!((5..=8).contains(&rounds), "{skew_ms}: {rounds}");
        let gpu_hours = id("physics@batch", "gpu_hours");
        let used = fixture.world.truth(BEGIN, month_end());
        let left = used[&gpu_hours] - fixture.totals("2026-11")[&gpu_hours];
        // 50 nodes with 4 GPUs, in hundredths of an hour.
        let seconds = left * 36 / 200 - i128::from(skew_ms / 1_000);
        assert!((45..=66).contains(&seconds), "{skew_ms}: {seconds} s");
    }
}

/// A last round that fails is due again before the guard begins.
#[tokio::test]
async fn failed_last_round_is_repeated() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -2 * MINUTE);
    let _running = fixture.world.start("physics", "batch", 50);
    assert_eq!(fixture.round().await.failure, None);
    let due_in = fixture.sync.next_round_in().unwrap();
    fixture.wait(u64::try_from(due_in.as_millis()).unwrap());
    fixture
        .waldur
        .add_fault(Rule::new(SET_USAGE, Fault::status(503)).times(1));
    assert!(fixture.round().await.failure.is_some());
    let due_in = fixture.sync.next_round_in().unwrap();
    let first_retry = Duration::from_millis(1_000)..=Duration::from_millis(1_250);
    assert!(first_retry.contains(&due_in), "{due_in:?}");
    fixture.wait(u64::try_from(due_in.as_millis()).unwrap());
    assert_eq!(fixture.round().await.failure, None);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// While Waldur's clock is ahead of ours, its next month begins before the usage of the last one is complete. The round
/// after our month's end does not wait for the interval.
#[tokio::test]
async fn round_waits_for_the_end_of_our_month() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.waldur.set_clock_skew(2 * MINUTE);
    move_to(&fixture, -60 * MINUTE);
    let _running = fixture.world.start("physics", "batch", 1);
    fixture.wait(HOUR / 2);
    fixture.round().await;
    move_to(&fixture, -MINUTE / 2);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    let due_in = fixture.sync.next_round_in();
    assert_eq!(due_in, Some(Duration::from_secs(5)));
    move_to(&fixture, 5_000);
    let status = fixture.round().await;
    assert!(
        status.parked.contains_key("usage physics@batch 2026-11"),
        "{status:?}"
    );
}

/// While Waldur's clock is behind ours, its month goes on after ours has ended: the total has no usage of our next month.
#[tokio::test]
async fn total_ends_with_our_month() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.waldur.set_clock_skew(-2 * MINUTE);
    move_to(&fixture, -60 * MINUTE);
    let running = fixture.world.start("physics", "batch", 50);
    fixture.round().await;
    move_to(&fixture, MINUTE);
    assert_eq!(fixture.round().await.failure, None);
    fixture.assert_equal("2026-11", BEGIN, month_end());
    move_to(&fixture, 30 * MINUTE);
    fixture.world.end(running);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    fixture.assert_equal("2026-11", BEGIN, month_end());
    fixture.assert_equal("2026-12", month_end(), fixture.world.now());
}

/// A comparison within the guard after the end shows the usage of the ended month alone.
#[tokio::test]
async fn comparison_within_the_guard_ends_with_the_month() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -60 * MINUTE);
    let _running = fixture.world.start("physics", "batch", 50);
    fixture.wait(HOUR / 2);
    fixture.round().await;
    move_to(&fixture, MINUTE / 2);
    let mode = ReconcileMode::Compare;
    let (since, until) = (BEGIN, fixture.world.now());
    let found = fixture.sync.reconcile(since, until, mode).await.unwrap();
    let of_gpus = found
        .iter()
        .find(|one| one.component == "gpu_hours")
        .unwrap();
    let used = fixture.world.truth(BEGIN, month_end())[&id("physics@batch", "gpu_hours")];
    assert_eq!(
        (of_gpus.month.as_str(), i128::from(of_gpus.used)),
        ("2026-11", used)
    );
}

/// Waldur's clock is set back into the ended month: what was missing there is reported, and the month is compared again
/// after its second end.
#[tokio::test]
async fn month_that_is_present_again_is_completed() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -10 * MINUTE);
    let running = fixture.world.start("physics", "batch", 50);
    move_to(&fixture, -5 * MINUTE);
    fixture.round().await;
    move_to(&fixture, 3 * MINUTE / 2);
    let status = fixture.round().await;
    let line = "usage physics@batch 2026-11";
    assert!(status.parked.contains_key(line), "{status:?}");

    fixture.waldur.set_clock_skew(-5 * MINUTE / 2);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    fixture.assert_equal("2026-11", BEGIN, month_end());

    let edited = fixture
        .waldur
        .edit_usage(&resource(&fixture), "gpu_hours", "2026-11", "0.01");
    assert!(edited);
    fixture.waldur.set_clock_skew(0);
    move_to(&fixture, 10 * MINUTE);
    fixture.world.end(running);
    let status = fixture.round().await;
    assert!(status.parked.contains_key(line), "{status:?}");
    fixture.assert_equal("2026-12", month_end(), fixture.world.now());
}

/// Waldur's clock is set back into the guard of the ended month, and a report on its way replaces an amount there: the
/// month is compared again after its second end.
#[tokio::test]
async fn month_is_compared_again_after_a_step_into_its_guard() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -60 * MINUTE);
    fixture.world.ran("physics", "batch", 1, HOUR / 2);
    fixture.round().await;
    move_to(&fixture, 2 * MINUTE);
    assert_eq!(fixture.round().await.parked.len(), 0);
    fixture.waldur.set_clock_skew(-2 * MINUTE - 10_000);
    assert_eq!(fixture.round().await.failure, None);
    let edited = fixture
        .waldur
        .edit_usage(&resource(&fixture), "gpu_hours", "2026-11", "0.01");
    assert!(edited);
    fixture.waldur.set_clock_skew(0);
    move_to(&fixture, 10 * MINUTE);
    let status = fixture.round().await;
    let line = &status.parked["usage physics@batch 2026-11"];
    assert!(
        line.reason.contains("0.01 GPU-hours") && line.reason.contains("2.00"),
        "{line:?}"
    );
}

/// The reconciliation on schedule shows an amount of the ended month that was changed after its end.
#[tokio::test]
async fn reconciliation_shows_changes_in_the_ended_month() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| {
        settings.reconcile_every = Some(Duration::from_secs(24 * 3_600));
    })
    .await;
    move_to(&fixture, -60 * MINUTE);
    fixture.world.ran("physics", "batch", 1, HOUR / 2);
    fixture.round().await;
    move_to(&fixture, 60 * MINUTE);
    assert_eq!(fixture.round().await.parked.len(), 0);
    let edited = fixture
        .waldur
        .edit_usage(&resource(&fixture), "gpu_hours", "2026-11", "0.01");
    assert!(edited);
    fixture.wait(25 * HOUR);
    fixture.round().await;
    let status = fixture.round().await;
    assert!(
        status.parked.contains_key("usage physics@batch 2026-11"),
        "{status:?}"
    );
}

/// Our clock is set back by an hour: no total becomes lower by that, and neither a retry nor a rejected report waits for
/// an hour more.
#[tokio::test]
async fn clock_that_is_set_back_delays_nothing() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let running = fixture.world.start("physics", "batch", 8);
    fixture.wait(2 * HOUR);
    fixture.round().await;
    let back = -i64::try_from(HOUR).unwrap();

    fixture.world.shift_clock(back);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));

    fixture.wait(2 * HOUR);
    fixture
        .waldur
        .add_fault(Rule::new(SET_USAGE, Fault::status(400)).times(1));
    assert_eq!(fixture.round().await.parked.len(), 1);
    fixture.world.shift_clock(back);
    assert_eq!(fixture.round().await.parked.len(), 0);

    fixture.wait(2 * HOUR);
    fixture
        .waldur
        .add_fault(Rule::new(SET_USAGE, Fault::status(503)).times(1));
    assert!(fixture.round().await.failure.is_some());
    fixture.world.shift_clock(back);
    assert_eq!(fixture.round().await.failure, None);

    fixture.wait(2 * HOUR);
    fixture.world.end(running);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// Our clock is set back by days: the reconciliation on schedule comes after its interval, and not days later.
#[tokio::test]
async fn reconciliation_follows_a_clock_that_is_set_back() {
    let mut fixture = SyncFixture::with(Version::V7, |settings| {
        settings.reconcile_every = Some(Duration::from_secs(24 * 3_600));
        settings.lower_totals = true;
    })
    .await;
    fixture.wait(96 * HOUR);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let back = i64::try_from(72 * HOUR).unwrap();
    fixture.world.shift_clock(-back);
    fixture.waldur.set_clock_skew(back);
    fixture.round().await;
    fixture.wait(25 * HOUR);
    let edited = fixture
        .waldur
        .edit_usage(&resource(&fixture), "gpu_hours", "2026-11", "99.00");
    assert!(edited);
    fixture.round().await;
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "gpu_hours")],
        400
    );
}

/// The resource of a project that is deleted about the end of a month ends once its usage can be reported.
#[tokio::test]
async fn resources_outlive_the_end_of_a_month() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.world.project("physics/p0", 1);
    move_to(&fixture, -120 * MINUTE);
    fixture.world.ran("physics/p0", "batch", 1, HOUR);
    fixture.round().await;
    move_to(&fixture, -30 * MINUTE);
    let running = fixture.world.start("physics/p0", "batch", 1);
    move_to(&fixture, MINUTE / 2);
    fixture.world.end(running);
    fixture.world.admin(Command::DeleteProject {
        path: path("physics/p0"),
    });
    let states = |fixture: &SyncFixture| {
        let made = fixture.waldur.snapshot();
        let states = made.resources.iter().map(|one| one["state"].clone());
        states.collect::<Vec<_>>()
    };
    fixture.round().await;
    assert_eq!(states(&fixture), ["OK"]);
    move_to(&fixture, 2 * MINUTE);
    fixture.round().await;
    assert_eq!(states(&fixture), ["Terminated"]);
    fixture.assert_equal("2026-12", month_end(), fixture.world.now());
}

/// A slow Waldur gets few reports at the same time. Those that wait for their turn until the guard has begun are not sent.
#[tokio::test]
async fn waiting_reports_respect_the_guard() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let projects: Vec<String> = (0..MAX_REQUESTS_AT_ONCE + 10)
        .map(|number| format!("physics/p{number}"))
        .collect();
    move_to(&fixture, -180 * MINUTE);
    for project in &projects {
        fixture.world.project(project, 1);
        fixture.world.ran(project, "batch", 1, 60_000);
    }
    while fixture.waldur.snapshot().resources.len() < projects.len() {
        assert_eq!(fixture.round().await.failure, None);
    }
    for project in &projects {
        fixture.world.ran(project, "batch", 1, 60_000);
    }
    move_to(&fixture, -2 * MINUTE);
    // A new control begins with few requests at the same time.
    fixture.succeeded(true);
    let slow = Fault::Slow {
        ms: 300,
        when: Moment::Before,
    };
    fixture.waldur.add_fault(Rule::new(SET_USAGE, slow));
    let before = fixture.waldur.set_usage_calls().received;
    let SyncFixture {
        world,
        waldur,
        sync,
        ..
    } = &mut fixture;
    let clocks = async {
        while waldur.set_usage_calls().received == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.wait(90_000);
        waldur.set_now(stamp(world.now()));
    };
    tokio::join!(sync.round(), clocks);
    let sent = fixture.waldur.set_usage_calls().received - before;
    assert!((1..MAX_REQUESTS_AT_ONCE).contains(&sent), "{sent}");
}
