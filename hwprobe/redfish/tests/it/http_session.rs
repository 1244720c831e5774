//! Logins, certificates, and the circuit breaker.

use crate::http_support::{ManualClock, PASSWORD, POWER};
use crate::http_support::{
    assert_polite, client, endpoint, environment, path, recorded, settings, simulated, small,
};
use lattice_conformance::{Reading, ReadingState};
use lattice_fake_bmc::{FakeBmc, Fault, Identity, Rule};
use lattice_redfish::http::{BasicAuth, Bmc, BreakerState, Endpoint, EndpointError, Environment};
use lattice_redfish::http::{LimitWriter, Pin, ReadOnly, Settings, Trust};
use lattice_redfish::{Breadth, Scope, Selector};
use secrecy::SecretString;
use serde_json::Value;
use std::time::Duration;

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

async fn started() -> FakeBmc {
    simulated(small()).tls().unwrap().start().await.unwrap()
}

fn reader(endpoint: Endpoint) -> Bmc {
    Bmc::new(ReadOnly(endpoint), None, settings(), Environment::system()).unwrap()
}

fn why(reading: Reading<Value>) -> String {
    match reading {
        Reading::Failed { why } | Reading::Denied { why } => why,
        other => panic!("no reason in {other:?}"),
    }
}

#[tokio::test]
async fn one_session_serves_many_reads_and_is_closed() {
    let bmc = started().await;
    let client = client(&bmc, settings());
    for _ in 0..5 {
        assert_eq!(
            client.fetch(&path(POWER)).await.state(),
            ReadingState::Present
        );
    }
    let counters = bmc.counters();
    assert_eq!((counters.logins, counters.sessions), (1, 1));
    client.close().await;
    assert_eq!(bmc.counters().sessions, 0);
    assert_polite(&bmc);
}

#[tokio::test]
async fn a_session_that_the_bmc_forgot_is_made_again() {
    let bmc = started().await;
    let client = client(&bmc, settings());
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    bmc.reboot(Duration::ZERO);
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    assert_eq!(bmc.counters().logins, 2);
    client.close().await;
    assert_polite(&bmc);
}

#[tokio::test]
async fn a_bmc_that_forgets_every_session_is_not_asked_for_ever() {
    let bmc = started().await;
    let client = client(&bmc, settings());
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    let forgets = Fault::Status {
        code: 401,
        retry_after_s: None,
    };
    bmc.break_path(POWER, forgets);
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Denied
    );
    let counters = bmc.counters();
    assert_eq!((counters.logins, counters.sessions), (2, 1));
}

#[tokio::test]
async fn forbidden_resources_cost_one_login() {
    let tree = recorded("cray-ex235n-a100");
    let bmc = simulated(tree).tls().unwrap().start().await.unwrap();
    // The answer of some BMCs if the account lacks a privilege.
    let refused = Fault::Status {
        code: 401,
        retry_after_s: None,
    };
    bmc.break_path("/redfish/v1/UpdateService/FirmwareInventory/*", refused);
    let client = client(&bmc, settings());
    let scope = Scope {
        systems: Selector::Every,
        breadth: Breadth::Everything,
    };
    for look in 1..=2 {
        let documents = client.read(&scope).await.documents.0;
        let denied = documents
            .values()
            .filter(|one| one.state() == ReadingState::Denied);
        assert!(denied.count() > 3);
        // Resources open to the account are read with the same login, before and after.
        let read = documents
            .values()
            .filter(|one| one.state() == ReadingState::Present);
        assert!(read.count() > 10);
        let counters = bmc.counters();
        assert_eq!((counters.logins, counters.sessions), (1 + look, 1));
        assert_polite(&bmc);
    }
    // A session that the BMC has forgotten is renewed as usual.
    bmc.clear_faults();
    bmc.reboot(Duration::ZERO);
    assert!(client.fetch(&path("/redfish/v1/Chassis")).await.is_known());
    client.close().await;
    assert_eq!(bmc.counters().sessions, 0);
}

#[tokio::test]
async fn a_wrong_password_is_named_as_such_and_never_shown() {
    let bmc = started().await;
    let secret = "hunter2-hunter2";
    let trust = Trust::Pinned(bmc.pin().unwrap());
    let wrong = Endpoint::new(&bmc.url(), "reader", SecretString::from(secret), trust).unwrap();
    let client = reader(wrong);
    let reading = client.fetch(&path(POWER)).await;
    assert_eq!(reading.state(), ReadingState::Denied);
    let debug = format!("{client:?}");
    let why = why(reading);
    assert!(why.contains("user \"reader\""), "{why}");
    for text in [&why, &debug] {
        assert!(!text.contains(secret), "{text}");
    }
    let counters = bmc.counters();
    assert_eq!(
        (counters.requests, counters.sessions),
        (1, 0),
        "{counters:?}"
    );
}

