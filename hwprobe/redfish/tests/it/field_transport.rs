//! BMCs that answer in their own way: compressed, at another path, with damaged strings, with an error and status 200.
//! Each is read like a plain one, or loses the damaged value alone.

use crate::http_support::{assert_polite, client, path, settings, simulated};
use lattice_conformance::{ClassState, LimitState, Milliwatts, Reading, ReadingState};
use lattice_fake_bmc::{CompressedFormat, FakeBmc, Fault, Rule, Tree};
use lattice_redfish::http::Settings;
use lattice_redfish::{Breadth, NoSystemReason, NodeReport, Scope, Selector};
use serde_json::{Value, json};
use std::path::Path;

const ALL: &str = "/redfish/v1*";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const SYSTEM: &str = "/redfish/v1/Systems/1";
const POWER: &str = "/redfish/v1/Chassis/1/Power";
const NIC: &str = "/redfish/v1/UpdateService/FirmwareInventory/NIC";
const REGISTRY: &str = "/redfish/v1/registrystore/registries/en/biosattributeregistrya1.v1_0_0";
/// Every status with which a server redirects.
const REDIRECTS: [u16; 6] = [300, 301, 302, 303, 307, 308];

async fn started() -> FakeBmc {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bmc/field");
    let tree = Tree::load(&folder).unwrap();
    simulated(tree).start().await.unwrap()
}

/// A complete reading of the BMC. The session is closed afterwards, also through redirects.
async fn read(bmc: &FakeBmc) -> Result<NodeReport, NoSystemReason> {
    let client = client(bmc, settings());
    let scope = Scope {
        systems: Selector::Only,
        breadth: Breadth::Everything,
    };
    let pass = client.read(&scope).await;
    client.close().await;
    assert_polite(bmc);
    assert_eq!(bmc.counters().sessions, 0);
    pass.interpretation.report.node().cloned()
}

/// A complete reading of a BMC with these faults.
async fn read_with(faults: impl IntoIterator<Item = Rule>) -> Result<NodeReport, NoSystemReason> {
    let bmc = started().await;
    for fault in faults {
        bmc.fault(fault);
    }
    read(&bmc).await
}

async fn plain() -> NodeReport {
    let node = read(&started().await).await.unwrap();
    for record in [&node.bmc, &node.bios] {
        assert!(
            matches!(record.state(), ClassState::Complete { .. }),
            "{record:?}"
        );
    }
    let names = node.bios.get("bios.setting.names").to_string();
    assert_eq!(
        names,
        "ProcHyperthreading SubNumaClustering WorkloadProfile"
    );
    assert_eq!(node.power.draw, Reading::Present(Milliwatts(540_000)));
    node
}

