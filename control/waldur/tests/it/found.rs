//! Faults that were found with a real Waldur, with its rules in the fixture: the end of a month, rows that change
//! behind our back, plans, several clusters, rights and orders.

use crate::{
    common::{BEGIN, HOUR, vcluster},
    waldur::{SyncFixture, id},
};
use jiff::Timestamp;
use lattice_fake_waldur::{Fault, OfferingSpec, Role, Rule, Version};
use lattice_ledger::Month;
use lattice_quorum_types::{
    UnixMillis,
    accounting_month::{AccountingMonth, MonthDifferences},
    command::{Principal, Privilege},
};
use lattice_waldur::{
    cluster::AccountedCluster as _,
    status::{Outcome, SyncStatus},
    sync::ReconcileMode,
};
use serde_json::json;
use std::collections::BTreeMap;

pub const SET_USAGE: &str = "/api/marketplace-component-usages/set_usage/";

/// The end of November.
pub fn month_end() -> UnixMillis {
    let end: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    UnixMillis(end.as_millisecond().try_into().unwrap())
}

/// Moves both clocks to a time before or after the end of November.
pub fn move_to(fixture: &SyncFixture, from_end_ms: i64) {
    let to = month_end().0.checked_add_signed(from_end_ms).unwrap();
    let now = fixture.world.now().0;
    fixture.wait(to.checked_sub(now).unwrap());
}

pub fn resource(fixture: &SyncFixture) -> String {
    let made = fixture.waldur.snapshot();
    made.resources[0]["uuid"].as_str().unwrap().to_owned()
}

/// Orders the other plan of a resource's offering, as its customer.
fn switch_plan(fixture: &SyncFixture, resource: &str) {
    let made = fixture.waldur.snapshot();
    let offering = made.resources[0]["offering_uuid"].as_str().unwrap();
    let target = format!("/api/marketplace-public-offerings/{offering}/");
    let (_, offered) = fixture.waldur.request_as_admin("GET", &target, &json!({}));
    let plans = offered["plans"].as_array().unwrap();
    let other = plans.iter().find(|plan| plan["name"] == "other").unwrap();
    let target = format!("/api/marketplace-resources/{resource}/switch_plan/");
    let body = json!({"plan": other["url"]});
    let (status, made) = fixture.waldur.request_as_admin("POST", &target, &body);
    assert_eq!(status, 200, "{made}");
}

/// Around the end of a month nothing is reported, by whichever clock. What could be reported before is in November, and
/// December has its own usage alone; the rest of November is one line, which an operator ends.
#[tokio::test]
async fn no_report_crosses_the_end_of_a_month() {
    for skew_ms in [-20_000, 0, 20_000] {
        let mut fixture = SyncFixture::new(Version::V7).await;
        fixture.waldur.set_clock_skew(skew_ms);
        move_to(&fixture, -600_000);
        let running = fixture.world.start("physics", "batch", 50);
        // Every 10 seconds, from 10 minutes before to 10 minutes after.
        let mut last_sent_ms = None;
        let mut first_sent_ms = None;
        for step in 1..=120_i64 {
            fixture.wait(10_000);
            let before = fixture.waldur.set_usage_calls().received;
            let status = fixture.round().await;
            assert_eq!(status.failure, None);
            if fixture.waldur.set_usage_calls().received > before {
                // Time relative to the end by Waldur's clock.
                let at = step * 10_000 - 600_000 + skew_ms;
                match at < 0 {
                    true => last_sent_ms = Some(at),
                    false => first_sent_ms = first_sent_ms.or(Some(at)),
                }
            }
        }
        assert!(last_sent_ms <= Some(-45_000), "{skew_ms}: {last_sent_ms:?}");
        assert!(
            first_sent_ms >= Some(60_000),
            "{skew_ms}: {first_sent_ms:?}"
        );
        fixture.world.end(running);
        let status = fixture.round().await;
        let now = fixture.world.now();
        assert_eq!(
            fixture.totals("2026-12"),
            fixture.world.truth(month_end(), now),
            "{skew_ms}"
        );
        let used = fixture.world.truth(BEGIN, month_end());
        let november = id("physics@batch", "gpu_hours");
        let left = used[&november] - fixture.totals("2026-11")[&november];
        // 50 nodes with 4 GPUs for 45 to 66 seconds before the end by Waldur's clock, in hundredths of an hour.
        let seconds = left * 36 / 200;
        let shift = i128::from(skew_ms / 1_000);
        assert!((44..=66).contains(&(seconds - shift)), "{skew_ms}: {left}");
        let (name, line) = status.parked.iter().next().unwrap();
        assert_eq!(name, "usage physics@batch 2026-11");
        assert!(line.reason.contains("not bookable"), "{line:?}");

        let until = Month::of(now, &jiff::tz::TimeZone::UTC).begins(&jiff::tz::TimeZone::UTC);
        let mode = ReconcileMode::Accept(person("ann"));
        let found = fixture.sync.reconcile(BEGIN, until, mode).await.unwrap();
        assert!(
            found.iter().all(|one| one.outcome == Outcome::Accepted),
            "{found:?}"
        );
        assert_eq!(found.len(), 2);
        // Neither the next round nor a restart shows the line again.
        assert_eq!(fixture.round().await.parked.len(), 0);
        fixture.succeeded(true);
        assert_eq!(fixture.round().await.parked.len(), 0);
    }
}