#[tokio::test]
async fn tokens_and_passwords_are_in_no_debug_output() {
    let bmc = started().await;
    let client = client(&bmc, settings());
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    let debug = format!("{client:?}");
    assert!(!debug.contains(PASSWORD), "{debug}");
    assert!(debug.contains("REDACTED"), "{debug}");
}

#[tokio::test]
async fn another_certificate_is_refused_and_named() {
    let bmc = started().await;
    let other = Identity::generate().unwrap().pin();
    let trust = Trust::Pinned(other);
    let pinned = Endpoint::new(&bmc.url(), "reader", SecretString::from(PASSWORD), trust).unwrap();
    let why = why(reader(pinned).fetch(&path(POWER)).await);
    assert!(why.contains(&bmc.pin().unwrap().to_string()), "{why}");
    assert!(why.contains(&other.to_string()), "{why}");
    assert_eq!(bmc.counters().requests, 0);
}

#[tokio::test]
async fn a_self_signed_certificate_is_refused_with_the_pin_that_would_do() {
    let bmc = started().await;
    let secret = || SecretString::from(PASSWORD);
    let system = Endpoint::new(&bmc.url(), "reader", secret(), Trust::System).unwrap();
    let why = why(reader(system).fetch(&path(POWER)).await);
    let shown = why.rsplit_once("pin ").unwrap().1;
    let pin: Pin = shown.parse().unwrap();
    assert_eq!(Some(pin), bmc.pin(), "{why}");
    // The new pin works.
    let trust = Trust::Pinned(pin);
    let pinned = Endpoint::new(&bmc.url(), "reader", secret(), trust).unwrap();
    let client = reader(pinned);
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    let insecure = Endpoint::new(&bmc.url(), "reader", secret(), Trust::Insecure).unwrap();
    assert_eq!(
        reader(insecure).fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
}

#[tokio::test]
async fn a_certificate_from_a_file_is_trusted() {
    let identity = Identity::generate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bmc.pem");
    std::fs::write(&file, identity.pem()).unwrap();
    let builder = simulated(small()).identity(identity.into());
    let bmc = builder.start().await.unwrap();
    let trust = Trust::CaFile(file);
    let secret = SecretString::from(PASSWORD);
    let trusting = Endpoint::new(&bmc.url(), "reader", secret, trust).unwrap();
    let reading = reader(trusting).fetch(&path(POWER)).await;
    assert_eq!(reading.state(), ReadingState::Present, "{reading:?}");
}

#[tokio::test]
async fn without_a_session_left_basic_is_used_only_where_it_is_allowed() {
    for code in [400, 503] {
        let bmc = started().await;
        let exhausted = Fault::SessionsExhausted { code };
        bmc.break_path(SESSIONS, exhausted);
        let strict = reader(endpoint(&bmc, "reader"));
        let why = why(strict.fetch(&path(POWER)).await);
        assert!(why.contains("no free session"), "{why}");
        let allowed = endpoint(&bmc, "reader").basic(BasicAuth::AlsoWhenExhausted);
        let client = reader(allowed);
        assert_eq!(
            client.fetch(&path(POWER)).await.state(),
            ReadingState::Present
        );
        assert_eq!(bmc.counters().logins, 0);
    }
}

#[tokio::test]
async fn session_exhaustion_ends_on_logout() {
    let builder = simulated(small()).sessions(1, Duration::from_secs(300));
    let bmc = builder.start().await.unwrap();
    let first = client(&bmc, settings());
    assert_eq!(
        first.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    let second = client(&bmc, settings());
    let why = why(second.fetch(&path(POWER)).await);
    assert!(why.contains("no free session"), "{why}");
    first.close().await;
    assert_eq!(
        second.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
}

#[tokio::test]
async fn a_bmc_without_a_session_service_is_asked_with_basic() {
    let bmc = started().await;
    bmc.break_path("/redfish/v1/SessionService*", Fault::NotFound);
    let client = client(&bmc, settings());
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    let never = endpoint(&bmc, "reader").basic(BasicAuth::Never);
    assert_eq!(
        reader(never).fetch(&path(POWER)).await.state(),
        ReadingState::Denied
    );
    // A wrong password is rejected over Basic authentication too.
    let trust = Trust::Pinned(bmc.pin().unwrap());
    let wrong = Endpoint::new(&bmc.url(), "reader", SecretString::from("x"), trust).unwrap();
    let why = why(reader(wrong).fetch(&path(POWER)).await);
    assert!(why.contains("does not accept user"), "{why}");
}

#[tokio::test]
async fn reading_and_capping_are_for_one_bmc() {
    let (one, two) = (started().await, started().await);
    let (reads, caps) = (endpoint(&one, "reader"), endpoint(&two, "capper"));
    let system = Environment::system();
    let refused =
        Bmc::new(ReadOnly(reads), Some(LimitWriter(caps)), settings(), system).unwrap_err();
    assert!(matches!(refused, EndpointError::DifferentBmcs { .. }));
}

#[tokio::test]
async fn three_failures_open_the_breaker_and_one_answer_closes_it() {
    let bmc = started().await;
    let hands = ManualClock::default();
    let reads = ReadOnly(endpoint(&bmc, "reader"));
    let client = Bmc::new(reads, None, settings(), environment(&hands)).unwrap();
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    bmc.break_path("/redfish/v1/Chassis*", Fault::Reset);
    for failed in 1..=3 {
        assert_eq!(
            client.breaker(),
            BreakerState::Closed,
            "after {} failures",
            failed - 1
        );
        assert_eq!(
            client.fetch(&path(POWER)).await.state(),
            ReadingState::Failed
        );
    }
    let first = Settings::default().breaker_min_open;
    assert_eq!(client.breaker(), BreakerState::Open { until: first });
    // While the breaker is open, no request is sent for any resource, and the error names the breaker.
    let before = bmc.counters().requests;
    let reason = why(client.fetch(&path("/redfish/v1")).await);
    assert!(
        reason.contains("no request sent: circuit breaker open after 3 failed requests"),
        "{reason}"
    );
    assert!(reason.contains("connection ended"), "{reason}");
    assert_eq!(bmc.counters().requests, before);
    // One attempt, then a pause twice as long.
    hands.forward(first);
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Failed
    );
    assert_eq!(client.breaker(), BreakerState::Open { until: first * 3 });
    hands.forward(first * 2);
    bmc.clear_faults();
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    assert_eq!(client.breaker(), BreakerState::Closed);
    client.close().await;
    assert_polite(&bmc);
}

#[tokio::test]
async fn a_bmc_that_is_unavailable_opens_it_as_silence_does() {
    let bmc = started().await;
    let client = client(&bmc, settings());
    let unavailable = Fault::Status {
        code: 503,
        retry_after_s: None,
    };
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    bmc.break_path(POWER, unavailable);
    for _ in 0..3 {
        assert_eq!(
            client.fetch(&path(POWER)).await.state(),
            ReadingState::Failed
        );
    }
    assert!(matches!(client.breaker(), BreakerState::Open { .. }));
}

#[tokio::test]
async fn a_resource_that_is_broken_for_ever_opens_no_breaker() {
    let bmc = started().await;
    let client = client(&bmc, settings());
    bmc.break_path(POWER, Fault::BrokenJson);
    let fails = Fault::Status {
        code: 500,
        retry_after_s: None,
    };
    bmc.fault(Rule::new("/redfish/v1/Systems/1", fails));
    for _ in 0..5 {
        assert_eq!(
            client.fetch(&path(POWER)).await.state(),
            ReadingState::Failed
        );
        assert_eq!(
            client.fetch(&path("/redfish/v1/Systems/1")).await.state(),
            ReadingState::Failed
        );
    }
    assert_eq!(client.breaker(), BreakerState::Closed);
    assert_eq!(
        client.fetch(&path("/redfish/v1")).await.state(),
        ReadingState::Present
    );
}

#[tokio::test]
async fn a_bmc_that_restarts_is_found_again() {
    let bmc = started().await;
    let client = client(&bmc, settings());
    assert_eq!(
        client.fetch(&path(POWER)).await.state(),
        ReadingState::Present
    );
    bmc.reboot(Duration::from_millis(300));
    // The old connection still works, its session does not, and no new session is accepted.
    let fetched = async {
        loop {
            if let Reading::Present(_) = client.fetch(&path(POWER)).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), fetched)
        .await
        .unwrap();
    client.close().await;
    assert_polite(&bmc);
}
