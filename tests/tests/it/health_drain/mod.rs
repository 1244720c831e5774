//! Health drain. A GPU of one of three nodes falls off the bus. The test measures the time until the node is drained
//! with the reason, and the steps until it returns. Only the driver has the fault, and only the node reports it. Prints
//! a table; `LATTICE_OUTPUT=json` prints one object. `bmc.rs` has the faults that only the node's BMC reports.

mod bmc;

use lattice_client::api::node::NodeView;
use lattice_fake_nvml::{CONTROL_ENV, Control, GpuRef, Xid};
use lattice_tests::{
    site::{Plan, Site},
    stopwatch::Stopwatch,
    wait::{LOOK_EVERY, PATIENCE, eventually, until},
};
use serde_json::{Value as Json, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

const NODES: [&str; 3] = ["gpu101", "gpu102", "gpu103"];
/// Node with the lost GPU.
const NODE: &str = "gpu102";
const XID: &str = "gpu.xid.79";
const ROW: &str = "gpu.row_remap.pending";
const SERVICE: &str = "service:health";
/// Administrator of a site.
const ADA: &str = "ada";

/// Copies of the captured hosts with drivers that raise XIDs.
fn hosts_with_events() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let hosts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts");
    for node in NODES {
        let copied = Command::new("cp")
            .arg("-a")
            .arg(hosts.join(node))
            .arg(folder.path())
            .status();
        assert!(copied.unwrap().success());
        driver(&folder.path().join(node), |driver| {
            // XID critical errors, in nvml.h's numbering.
            driver["gpus"][1]["event_types"] = json!(8);
        });
        remap(&folder.path().join(node), false);
    }
    folder
}

/// Changes the driver description of a host atomically.
fn driver(host: &Path, change: impl FnOnce(&mut Json)) {
    let file = host.join("nvml.json");
    let mut driver: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut driver);
    let next = file.with_extension("next");
    fs::write(&next, driver.to_string()).unwrap();
    fs::rename(next, file).unwrap();
}

/// Sets whether a memory row of the GPU in slot 2 waits for a reset.
fn remap(host: &Path, is_pending: bool) {
    driver(host, |driver| {
        driver["gpus"][2]["remapped_rows"] = json!({
            "correctable": 0, "uncorrectable": 1, "pending": is_pending, "failure": false,
        });
    });
}

/// Whether a process listens to the fake driver's events: a listener receives only later events.
fn is_listened_to(control: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap();
    let mut names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let control = format!("{CONTROL_ENV}={}", control.display());
    names.any(|pid| {
        let has = |file: &str, wanted: &str| {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let mut parts = text.split(|byte| *byte == 0);
            parts.any(|part| part == wanted.as_bytes())
        };
        has("cmdline", "__watch-gpu") && has("environ", &control)
    })
}