fn person(name: &str) -> Principal {
    Principal {
        name: name.to_owned(),
        privilege: Privilege::Admin,
    }
}

/// A fixture of which the last half hour of November was not reported in time, with the present time in December.
async fn late_november() -> SyncFixture {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -(HOUR as i64));
    fixture.world.ran("physics", "batch", 1, HOUR / 2);
    assert_eq!(fixture.round().await.failure, None);
    fixture.world.ran("physics", "batch", 1, HOUR / 4);
    move_to(&fixture, HOUR as i64);
    fixture
}

const NOVEMBER_LINE: &str = "usage physics@batch 2026-11";

fn lines(status: &SyncStatus) -> Vec<&str> {
    status.parked.keys().map(String::as_str).collect()
}

fn november() -> AccountingMonth {
    "2026-11".parse().unwrap()
}

/// The line of an ended month survives a restart, and a change of control, until it is accepted. Then no control shows
/// it: the quorum keeps the month, the principal, the time and the number of differences.
#[tokio::test]
async fn line_of_ended_month_lasts_until_accepted() {
    let mut fixture = late_november().await;
    assert_eq!(lines(&fixture.round().await), [NOVEMBER_LINE]);
    for has_journal in [true, false] {
        fixture.succeeded(has_journal);
        assert_eq!(lines(&fixture.round().await), [NOVEMBER_LINE]);
    }
    accept_november(&mut fixture).await;
    let found = fixture.world.found_months();
    let Some(MonthDifferences::Accepted {
        by, differences, ..
    }) = found.get(&november())
    else {
        panic!("{found:?}")
    };
    assert_eq!((found.len(), by.as_str(), *differences), (1, "ann", 2));
    for has_journal in [true, false] {
        fixture.succeeded(has_journal);
        assert_eq!(lines(&fixture.round().await), [""; 0]);
    }
}

async fn accept_november(fixture: &mut SyncFixture) {
    let (mode, end) = (ReconcileMode::Accept(person("ann")), month_end());
    let found = fixture.sync.reconcile(BEGIN, end, mode).await.unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(lines(&fixture.round().await), [""; 0]);
}

/// A month stays open while later months end, also for a control that starts then. The quorum keeps which months are
/// open: no other month is compared again.
#[tokio::test]
async fn open_month_is_compared_again_months_later() {
    let mut fixture = late_november().await;
    fixture.round().await;
    let found = fixture.world.found_months();
    assert!(
        matches!(found.get(&november()), Some(MonthDifferences::Open { .. })),
        "{found:?}"
    );
    move_to(&fixture, 70 * 24 * HOUR as i64);
    assert_eq!(lines(&fixture.round().await), [NOVEMBER_LINE]);
    fixture.succeeded(false);
    assert_eq!(lines(&fixture.round().await), [NOVEMBER_LINE]);
    accept_november(&mut fixture).await;
    fixture.succeeded(false);
    assert_eq!(lines(&fixture.round().await), [""; 0]);
}

