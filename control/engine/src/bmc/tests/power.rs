//! Power draw and limit of a BMC that hangs, is dead, or rejects the login.

use super::*;
use crate::bmc::readings::PowerSeen;

/// A plan with complete readings every `interval_s` seconds and power readings every second.
fn plan(folder: &Path, url: &str, interval_s: u64) -> BmcPlan {
    let entry = format!("url: '{url}', nodes: gpu001");
    let path = file(folder, &[entry]);
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace(
        "\ninterval_s: 2\n",
        &format!("\ninterval_s: {interval_s}\n"),
    );
    fs::write(&path, text).unwrap();
    BmcPlan::load(&path).unwrap()
}

fn seen(readings: &Readings) -> Option<Arc<PowerSeen>> {
    readings.power(&id("gpu001"))
}

/// Checks for `how_long` that draw and limit are neither reported absent nor read.
async fn stays_unknown(fixture: &BmcFixture, last: &PowerSeen, how_long: Duration) {
    let ends_at = Instant::now() + how_long;
    while Instant::now() < ends_at {
        let now = seen(&fixture.readings).unwrap();
        if now.power != last.power {
            assert!(!now.power.draw.is_known(), "{now:?}");
            assert_eq!(now.power.limit_state, LimitState::Unknown, "{now:?}");
        }
        assert_eq!(now.read_at, last.read_at, "nobody answered: {now:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn dying_bmc_never_reports_no_limit() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let fixture = BmcFixture::start(plan(folder.path(), &bmc.url(), 3600));
    let drawn = |r: &Readings| seen(r).filter(|s| s.power.draw.present().is_some());
    fixture.until("a draw", drawn).await;
    // Every value except power answers, and an operator requests a reading.
    bmc.break_path("/redfish/v1/Chassis*", Fault::Slow { ms: 600_000 });
    let looked = fixture.readings.look(&id("gpu001"), "ada", LONG).await;
    assert!(
        matches!(looked, Some(RequestedReading::Read { .. })),
        "{looked:?}"
    );
    let hung = seen(&fixture.readings).unwrap();
    assert!(!hung.power.draw.is_known(), "{hung:?}");
    let requests = bmc.counters().requests;
    stays_unknown(&fixture, &hung, Duration::from_secs(4)).await;
    // The BMC is dead: its port accepts no connection.
    bmc.break_path("*", Fault::Reset);
    stays_unknown(&fixture, &hung, Duration::from_secs(4)).await;
    assert!(hung.read_at.is_some() && bmc.counters().requests >= requests);
    bmc.clear_faults();
    let again = fixture.until("a draw again", |r| {
        drawn(r).filter(|s| s.read_at > hung.read_at)
    });
    assert_ne!(again.await.power.limit_state, LimitState::Unknown);
}

#[tokio::test]
async fn power_that_is_nowhere_found_any_more_is_looked_for_and_not_absent() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let fixture = BmcFixture::start(plan(folder.path(), &bmc.url(), 3600));
    let drawn = |r: &Readings| seen(r).filter(|s| s.power.draw.present().is_some());
    let before = fixture.until("a draw", drawn).await;
    // As a BMC does while it starts.
    bmc.break_path("*", Fault::NotFound);
    let unknown = |r: &Readings| seen(r).filter(|s| s.power != before.power);
    let now = fixture.until("nothing", unknown).await;
    assert!(!now.power.draw.is_known(), "{now:?}");
    assert_eq!(now.power.limit_state, LimitState::Unknown, "{now:?}");
    bmc.clear_faults();
    fixture.until("a draw again", drawn).await;
}

#[tokio::test]
async fn corrected_password_is_used_without_request() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let password = folder.path().join("password");
    let right = fs::read_to_string(&password).unwrap();
    fs::write(&password, "not this one\n").unwrap();
    let fixture = BmcFixture::start(plan(folder.path(), &bmc.url(), 3600));
    let denied = fixture.until("a reason", seen).await;
    let Reading::Denied { why } = &denied.power.draw else {
        panic!("{denied:?}");
    };
    assert!(why.contains("does not accept user \"admin\""), "{why}");
    assert_eq!(denied.read_at, None);
    fs::write(&password, right).unwrap();
    let drawn = |r: &Readings| seen(r).filter(|s| s.power.draw.present().is_some());
    let began_at = Instant::now();
    fixture.until("a draw", drawn).await;
    // Before the end of the minute for which a BMC that did not answer is left alone.
    assert!(began_at.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn the_bmc_of_another_machine_is_a_reason_and_ends_none_of_the_others() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let system = "/redfish/v1/Systems/1";
    for (pointer, value) in [
        ("/Manufacturer", "Dell Inc."),
        ("/Model", "PowerEdge XE9680"),
    ] {
        assert!(bmc.set(system, pointer, value.into()));
    }
    let entry = format!("url: '{}', nodes: gpu777", bmc.url());
    let plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    let fixture = BmcFixture::start(plan);
    let reasons = |r: &Readings| {
        let reasons = r.parts(&id("gpu777"))?.reasons.clone();
        (!reasons.is_empty()).then_some(reasons)
    };
    let found_reasons = fixture.until("a reason", reasons).await;
    assert_eq!(
        (found_reasons.len(), &*found_reasons[0].code),
        (1, "bmc.wrong_system")
    );
    assert_eq!(
        found_reasons[0].evidence,
        "host is HPE HPE Cray EX235n, but BMC system 1 is Dell Inc. PowerEdge XE9680"
    );
    assert!(!found_reasons[0].drains(), "{found_reasons:?}");
    // The BMC reports no identity, so its ownership is unknown.
    for pointer in ["/Manufacturer", "/Model"] {
        assert!(bmc.set(system, pointer, "".into()));
    }
    let unverified = |r: &Readings| {
        let found_reasons = reasons(r)?;
        (found_reasons[0].code == "bmc.unverified").then_some(found_reasons)
    };
    fixture.until("nothing to compare", unverified).await;
    // The BMC reports the identity of the node again.
    assert!(bmc.set(system, "/Model", "HPE Cray EX235n".into()));
    let fine = |r: &Readings| r.parts(&id("gpu777"))?.reasons.is_empty().then_some(());
    fixture.until("its own", fine).await;
}