/// Raises the XID until the node has received it, because the listener may not be ready yet.
async fn falls_off_the_bus(site: &Site) {
    let control = site.driver_control(NODE);
    until("a listener", || is_listened_to(&control)).await;
    let begun = Instant::now();
    let mut raised = Control::default();
    while !has_xid_reason(site).await {
        assert!(begun.elapsed() < PATIENCE, "the XID is not heard");
        raised.xids.push(Xid {
            gpu: GpuRef::Index(1),
            xid: 79,
        });
        raised.write(&control).unwrap();
        let again = Instant::now() + Duration::from_secs(2);
        while Instant::now() < again && !has_xid_reason(site).await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn has_xid_reason(site: &Site) -> bool {
    let health = site.api().health(NODE, false).await;
    health.is_ok_and(|health| health.reasons.iter().any(|reason| reason.code == XID))
}

async fn node(site: &Site, name: &str) -> NodeView {
    site.api().node(name).await.unwrap()
}

fn owners(node: &NodeView) -> Vec<&str> {
    node.drain
        .iter()
        .map(|drain| drain.owner.as_str())
        .collect()
}

/// Waits until exactly these owners drain the node.
async fn is_drained_by(site: &Site, name: &str, wanted: &[&str]) -> NodeView {
    eventually(&format!("drained by {wanted:?}"), || async {
        let node = node(site, name).await;
        (owners(&node) == wanted).then_some(node)
    })
    .await
}

/// Error output of a command; also printed.
fn said(what: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    println!("$ lattice {what}\n{text}\n");
    text
}

fn undrain(site: &Site, name: &str) -> (Option<i32>, String) {
    let output = site.cli(&["node", "undrain", name]);
    let text = said(&format!("node undrain {name}"), &output);
    (output.status.code(), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulty_node_is_drained_and_returns_after_repair() {
    let hosts = hosts_with_events();
    let plan = Plan {
        // Health checks run only on request, so no background check finds the fault.
        agent_lines: "health: {interval_s: 86400, xids: true}\n".to_owned(),
        trees: Some(hosts.path().to_owned()),
        drivers: true,
        ..Plan::with_agents(NODES)
    };
    let site = Site::found(lattice_tests::programs!(), &plan).await;
    let mut clock = Stopwatch::begin();
    is_drained_for_an_xid(&site, &mut clock).await;
    a_persons_reason_stays(&site, &mut clock).await;
    nobody_takes_it_back_unverified(&site, &mut clock).await;
    is_back_when_it_is_sound(&site, &mut clock).await;
    clock.print();
    for other in NODES.into_iter().filter(|name| *name != NODE) {
        let other = site.api().node(other).await.unwrap();
        assert_eq!((&*other.lifecycle, other.drain.len()), ("ready", 0));
    }
    assert_eq!(site.api().brake().await.unwrap().held, None);
}

async fn is_drained_for_an_xid(site: &Site, clock: &mut Stopwatch) {
    clock.again();
    falls_off_the_bus(site).await;
    clock.step("XID 79 raised: the node's checks name it");
    eventually("gossip says faulty", || async {
        let health = node(site, NODE).await.health;
        (health.verdict == "faulty" && health.reasons.iter().any(|r| r == XID)).then_some(())
    })
    .await;
    clock.step("  gossip: control sees the node faulty");
    let drained = is_drained_by(site, NODE, &[SERVICE]).await;
    clock.step("  drained by service:health, confirmed by the node itself");
    let reason = &drained.drain[0].reason;
    println!("drained: {reason}\n");
    assert!(reason.starts_with("gpu.xid.79 on gpu.1: "), "{reason}");
    assert!(reason.ends_with("; reboot the node"), "{reason}");
    assert_eq!(drained.lifecycle, "drained");
    // An operator cannot clear the reason.
    let (code, text) = undrain(site, NODE);
    assert_eq!(code, Some(1));
    assert!(text.contains(SERVICE) && text.contains(XID), "{text}");
    assert_eq!(owners(&node(site, NODE).await), [SERVICE]);
}

async fn a_persons_reason_stays(site: &Site, clock: &mut Stopwatch) {
    site.lattice(&["node", "drain", NODE, "--reason", "its riser is swapped"]);
    is_drained_by(site, NODE, &[SERVICE, ADA]).await;
    clock.again();
    site.lattice(&["node", "health", NODE, "--clear", XID]);
    let drained = is_drained_by(site, NODE, &[ADA]).await;
    clock.step("reason cleared by who repaired it: service:health's is gone");
    assert_eq!(drained.lifecycle, "drained");
    assert_eq!(drained.drain[0].reason, "its riser is swapped");
}

/// Another fault occurs meanwhile, before any check.
async fn nobody_takes_it_back_unverified(site: &Site, clock: &mut Stopwatch) {
    let host = site.path(&format!("hosts/{NODE}"));
    remap(&host, true);
    assert_ne!(node(site, NODE).await.health.verdict, "faulty");
    clock.again();
    let (code, text) = undrain(site, NODE);
    clock.step("undrain refused by a look that was made for it");
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!("{ROW} on gpu.2")), "{text}");
    assert!(text.contains("reset the GPU") && text.contains("--skip-gate"));
    // The check of this undrain finds the fault. The node is drained already, so the brake does not apply. The
    // operator's reason remains.
    is_drained_by(site, NODE, &[ADA, SERVICE]).await;
    clock.step("  service:health has a reason of its own again");
    let (code, text) = undrain(site, NODE);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("it stays drained by {SERVICE}: {ROW}")));
    let drained = node(site, NODE).await;
    assert_eq!(
        (&*drained.lifecycle, owners(&drained)),
        ("drained", vec![SERVICE])
    );
}

async fn is_back_when_it_is_sound(site: &Site, clock: &mut Stopwatch) {
    remap(&site.path(&format!("hosts/{NODE}")), false);
    clock.again();
    let output = site.cli(&["node", "health", NODE, "--fresh"]);
    assert!(output.status.success());
    clock.step("repaired: looked at on request, nothing found");
    eventually("gossip no longer says faulty", || async {
        (node(site, NODE).await.health.verdict != "faulty").then_some(())
    })
    .await;
    clock.step("  gossip: control sees the node no longer faulty");
    site.are_ready(&[NODE.to_owned()]).await;
    clock.step("  verified and ready, by itself");
    let found = site.api().health(NODE, false).await.unwrap();
    assert!(
        found
            .reasons
            .iter()
            .all(|reason| reason.severity != "faulty")
    );
    let job = site.submit(NODE, "exit 0").await;
    site.reaches(job, &["completed"]).await;
    clock.step("  a job ran there");
}