/// Waldur has the rest of the month after all, here by a change of the usage there. The month is not open any more.
#[tokio::test]
async fn settled_month_is_not_open_any_more() {
    let mut fixture = late_november().await;
    fixture.round().await;
    let resource = resource(&fixture);
    let waldur = &fixture.waldur;
    // Three quarters of an hour on one node with four GPUs.
    assert!(waldur.edit_usage(&resource, "gpu_hours", "2026-11", "3.00"));
    assert!(waldur.edit_usage(&resource, "node_hours", "2026-11", "0.75"));
    fixture.succeeded(true);
    assert_eq!(lines(&fixture.round().await), [""; 0]);
    assert_eq!(fixture.world.found_months(), BTreeMap::new());
}

/// Waldur 8 books by date, so a total of an ended month that is too high is one that a reconciliation lowers.
#[tokio::test]
async fn total_too_high_in_an_ended_month_is_lowered_by_a_reconciliation() {
    let mut fixture = SyncFixture::new(Version::V8).await;
    move_to(&fixture, -(HOUR as i64));
    fixture.world.ran("physics", "batch", 1, HOUR / 2);
    fixture.round().await;
    let resource = resource(&fixture);
    assert!(
        fixture
            .waldur
            .edit_usage(&resource, "node_hours", "2026-11", "9.00")
    );
    move_to(&fixture, HOUR as i64);
    let status = fixture.round().await;
    let reason = &status.parked[NOVEMBER_LINE].reason;
    assert!(
        reason.contains("lowered by `lattice admin accounting reconcile`"),
        "{reason}"
    );
    let (mode, end) = (ReconcileMode::Correct, month_end());
    let found = fixture.sync.reconcile(BEGIN, end, mode).await.unwrap();
    assert_eq!(found[0].outcome, Outcome::Corrected);
    assert_eq!(lines(&fixture.round().await), [""; 0]);
}

/// A quorum that refuses the acceptance, here because its principal is not an administrator, leaves the line.
#[tokio::test]
async fn refused_acceptance_leaves_the_line() {
    let mut fixture = late_november().await;
    fixture.round().await;
    let by = Principal {
        privilege: Privilege::Operator,
        ..person("oscar")
    };
    let (mode, end) = (ReconcileMode::Accept(by), month_end());
    let refused = fixture.sync.reconcile(BEGIN, end, mode).await.unwrap_err();
    assert!(refused.to_string().contains("oscar"), "{refused}");
    assert_eq!(lines(&fixture.round().await), [NOVEMBER_LINE]);
}

/// A month without differences is not accepted: a difference that appears later is shown.
#[tokio::test]
async fn month_without_differences_is_not_accepted() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -(HOUR as i64));
    fixture.world.ran("physics", "batch", 1, HOUR / 2);
    fixture.round().await;
    move_to(&fixture, HOUR as i64);
    assert_eq!(lines(&fixture.round().await), [""; 0]);
    let (mode, end) = (ReconcileMode::Accept(person("ann")), month_end());
    let found = fixture.sync.reconcile(BEGIN, end, mode).await.unwrap();
    assert_eq!(found, []);
    assert_eq!(fixture.world.found_months(), BTreeMap::new());
}

/// A cluster restored from a backup from before the acceptance shows the line again, without a restart of control.
#[tokio::test]
async fn restored_cluster_shows_the_line_again() {
    let mut fixture = late_november().await;
    fixture.round().await;
    let backup = fixture.world.saved();
    accept_november(&mut fixture).await;
    fixture.world.restore(backup);
    // The clock of the restored state follows.
    fixture.wait(0);
    assert_eq!(lines(&fixture.round().await), [NOVEMBER_LINE]);
}