fn missing(state: ClassState) -> Vec<String> {
    match state {
        ClassState::Incomplete { missing } => missing.into_keys().collect(),
        ClassState::Complete { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn raw_text(text: &str, bytes: &[u8]) -> Fault {
    Fault::RawText {
        text: text.to_owned(),
        bytes: bytes.to_vec(),
    }
}

#[tokio::test]
async fn compressed_answers_are_read() {
    let expected = plain().await;
    for format in [
        CompressedFormat::Gzip,
        CompressedFormat::GzipUnmarked,
        CompressedFormat::Zlib,
        CompressedFormat::RawDeflate,
    ] {
        for place in [ALL, REGISTRY, SESSIONS] {
            let fault = Rule::new(place, Fault::Compressed { format });
            let node = read_with([fault]).await;
            assert_eq!(node.as_ref(), Ok(&expected), "{format:?} {place}");
        }
    }
}

#[tokio::test]
async fn large_unpacked_answer_is_refused() {
    let bmc = started().await;
    bmc.break_path(REGISTRY, Fault::HugeCompressed { bytes: 20 << 20 });
    let node = read(&bmc).await.unwrap();
    assert_eq!(
        missing(node.bios.state()),
        ["bios.registry", "bios.setting.names"]
    );
    let why = node.bios.get("bios.registry").to_string();
    let limit = format!("larger than {} bytes", Settings::default().body_limit);
    assert!(why.contains(&limit), "{why}");
}

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
async fn redirects_outside_the_service_or_without_end_are_not_followed() {
    let to = |to: &str| Fault::Redirect {
        to: to.to_owned(),
        code: 302,
    };
    let step = |at: usize| format!("/redfish/v1/Step{at}");
    for (target, words) in [
        ("/login.html", "outside the Redfish service"),
        (
            "/redfish/v1/%2e%2e/%2e%2e/admin",
            "outside the Redfish service",
        ),
        ("", "not a valid target"),
        (POWER, "form a loop"),
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

#[tokio::test]
async fn byte_order_mark_is_ignored() {
    let expected = plain().await;
    let bytes = vec![0xef, 0xbb, 0xbf];
    let node = read_with([Rule::new(ALL, Fault::Prefix { bytes })]).await;
    assert_eq!(node, Ok(expected));
}

#[tokio::test]
async fn damaged_text_that_is_not_compared_costs_nothing() {
    let expected = plain().await;
    for bytes in [
        &b"rack \xff\xff"[..],
        b"rack\r7",
        b"rack\x007",
        b"rack \\x7",
        b"rack \\ud800",
    ] {
        let fault = raw_text("rack 7", bytes);
        let node = read_with([Rule::new(SYSTEM, fault)]).await;
        assert_eq!(node.as_ref(), Ok(&expected), "{bytes:?}");
    }
}

#[tokio::test]
async fn damaged_text_costs_its_own_value() {
    let expected = plain().await;
    let key = "bmc.inventory.nic.version";
    let fault = raw_text("28.41.1000", b"28.41\xff1000");
    let node = read_with([Rule::new(NIC, fault)]).await.unwrap();
    assert_eq!(missing(node.bmc.state()), [key]);
    let why = node.bmc.get(key).to_string();
    assert!(
        why.contains("Version contains bytes that are not UTF-8"),
        "{why}"
    );
    assert_eq!((&node.bios, &node.power), (&expected.bios, &expected.power));
    // A damaged value of a setting: two of them may look equal.
    let fault = raw_text("Custom", b"Cust\xf6m");
    let bios = "/redfish/v1/Systems/1/Bios";
    let node = read_with([Rule::new(bios, fault)]).await.unwrap();
    assert_eq!(missing(node.bios.state()), ["bios.setting.WorkloadProfile"]);
    assert_eq!(node.bmc, expected.bmc);
    // Whitespace and line ends at the end of a version do not belong to it.
    let fault = raw_text("28.41.1000", b"28.41.1000\r");
    let node = read_with([Rule::new(NIC, fault)]).await;
    assert_eq!(node, Ok(expected));
}

#[tokio::test]
async fn damage_outside_of_texts_is_not_a_value() {
    let fault = raw_text(":540", b":54\xff");
    let node = read_with([Rule::new(POWER, fault)]).await.unwrap();
    assert_eq!(node.power.draw.state(), ReadingState::Failed);
    assert_eq!(node.power.limit_state, LimitState::Unknown);
}

fn error_with_status_200() -> Fault {
    Fault::Status {
        code: 200,
        retry_after_s: None,
    }
}

#[tokio::test]
async fn error_with_status_200_is_no_resource() {
    let expected = plain().await;
    let fails = |at: &str| [Rule::new(at, error_with_status_200())];
    let node = read_with(fails(NIC)).await.unwrap();
    let key = "bmc.inventory.nic.version";
    assert_eq!(missing(node.bmc.state()), [key]);
    let why = node.bmc.get(key).to_string();
    let words = "status 200, but the body is an error: \"Base.1.8.InternalError";
    assert!(why.contains(words), "{why}");
    assert_eq!(node.bios, expected.bios);
    let node = read_with(fails("/redfish/v1/Systems/1/Bios"))
        .await
        .unwrap();
    assert_eq!(
        missing(node.bios.state()),
        ["bios.registry", "bios.setting.names"]
    );
    let node = read_with(fails(POWER)).await.unwrap();
    assert_eq!(node.power.draw.state(), ReadingState::Failed);
    let why = read_with(fails("/redfish/v1/Systems")).await.unwrap_err();
    assert!(matches!(why, NoSystemReason::Unread { .. }), "{why}");
}

#[tokio::test]
async fn login_error_with_status_200_is_named() {
    let bmc = started().await;
    bmc.break_path(SESSIONS, error_with_status_200());
    let client = client(&bmc, settings());
    let reading: Reading<Value> = client.fetch(&path(POWER)).await;
    let why = reading.to_string();
    assert!(why.contains("a session without a token: Base.1.8"), "{why}");
    // One login, and nothing else.
    assert_eq!(bmc.counters().requests, 1);
}

#[tokio::test]
async fn member_with_blanks_is_requested() {
    let bmc = started().await;
    let list = "/redfish/v1/UpdateService/FirmwareInventory";
    let member = format!("{list}/Installed-0-        __NIC.Slot.1-1");
    assert!(bmc.add(list, json!({"@odata.id": member})));
    let node = read(&bmc).await.unwrap();
    assert!(matches!(node.bmc.state(), ClassState::Complete { .. }));
    let key = "bmc.inventory.nic_slot_1_1.version";
    assert_eq!(node.bmc.get(key), Reading::Absent);
    let findings = node.findings.iter().map(|finding| finding.code.as_str());
    assert_eq!(findings.collect::<Vec<_>>(), ["bmc_dead_link"]);
    let log = bmc.counters().log;
    let requested = "Installed-0-%20%20%20%20%20%20%20%20__NIC.Slot.1-1";
    assert!(log.iter().any(|line| line.ends_with(requested)), "{log:?}");
}
