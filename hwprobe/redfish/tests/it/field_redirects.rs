//! BMCs that redirect a request: within their scheme, host and port every redirect is followed, and no other one.

use crate::field_transport::{ALL, POWER, SESSIONS, plain, read, read_with, started};
use crate::http_support::{client, path, settings, simulated, small};
use lattice_conformance::{Milliwatts, Reading, ReadingState};
use lattice_fake_bmc::{Fault, Rule};
use lattice_redfish::{Breadth, Scope, Selector};

/// Every status with which a server redirects.
const REDIRECTS: [u16; 6] = [300, 301, 302, 303, 307, 308];

#[tokio::test]
async fn redirects_within_the_origin_are_followed() {
    let expected = plain().await;
    for code in REDIRECTS {
        for is_absolute in [false, true] {
            for rule in [
                Rule::new(ALL, slash(code, None)),
                Rule::new(SESSIONS, slash(code, None)).method("POST"),
            ] {
                let bmc = started().await;
                let origin = is_absolute.then(|| bmc.url());
                let fault = slash(code, origin);
                bmc.fault(Rule { fault, ..rule });
                let node = read(&bmc).await;
                assert_eq!(node.as_ref(), Ok(&expected), "{code} {is_absolute}");
            }
        }
    }
}

#[tokio::test]
async fn redirects_to_another_path_of_the_origin_are_followed() {
    let expected = plain().await;
    for code in REDIRECTS {
        let node = read_with([Rule::new(ALL, Fault::MovedRedirect { code })]).await;
        assert_eq!(node.as_ref(), Ok(&expected), "{code}");
    }
}

#[tokio::test]
async fn redirected_change_is_repeated() {
    for code in [301, 302, 307, 308] {
        let bmc = simulated(small()).start().await.unwrap();
        let client = client(&bmc, settings());
        let scope = Scope {
            systems: Selector::Only,
            breadth: Breadth::Power,
        };
        let pass = client.read(&scope).await;
        let route = pass.interpretation.report.node().unwrap().route.clone();
        for fault in [slash(code, None), Fault::MovedRedirect { code }] {
            bmc.fault(Rule::new(POWER, fault).method("PATCH"));
        }
        let limit = Some(Milliwatts(300_000));
        let confirmed = client.set_limit(&route, limit).await.unwrap();
        assert_eq!(confirmed.limit(), limit, "{code}");
        client.close().await;
    }
}

/// Each path without a slash at its end is redirected to the one with a slash.
fn slash(code: u16, origin: Option<String>) -> Fault {
    Fault::SlashRedirect { code, origin }
}

#[tokio::test]
async fn credentials_stay_at_the_origin() {
    for code in REDIRECTS {
        let (bmc, other) = (started().await, started().await);
        let port = other.address().port();
        for to in [
            other.url(),
            format!("//127.0.0.1:{port}"),
            // The same service under another name, and another scheme.
            format!("http://localhost:{}", bmc.address().port()),
            format!("https://{}", bmc.address()),
            format!("http://admin:secret@{}", bmc.address()),
        ] {
            // At a resource, with a session; and at the login, with the password.
            for (place, method) in [(POWER, "GET"), (SESSIONS, "POST")] {
                bmc.clear_faults();
                bmc.fault(Rule::new(place, slash(code, Some(to.clone()))).method(method));
                let client = client(&bmc, settings());
                let before = bmc.counters().requests;
                let reading = client.fetch(&path(POWER)).await;
                client.close().await;
                let Reading::Failed { why } = reading else {
                    panic!("{code} {to}: {reading:?}");
                };
                let expected = "its scheme, host or port is not the BMC's";
                assert!(why.contains(expected), "{why}");
                // The login, the refused request and the end of the session; or the login alone.
                let expected = if method == "GET" { 3 } else { 1 };
                assert_eq!(bmc.counters().requests - before, expected, "{code} {to}");
            }
        }
        let counters = other.counters();
        assert_eq!((counters.connections, counters.requests), (0, 0), "{code}");
    }
}

#[tokio::test]
async fn redirects_without_a_target_or_without_end_are_not_followed() {
    let to = |to: &str| Fault::Redirect {
        to: to.to_owned(),
        code: 302,
    };
    let step = |at: usize| format!("/redfish/v1/Step{at}");
    for (target, words) in [
        ("", "not a valid target"),
        (POWER, "form a loop"),
        ("Power#Part", "form a loop"),
        ("/redfish/v1/Step0", "too many redirects"),
    ] {
        let bmc = started().await;
        bmc.break_path(POWER, to(target));
        for at in 0..8 {
            bmc.break_path(step(at), to(&step(at + 1)));
        }
        let client = client(&bmc, settings());
        let reading = client.fetch(&path(POWER)).await;
        let Reading::Failed { why } = reading else {
            panic!("{target}: {reading:?}");
        };
        assert!(why.contains(words), "{target}: {why}");
        assert!(bmc.counters().requests < 10, "{target}");
        client.close().await;
    }
}

#[tokio::test]
async fn page_in_place_of_a_resource_is_no_value() {
    let bmc = started().await;
    let to = "/redfish/v1/login.html".to_owned();
    let html = Fault::Body {
        code: 200,
        text: "<html><input type=password></html>".to_owned(),
    };
    bmc.break_path(to.as_str(), html);
    bmc.break_path(POWER, Fault::Redirect { to, code: 302 });
    let node = read(&bmc).await.unwrap();
    assert_eq!(node.power.draw.state(), ReadingState::Failed);
}

#[tokio::test]
async fn relative_redirects_are_followed() {
    for (to, id) in [
        ("Power/", None),
        ("../../Systems/1", Some("1")),
        ("/redfish/v1/Systems/1#Part", Some("1")),
    ] {
        let bmc = started().await;
        let code = 307;
        let to = to.to_owned();
        bmc.fault(Rule::new(POWER, Fault::Redirect { to, code }).times(1));
        let client = client(&bmc, settings());
        let reading = client.fetch(&path(POWER)).await;
        let found = reading.present().map(|value| value["Id"].as_str());
        assert_eq!(found, Some(id), "{reading:?}");
        client.close().await;
    }
}