/// A round that takes minutes reads the clock before each report.
#[tokio::test]
async fn a_slow_round_stops_at_the_end_of_a_month() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -(HOUR as i64));
    let running: Vec<_> = ["physics", "physics/higgs", "bio"]
        .map(|project| fixture.world.start(project, "batch", 1))
        .into();
    fixture.wait(HOUR / 2);
    fixture.round().await;
    let before = fixture.totals("2026-11");
    move_to(&fixture, -46_000);
    // Waldur's clock passes the end of the month while the round reads what Waldur has.
    fixture.waldur.set_clock_skew(2_000);
    let status = fixture.round().await;
    assert_eq!(status.failure, None);
    assert_eq!(fixture.totals("2026-11"), before);
    assert!(fixture.totals("2026-12").is_empty());
    let head = fixture.world.head();
    assert!(head.acknowledged <= head.last && running.len() == 3);
}

/// A report that Waldur executes after it was given up, and after a later one, is replaced in the next round. So are an
/// edited amount and deleted rows; an amount that is too high becomes a line.
#[tokio::test]
async fn a_total_that_changes_in_waldur_is_found_in_the_next_round() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let uuid = resource(&fixture);
    fixture
        .waldur
        .add_fault(Rule::new(SET_USAGE, Fault::Late).times(1));
    fixture.world.ran("physics", "batch", 1, HOUR);
    assert!(fixture.round().await.failure.is_some());
    fixture.wait(10 * 60_000);
    fixture.world.ran("physics", "batch", 1, HOUR);
    assert_eq!(fixture.round().await.failure, None);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    assert_eq!(fixture.waldur.run_late(), [201]);
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "node_hours")],
        200
    );
    fixture.round().await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());

    assert!(
        fixture
            .waldur
            .edit_usage(&uuid, "gpu_hours", "2026-11", "0.05")
    );
    fixture.round().await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    assert_eq!(fixture.waldur.delete_usages(&uuid, "2026-11"), 2);
    fixture.round().await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());

    assert!(
        fixture
            .waldur
            .edit_usage(&uuid, "gpu_hours", "2026-11", "99.00")
    );
    let status = fixture.round().await;
    let line = &status.parked["usage physics@batch 2026-11"];
    assert!(
        line.reason.contains("99.00 GPU-hours") && line.reason.contains("12.00"),
        "{line:?}"
    );
    // The line ends when the amount is right again.
    assert!(
        fixture
            .waldur
            .edit_usage(&uuid, "gpu_hours", "2026-11", "12.00")
    );
    assert_eq!(fixture.round().await.parked.len(), 0);
}

/// A report of November that Waldur executes in December is lowered to December's usage.
#[tokio::test]
async fn a_report_that_crossed_the_end_of_a_month_is_corrected() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    move_to(&fixture, -2 * (HOUR as i64));
    let running = fixture.world.start("physics", "batch", 1);
    fixture.wait(HOUR);
    fixture.round().await;
    fixture.wait(HOUR / 2);
    fixture.round().await;
    let late = fixture.totals("2026-11");
    // The last report of November, executed once more.
    move_to(&fixture, 5_000);
    let uuid = resource(&fixture);
    let usages: Vec<_> = ["gpu_hours", "node_hours"]
        .map(|kind| json!({"type": kind, "amount": format!("{}.{:02}", late[&id("physics@batch", kind)] / 100, late[&id("physics@batch", kind)] % 100)}))
        .into();
    let body = json!({"resource": uuid, "usages": usages});
    let (status, _) = fixture.waldur.request_as_admin("POST", SET_USAGE, &body);
    assert_eq!(status, 201);
    assert_eq!(fixture.totals("2026-12"), late);
    move_to(&fixture, HOUR as i64 / 2);
    fixture.world.end(running);
    fixture.round().await;
    assert_eq!(
        fixture.totals("2026-12"),
        fixture.world.truth(month_end(), fixture.world.now())
    );
}

