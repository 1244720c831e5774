//! BMC faults through the real client: each has its own reason, ends within its deadline, and costs one request and one
//! session at a time.

use crate::http_support;
use crate::http_support::{POWER, assert_polite, client, path, settings, simulated, small};
use lattice_conformance::{Reading, ReadingState};
use lattice_fake_bmc::{FakeBmc, Fault, Rule};
use lattice_redfish::http::{Bmc, Settings};
use lattice_redfish::{Breadth, Scope, Selector};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

async fn small_bmc() -> FakeBmc {
    simulated(small()).tls().unwrap().start().await.unwrap()
}

/// Fetches the power page of a BMC with this fault.
async fn fetch_with(fault: Fault) -> (FakeBmc, Reading<Value>) {
    let bmc = small_bmc().await;
    let client = client(&bmc, settings());
    // An existing login and connection, as in the field.
    assert!(client.fetch(&path("/redfish/v1")).await.is_known());
    bmc.break_path(POWER, fault);
    let reading = client.fetch(&path(POWER)).await;
    assert_polite(&bmc);
    bmc.clear_faults();
    let healed = client.fetch(&path(POWER)).await;
    assert_eq!(healed.state(), ReadingState::Present, "{healed:?}");
    client.close().await;
    assert_eq!(bmc.counters().sessions, 0);
    (bmc, reading)
}

fn reason(reading: &Reading<Value>) -> &str {
    match reading {
        Reading::Failed { why } | Reading::Denied { why } => why,
        other => panic!("no reason in {other:?}"),
    }
}

#[tokio::test]
async fn each_fault_has_its_own_state_and_reason() {
    let status = |code| Fault::Status {
        code,
        retry_after_s: None,
    };
    let away = Fault::Redirect {
        to: "https://other.example/redfish/v1".to_owned(),
        code: 302,
    };
    for (fault, state, words) in [
        (status(500), ReadingState::Failed, "status 500"),
        (status(403), ReadingState::Denied, "status 403"),
        (Fault::BrokenJson, ReadingState::Failed, "not valid JSON"),
        (
            Fault::TruncatedJson,
            ReadingState::Failed,
            "connection ended",
        ),
        (Fault::Reset, ReadingState::Failed, "connection ended"),
        (
            Fault::DeepJson { depth: 10_000 },
            ReadingState::Failed,
            "recursion limit",
        ),
        (
            Fault::Huge { bytes: 100_000_000 },
            ReadingState::Failed,
            &format!("larger than {}", Settings::default().body_limit),
        ),
        (
            away,
            ReadingState::Failed,
            "redirected to https://other.example",
        ),
    ] {
        let (_bmc, reading) = fetch_with(fault.clone()).await;
        assert_eq!(reading.state(), state, "{fault:?}: {reading:?}");
        let why = reason(&reading);
        assert!(why.contains(words), "{fault:?}: {why}");
    }
    let (_bmc, reading) = fetch_with(Fault::NotFound).await;
    assert_eq!(reading, Reading::Absent);
}

#[tokio::test]
async fn redirect_on_the_bmc_itself_is_followed() {
    let here = Fault::Redirect {
        to: "/redfish/v1/Systems/1".to_owned(),
        code: 302,
    };
    let (_bmc, reading) = fetch_with(here).await;
    let Reading::Present(value) = reading else {
        panic!("{reading:?}");
    };
    assert_eq!(value["@odata.id"], "/redfish/v1/Systems/1");
    let circle = Fault::Redirect {
        to: POWER.to_owned(),
        code: 302,
    };
    let (bmc, reading) = fetch_with(circle).await;
    let why = reason(&reading);
    assert!(why.ends_with("the redirects form a loop"), "{why}");
    assert!(bmc.counters().requests < 10);
}

