//! BMCs that answer in their own way: compressed, with damaged bytes, with an error and status 200. Each is read like a
//! plain one, or loses the damaged value alone.

use crate::http_support::{assert_polite, client, path, settings, simulated};
use lattice_conformance::{ClassState, LimitState, Milliwatts, Reading, ReadingState};
use lattice_fake_bmc::{CompressedFormat, FakeBmc, Fault, Rule, Tree};
use lattice_redfish::http::Settings;
use lattice_redfish::{Breadth, NoSystemReason, NodeReport, Scope, Selector};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

pub const ALL: &str = "/redfish/v1*";
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const SYSTEM: &str = "/redfish/v1/Systems/1";
pub const POWER: &str = "/redfish/v1/Chassis/1/Power";
const NIC: &str = "/redfish/v1/UpdateService/FirmwareInventory/NIC";
const REGISTRY: &str = "/redfish/v1/registrystore/registries/en/biosattributeregistrya1.v1_0_0";

pub async fn started() -> FakeBmc {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bmc/field");
    let tree = Tree::load(&folder).unwrap();
    simulated(tree).start().await.unwrap()
}

/// A complete reading of the BMC. The session is closed afterwards, also through redirects.
pub async fn read(bmc: &FakeBmc) -> Result<NodeReport, NoSystemReason> {
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
pub async fn read_with(
    faults: impl IntoIterator<Item = Rule>,
) -> Result<NodeReport, NoSystemReason> {
    let bmc = started().await;
    for fault in faults {
        bmc.fault(fault);
    }
    read(&bmc).await
}

pub async fn plain() -> NodeReport {
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
async fn wrong_name_of_a_coding_is_ignored() {
    let expected = plain().await;
    for value in [
        "utf-8",
        "UTF-8, identity",
        "identity",
        "identity, gzip",
        "gzip",
        "deflate",
        "br",
        "x-unknown, deflate, gzip",
    ] {
        let value = value.to_owned();
        let fault = Rule::new(ALL, Fault::Coding { value });
        let node = read_with([fault.clone()]).await;
        assert_eq!(node.as_ref(), Ok(&expected), "{fault:?}");
    }
    // A name that is not a coding does not make another answer JSON.
    let value = "utf-8".to_owned();
    let bytes = b"<html>".to_vec();
    let faults = [Fault::Prefix { bytes }, Fault::Coding { value }];
    let node = read_with(faults.map(|fault| Rule::new(NIC, fault))).await;
    let why = node
        .unwrap()
        .bmc
        .get("bmc.inventory.nic.version")
        .to_string();
    assert!(
        why.contains("content coding \"utf-8\" cannot be unpacked"),
        "{why}"
    );
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
async fn byte_order_mark_is_ignored() {
    let expected = plain().await;
    let bytes = vec![0xef, 0xbb, 0xbf];
    let node = read_with([Rule::new(ALL, Fault::Prefix { bytes })]).await;
    assert_eq!(node, Ok(expected));
}

#[tokio::test]
async fn foreign_bytes_between_tokens_are_ignored() {
    let expected = plain().await;
    for bytes in [
        &b",\x00\""[..],
        b"\x00,\x00\"",
        b",\xa0\"",
        b",\xff \xff\"",
        b",\xc2\xa0\"",
        b",\x0b\"",
    ] {
        // Between two members; a number before the comma is not touched.
        let text = ",\"".to_owned();
        let bytes = [b" ", bytes].concat();
        let fault = Fault::RawText { text, bytes };
        let node = read_with([Rule::new(ALL, fault.clone())]).await;
        assert_eq!(node.as_ref(), Ok(&expected), "{fault:?}");
    }
}

#[tokio::test]
async fn bytes_behind_an_answer_are_ignored() {
    let expected = plain().await;
    for bytes in [
        &b"\0\0\0"[..],
        b"\n\n",
        b"\r\n\0\xff",
        b"}",
        b"garbage",
        b"\0ersion\": \"9\"}",
    ] {
        let bytes = bytes.to_vec();
        let fault = Rule::new(ALL, Fault::Suffix { bytes });
        let node = read_with([fault.clone()]).await;
        assert_eq!(node.as_ref(), Ok(&expected), "{fault:?}");
    }
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
async fn damaged_number_is_not_a_value() {
    for bytes in [
        &b":54\xff"[..],
        b":54\x00",
        b":54\xa0",
        b":\xa040",
        b":5\xff0",
        b":5\x000",
        b":\x00",
    ] {
        let fault = raw_text(":540", bytes);
        let node = read_with([Rule::new(POWER, fault)]).await.unwrap();
        let state = node.power.draw.state();
        assert_eq!(state, ReadingState::Failed, "{bytes:?}");
        assert_eq!(node.power.limit_state, LimitState::Unknown);
    }
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
async fn body_that_is_no_resource_is_not_an_empty_one() {
    let expected = plain().await;
    let key = "bmc.inventory.nic.version";
    for (text, words) in [
        (
            r#"{"Error": {"Code": "E1", "Message": "busy"}}"#,
            "the body is an error: \"busy: E1\"",
        ),
        (
            r#"{"code": 503, "message": "busy"}"#,
            "the body is an error: \"busy\"",
        ),
        (
            r#"{"@odata.id": "/redfish/v1/X", "Id": "NIC", "error": "busy"}"#,
            "the body is an error: \"busy\"",
        ),
        ("{}", "not a Redfish resource"),
        (r#"{"success": false}"#, "not a Redfish resource"),
        (r#"{"Version": "9.9"}"#, "not a Redfish resource"),
        ("[]", "a list, not a resource"),
    ] {
        let fault = Fault::Body {
            code: 200,
            text: text.to_owned(),
        };
        let node = read_with([Rule::new(NIC, fault)]).await.unwrap();
        assert_eq!(missing(node.bmc.state()), [key], "{text}");
        let why = node.bmc.get(key).to_string();
        assert!(why.contains(words), "{text}: {why}");
        assert_eq!(node.bios, expected.bios);
    }
    // Each property that identifies a resource is enough.
    for name in ["@odata.id", "@odata.type", "Id", "Name"] {
        let text = json!({name: "NIC", "Version": "28.41.1000"}).to_string();
        let fault = Fault::Body { code: 200, text };
        let node = read_with([Rule::new(NIC, fault)]).await.unwrap();
        let version = node.bmc.get(key).to_string();
        assert_eq!(version, "28.41.1000", "{name}");
    }
}

#[tokio::test]
async fn session_that_ended_is_renewed_whatever_the_status_is() {
    for (code, message) in [
        (200, "NoValidSession"),
        (200, "ResourceAtUriUnauthorized"),
        (200, "AuthenticationTokenRequired"),
        (202, "NoValidSession"),
        (400, "NoValidSession"),
        (403, "NoValidSession"),
        (404, "NoValidSession"),
        (500, "NoValidSession"),
    ] {
        let bmc = started().await;
        let message = message.to_owned();
        bmc.break_path(ALL, Fault::SessionError { code, message });
        let client = client(&bmc, settings());
        let draw = |reading: Reading<Value>| {
            let value = reading.present().cloned().unwrap_or_default();
            value["PowerControl"][0]["PowerConsumedWatts"].clone()
        };
        assert_eq!(draw(client.fetch(&path(POWER)).await), 540);
        bmc.reboot(Duration::ZERO);
        let reading = client.fetch(&path(POWER)).await;
        assert_eq!(draw(reading.clone()), 540, "{code}: {reading:?}");
        assert_eq!(bmc.counters().logins, 2, "{code}");
        client.close().await;
        assert_eq!(bmc.counters().sessions, 0);
    }
}

#[tokio::test]
async fn resource_that_always_needs_another_session_costs_one_login() {
    let bmc = started().await;
    let text = json!({"error": {"code": "Base.1.8.NoValidSession"}}).to_string();
    bmc.break_path(NIC, Fault::Body { code: 200, text });
    let node = read(&bmc).await.unwrap();
    let key = "bmc.inventory.nic.version";
    assert_eq!(missing(node.bmc.state()), [key]);
    assert_eq!(node.bmc.get(key).state(), ReadingState::Denied);
    assert_eq!(bmc.counters().logins, 2);
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