/// Work that ends between two looks at the ledger leaves no total that is too high.
#[tokio::test]
async fn usage_counts_up_to_what_the_ledger_knows() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let running = fixture.world.start("physics", "batch", 8);
    fixture.wait(HOUR);
    // The clock of control is ahead of the last state that the ledger knows.
    fixture.world.shift_clock(10_000);
    fixture.waldur.set_clock_skew(-10_000);
    let status = fixture.round().await;
    assert_eq!(status.failure, None);
    assert_eq!(
        fixture.totals("2026-11")[&id("physics@batch", "gpu_hours")],
        3_200
    );
    fixture.world.shift_clock(-10_000);
    fixture.waldur.set_clock_skew(0);
    // The quorum's clock has followed that of control, and is not set back.
    fixture.world.end(running);
    let status = fixture.round().await;
    assert_eq!(status.parked.len(), 0, "{status:?}");
    fixture.assert_equal("2026-11", BEGIN, month_end());
}

/// Usage of both plans together is the usage of the month, each billed at its own price.
#[tokio::test]
async fn a_new_plan_gets_the_rest_of_the_month() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    let spec = OfferingSpec::slurm("batch")
        .usage("gpu_hours", "0.25")
        .usage("node_hours", "1")
        .limit("max_nodes")
        .plan("other", &[("gpu_hours", "0.5"), ("node_hours", "2")]);
    let offering = fixture.waldur.add_offering(&spec).unwrap().uuid;
    fixture.settings.offerings = [(vcluster("batch"), offering)].into();
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, 3 * HOUR);
    fixture.round().await;
    let uuid = resource(&fixture);
    switch_plan(&fixture, &uuid);
    for _ in 0..2 {
        fixture.world.ran("physics", "batch", 1, HOUR);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
        fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    }
    // Another control continues.
    fixture.succeeded(false);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
    let now = fixture.world.now();
    let mode = ReconcileMode::Correct;
    assert_eq!(fixture.sync.reconcile(BEGIN, now, mode).await.unwrap(), []);
}

/// Work that ran for a moment has a resource, which ends with it.
#[tokio::test]
async fn a_resource_of_a_short_allocation_ends() {
    let mut fixture =
        SyncFixture::with(Version::V7, |settings| settings.order_per_allocation = true).await;
    fixture.world.ran("physics", "batch", 1, 1_000);
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let made = fixture.waldur.snapshot();
    assert_eq!(made.resources.len(), 2);
    let are_ended = made
        .resources
        .iter()
        .all(|one| one["state"] == "Terminated");
    assert!(are_ended, "{:?}", made.resources);
}

/// Two clusters at one Waldur, with the same names and one offering, keep their resources apart.
#[tokio::test]
async fn clusters_at_one_waldur_keep_their_resources_apart() {
    let mut alps = SyncFixture::new(Version::V7).await;
    alps.world.ran("physics", "batch", 1, HOUR);
    alps.round().await;
    let offering = alps.waldur.snapshot().offerings[0]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut eiger = alps.neighbour("eiger", &offering);
    eiger.world.ran("physics", "batch", 1, 2 * HOUR);
    for _ in 0..2 {
        let status = eiger.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
        alps.world.ran("physics", "batch", 1, HOUR);
        let status = alps.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
    }
    let totals = alps.totals("2026-11");
    assert_eq!(totals[&id("physics@batch", "node_hours")], 300);
    let other = (
        "lattice:eiger:physics@batch".to_owned(),
        "node_hours".to_owned(),
    );
    assert_eq!(totals[&other], 200);
    let made = alps.waldur.snapshot();
    assert!(
        made.resources.iter().all(|one| one["state"] == "OK"),
        "{:?}",
        made.resources
    );
    assert_eq!((made.customers.len(), made.projects.len()), (2, 1));
}

/// The rights of a service provider are enough for resources that exist, without those of the customers' owner.
#[tokio::test]
async fn a_provider_reports_without_being_staff() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let provider = fixture.waldur.add_user("provider", Role::Provider);
    let site = fixture.waldur.snapshot().offerings[0]["customer_uuid"].clone();
    assert!(fixture.waldur.add_owner(site.as_str().unwrap(), "provider"));
    std::fs::write(fixture.folder.path().join("token"), provider).unwrap();
    fixture.succeeded(false);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    assert_eq!((status.failure, status.parked.len()), (None, 0));
    assert_eq!(status.version, None);
    fixture.assert_equal("2026-11", BEGIN, fixture.world.now());
}