#[tokio::test]
async fn a_large_answer_is_given_up_at_the_bound() {
    let began_at = Instant::now();
    let huge = Fault::Huge {
        bytes: 10_000_000_000,
    };
    let (_bmc, reading) = fetch_with(huge).await;
    assert_eq!(reading.state(), ReadingState::Failed);
    // Reading everything would take minutes.
    assert!(began_at.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_broken_connection_is_tried_once_more_and_not_twice() {
    let (bmc, reading) = fetch_with(Fault::Reset).await;
    assert_eq!(reading.state(), ReadingState::Failed);
    let asked = |bmc: &FakeBmc| {
        let log = bmc.counters().log;
        log.iter().filter(|line| line.ends_with(POWER)).count()
    };
    // Twice with the fault, once after it.
    assert_eq!(asked(&bmc), 3);
    let bmc = small_bmc().await;
    let client = client(&bmc, settings());
    bmc.fault(Rule::new(POWER, Fault::Reset).times(1));
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    assert_eq!(asked(&bmc), 2);
}

/// The runtime's clock is paused and advances only for awaited timers, so the real deadlines are used.
#[tokio::test(start_paused = true)]
async fn a_bmc_that_never_answers_costs_its_deadline_and_nothing_more() {
    for (asked, deadline) in [
        (POWER, 10),
        ("/redfish/v1/UpdateService/FirmwareInventory", 40),
    ] {
        let bmc = simulated(small()).start().await.unwrap();
        let client = client(&bmc, Settings::default());
        assert!(client.fetch(&path("/redfish/v1")).await.is_known());
        bmc.break_path(asked, Fault::BlackHole);
        let began_at = Instant::now();
        let reading = client.fetch(&path(asked)).await;
        let after_ms = deadline * 1000;
        assert_eq!(reading, Reading::Timeout { after_ms });
        let took = began_at.elapsed();
        assert!(took < Duration::from_secs(deadline + 1), "{took:?}");
        assert_polite(&bmc);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_within_the_deadline_is_an_answer() {
    let bmc = simulated(small()).start().await.unwrap();
    let client = client(&bmc, Settings::default());
    bmc.break_path(POWER, Fault::Slow { ms: 9_000 });
    let reading = client.fetch(&path(POWER)).await;
    assert_eq!(reading.state(), ReadingState::Present, "{reading:?}");
    bmc.clear_faults();
    bmc.break_path(POWER, Fault::Slow { ms: 11_000 });
    let reading = client.fetch(&path(POWER)).await;
    assert_eq!(reading, Reading::Timeout { after_ms: 10_000 });
}

#[tokio::test(start_paused = true)]
async fn a_whole_look_ends_at_its_own_deadline() {
    let tree = http_support::recorded("gigabyte-h262-ami");
    let bmc = simulated(tree).start().await.unwrap();
    // Each resource is within its own deadline, but all together exceed that of the pass.
    for (breadth, whole) in [(Breadth::Power, 20), (Breadth::Everything, 100)] {
        let settings = Settings {
            pass_timeout: Duration::from_secs(20),
            full_pass_timeout: Duration::from_secs(100),
            ..Settings::default()
        };
        let client = http_support::client(&bmc, settings);
        bmc.break_path("/redfish/v1/*", Fault::Slow { ms: 9_000 });
        let began_at = Instant::now();
        let scope = Scope {
            breadth,
            ..everything()
        };
        let look = client.read(&scope).await;
        let took = began_at.elapsed();
        assert!(took <= Duration::from_secs(whole + 1), "{took:?}");
        assert!(look.interpretation.wanted.is_empty());
        let after_ms = whole * 1000;
        let late = |reading: &Reading<Value>| *reading == Reading::Timeout { after_ms };
        assert!(look.documents.0.values().any(late), "{breadth:?}");
        bmc.clear_faults();
        client.close().await;
    }
    assert_polite(&bmc);
}

#[tokio::test(start_paused = true)]
async fn a_bmc_of_three_seconds_a_page_is_read_as_a_whole_all_the_same() {
    let tree = http_support::recorded("cray-ex235n-a100");
    let bmc = simulated(tree).start().await.unwrap();
    let client = client(&bmc, Settings::default());
    let scope = Scope {
        systems: Selector::Every,
        ..everything()
    };
    let quick = client.read(&scope).await.interpretation.report;
    bmc.break_path("/redfish/v1/*", Fault::Slow { ms: 3_000 });
    let look = client.read(&scope).await;
    assert!(look.took > Duration::from_secs(90), "{:?}", look.took);
    let slow = look.interpretation.report;
    assert_eq!(slow.nodes.len(), 2);
    for (quick, slow) in quick.nodes.iter().zip(&slow.nodes) {
        assert!(slow.bmc.state().digest().is_some(), "{:?}", slow.system);
        assert_eq!(slow.bmc.state(), quick.bmc.state());
        assert_eq!(slow.bios.state(), quick.bios.state());
    }
    assert_polite(&bmc);
}

fn everything() -> Scope {
    Scope {
        systems: Selector::Only,
        breadth: Breadth::Everything,
    }
}

#[tokio::test]
async fn connections_that_are_taken_and_left_alone_time_out() {
    let bmc = small_bmc().await;
    bmc.break_path("*", Fault::BlackHole);
    let quick = Settings {
        request_timeout: Duration::from_millis(200),
        ..settings()
    };
    let client = client(&bmc, quick);
    let reading = client.fetch(&path(POWER)).await;
    assert_eq!(reading, Reading::Timeout { after_ms: 200 });
}

#[tokio::test]
async fn a_bmc_that_is_not_there_is_unreachable() {
    let bmc = small_bmc().await;
    let client = client(&bmc, settings());
    drop(bmc);
    // The listener ends with its task.
    tokio::task::yield_now().await;
    let reading = client.fetch(&path(POWER)).await;
    let why = reason(&reading);
    assert!(why.contains("cannot connect"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_asks_for_patience_gets_it_once() {
    let busy = Fault::Status {
        code: 503,
        retry_after_s: Some(3),
    };
    let bmc = simulated(small()).start().await.unwrap();
    let client = client(&bmc, Settings::default());
    bmc.fault(Rule::new(POWER, busy.clone()).times(1));
    let began_at = Instant::now();
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    assert!(began_at.elapsed() >= Duration::from_secs(3));
    bmc.break_path(POWER, busy);
    let reading = client.fetch(&path(POWER)).await;
    assert!(reason(&reading).contains("the BMC is busy"), "{reading:?}");
    // No request is sent during the demanded delay if there is no time to wait.
    let long = Fault::Status {
        code: 503,
        retry_after_s: Some(100),
    };
    bmc.clear_faults();
    bmc.break_path(POWER, long);
    assert!(reason(&client.fetch(&path(POWER)).await).contains("the BMC is busy"));
    let before = bmc.counters().requests;
    assert!(reason(&client.fetch(&path("/redfish/v1/Systems")).await).contains("the BMC is busy"));
    assert_eq!(bmc.counters().requests, before);
}

/// The result of a pass over a BMC with this fault on every resource.
async fn look_with(fault: Fault) -> (FakeBmc, lattice_redfish::http::BmcPass) {
    let bmc = small_bmc().await;
    let client = client(&bmc, settings());
    bmc.break_path("/redfish/v1/*", fault);
    let look = client.read(&everything()).await;
    client.close().await;
    assert_polite(&bmc);
    assert!(look.interpretation.wanted.is_empty());
    (bmc, look)
}

#[tokio::test]
async fn content_that_is_wrong_is_unknown_and_never_a_value() {
    let (_bmc, look) = look_with(Fault::NullWatts).await;
    let node = look.interpretation.report.node().unwrap();
    assert_eq!(node.power.draw.present(), None, "{:?}", node.power);
    let (_bmc, look) = look_with(Fault::NaSerial).await;
    let node = look.interpretation.report.node().unwrap();
    assert_eq!(node.system.serial, Reading::Unsupported);
    let (_bmc, look) = look_with(Fault::MissingStatus).await;
    let node = look.interpretation.report.node().unwrap();
    assert!(node.power.draw.present().is_some(), "{:?}", node.power);
}

#[tokio::test]
async fn links_in_a_circle_end() {
    let (bmc, look) = look_with(Fault::CyclicLinks).await;
    let counters = bmc.counters();
    assert!(counters.requests < 30, "{counters:?}");
    assert!(look.documents.0.len() < 30);
}

#[tokio::test]
async fn one_member_that_is_missing_costs_only_itself() {
    let tree = http_support::recorded("gigabyte-h262-ami");
    let bmc = simulated(tree).tls().unwrap().start().await.unwrap();
    let client = client(&bmc, settings());
    let whole = client.read(&everything()).await;
    let inventory = "/redfish/v1/UpdateService/FirmwareInventory/BIOS";
    assert!(whole.documents.get(&path(inventory)).unwrap().is_known());
    bmc.break_path(inventory, Fault::NotFound);
    let without = client.read(&everything()).await;
    client.close().await;
    assert_eq!(
        without.documents.get(&path(inventory)),
        Some(&Reading::Absent)
    );
    let differ = |(name, reading): (&_, &_)| whole.documents.get(name) != Some(reading);
    let others = without.documents.0.iter().filter(|entry| differ(*entry));
    let others: Vec<_> = others.map(|(name, _)| name.as_str()).collect();
    assert_eq!(others, [inventory]);
    assert_polite(&bmc);
}

/// Twenty concurrent requests are sent one after another.
#[tokio::test]
async fn requests_wait_for_their_turn() {
    let bmc = small_bmc().await;
    let client = std::sync::Arc::new(client(&bmc, settings()));
    bmc.break_path(POWER, Fault::Slow { ms: 10 });
    let ask = |client: std::sync::Arc<Bmc>| async move { client.fetch(&path(POWER)).await };
    let asked: Vec<_> = (0..20).map(|_| tokio::spawn(ask(client.clone()))).collect();
    for one in asked {
        assert_eq!(one.await.unwrap().state(), ReadingState::Present);
    }
    client.close().await;
    let counters = bmc.counters();
    assert_eq!((counters.in_flight_max, counters.logins), (1, 1));
    assert_eq!((counters.connections, counters.sessions), (1, 0));
}