/// An archived plan is never ordered; a key chooses among the others.
#[tokio::test]
async fn the_plan_of_an_order_is_chosen_by_the_settings() {
    let offer = |fixture: &SyncFixture| {
        let spec = OfferingSpec::slurm("batch")
            .usage("gpu_hours", "0.25")
            .usage("node_hours", "1")
            .limit("max_nodes")
            .archived_plan("aaa", &[])
            .plan("economy", &[])
            .plan("premium", &[]);
        fixture.waldur.add_offering(&spec).unwrap().uuid
    };
    for (wanted, plan) in [(None, "economy"), (Some("premium"), "premium")] {
        let mut fixture = SyncFixture::new(Version::V7).await;
        let offering = offer(&fixture);
        let batch = vcluster("batch");
        fixture.settings.offerings = [(batch.clone(), offering)].into();
        fixture.settings.plans = wanted
            .map(|plan| (batch, plan.to_owned()))
            .into_iter()
            .collect();
        fixture.succeeded(true);
        fixture.world.ran("physics", "batch", 1, HOUR);
        let status = fixture.round().await;
        assert_eq!((status.failure, status.parked.len()), (None, 0));
        assert_eq!(fixture.waldur.snapshot().resources[0]["plan_name"], plan);
    }
    let mut fixture = SyncFixture::new(Version::V7).await;
    let offering = offer(&fixture);
    let batch = vcluster("batch");
    fixture.settings.offerings = [(batch.clone(), offering)].into();
    fixture.settings.plans = [(batch, "aaa".to_owned())].into();
    fixture.succeeded(true);
    fixture.world.ran("physics", "batch", 1, HOUR);
    let status = fixture.round().await;
    let reasons: Vec<_> = status
        .parked
        .values()
        .map(|line| line.reason.clone())
        .collect();
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("no plan \"aaa\"")),
        "{reasons:?}"
    );
}

/// A customer's order for more nodes sets the limit within one round; one that contradicts the limits of projects is
/// refused.
#[tokio::test]
async fn orders_of_customers_are_answered() {
    let mut fixture = SyncFixture::new(Version::V7).await;
    fixture.world.ran("physics", "batch", 1, HOUR);
    fixture.round().await;
    let uuid = resource(&fixture);
    let order = |fixture: &SyncFixture, nodes: u64| {
        let target = format!("/api/marketplace-resources/{uuid}/update_limits/");
        let body = json!({"limits": {"max_nodes": nodes}});
        let (status, made) = fixture.waldur.request_as_admin("POST", &target, &body);
        assert_eq!(status, 200, "{made}");
        made["order_uuid"].as_str().unwrap().to_owned()
    };
    let state = |fixture: &SyncFixture, order: &str| {
        let target = format!("/api/marketplace-orders/{order}/");
        let (_, found) = fixture.waldur.request_as_admin("GET", &target, &json!({}));
        found["state"].as_str().unwrap().to_owned()
    };
    assert!(!fixture.sync.has_new_order().await);
    let first = order(&fixture, 70);
    assert!(fixture.sync.has_new_order().await);
    let status = fixture.round().await;
    assert!(!fixture.sync.has_new_order().await);
    assert_eq!(
        (&status.failure, status.parked.len()),
        (&None, 0),
        "{status:?}"
    );
    assert_eq!(state(&fixture, &first), "done");
    assert_eq!(fixture.world.max_nodes("physics"), Some(70));
    // The projects of physics may use 50 nodes.
    let second = order(&fixture, 20);
    fixture.round().await;
    assert_eq!(state(&fixture, &second), "rejected");
    assert_eq!(fixture.world.max_nodes("physics"), Some(70));
    let third = order(&fixture, 80);
    fixture.round().await;
    assert_eq!(state(&fixture, &third), "done");
    assert_eq!(fixture.world.max_nodes("physics"), Some(80));
}
