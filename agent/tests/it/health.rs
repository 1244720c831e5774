//! Health checks of complete agents on copied hosts: findings, gossip and answers to control. `health/stored_state.rs`
//! covers the stored state.

mod stored_state;

use crate::cluster;
use crate::cluster::Cluster;
use crate::support::{PATIENCE, program, tree_of};
use lattice_agent::{App, Settings};
use lattice_agent_rpc::{ClearReason, GetHealth};
use lattice_conformance::health::{Action, HealthReport, Reason, Severity, Table};
use lattice_fake_nvml::{CONTROL_ENV, Control, DESCRIPTION_ENV, Fault, library_path};
use lattice_gossip::{Member, Verdict};
use lattice_hwprobe::{Host, NvmlSource, Root};
use lattice_mesh::{CallError, ExpectedIdentity, Peer, Role};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const OFTEN: Duration = Duration::from_millis(200);
const REMAP: &str = "gpu.row_remap.pending";

/// Copy of a captured host, for changes while an agent runs on it.
struct Tree {
    root: PathBuf,
    control: PathBuf,
}

impl Tree {
    fn copy(cluster: &Cluster) -> Self {
        let root = tree_of("gpu101", cluster.folder.path().join("tree"));
        let tree = Self {
            control: root.join("nvml-control.json"),
            root,
        };
        tree.link_downed(7);
        // XIDs, with the constant of nvml.h.
        tree.driver(|driver| driver["gpus"][1]["event_types"] = json!(8));
        tree
    }

    /// Host with the default timeouts: a busy machine must not look like a hung driver.
    fn host(&self) -> Host {
        let library = library_path().expect("the fake library is built with this test");
        let nvml = NvmlSource::child(program(), Some(&library))
            .with_env(DESCRIPTION_ENV, self.root.join("nvml.json"))
            .with_env(CONTROL_ENV, &self.control);
        let mut host = Host::new(&self.root, nvml);
        host.root = Root::new(&self.root);
        host
    }

    /// Replaces the driver's description atomically.
    fn driver(&self, change: impl FnOnce(&mut Json)) {
        let file = self.root.join("nvml.json");
        let mut driver: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        change(&mut driver);
        let next = file.with_extension("next");
        std::fs::write(&next, driver.to_string()).unwrap();
        std::fs::rename(next, file).unwrap();
    }

    /// Sets whether a memory row of the GPU in slot 2 waits for a reset.
    fn remap(&self, is_pending: bool) {
        self.driver(|driver| {
            driver["gpus"][2]["remapped_rows"] = json!({
                "correctable": 0, "uncorrectable": 1, "pending": is_pending, "failure": false,
            });
        });
    }

    /// Sets the link loss counter of the first InfiniBand card.
    fn link_downed(&self, times: u32) {
        let counters = self
            .root
            .join("sys/class/infiniband/mlx5_0/ports/1/counters");
        std::fs::create_dir_all(&counters).unwrap();
        let next = counters.join("next");
        std::fs::write(&next, format!("{times}\n")).unwrap();
        std::fs::rename(next, counters.join("link_downed")).unwrap();
    }

    fn ask_driver(&self, control: &Control) {
        control.write(&self.control).unwrap();
    }
}

fn settings(cluster: &Cluster, tree: &Tree) -> Settings {
    let mut settings = cluster.settings("n1", tree.host());
    settings.health.interval = OFTEN;
    settings.probe.confirm_after = Duration::from_millis(50);
    settings
}

async fn start(cluster: &Cluster, settings: Settings, boot_id: &str) -> App {
    let mut edges = cluster.edges("n1");
    edges.boot_id = boot_id.to_owned();
    let mut app = App::bind(settings, edges).await.unwrap();
    app.start().await.unwrap();
    app
}

fn said(member: &Member) -> (Option<Verdict>, Vec<String>) {
    match member.published.health.clone() {
        Some(health) => (Some(health.verdict), health.reasons),
        None => (None, Vec::new()),
    }
}

fn says(code: &str) -> impl Fn(&Member) -> bool {
    move |member| said(member).1.iter().any(|said| said == code)
}

/// Whether the node was read and its checks find nothing.
fn sound(member: &Member) -> bool {
    let (verdict, codes) = said(member);
    let is_check = |code: &String| code.contains("row_remap") || code.contains("xid.");
    verdict.is_some_and(|verdict| verdict < Verdict::Faulty) && !codes.iter().any(is_check)
}

async fn document(peer: &Peer, wanted: GetHealth) -> Json {
    let bytes = peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn look(fresh: bool) -> GetHealth {
    GetHealth {
        fresh,
        clear: None,
        by: None,
    }
}

async fn report(peer: &Peer, fresh: bool) -> HealthReport {
    serde_json::from_value(document(peer, look(fresh)).await).unwrap()
}

fn of(report: &HealthReport, code: &str) -> Option<Reason> {
    let found = report.reasons.iter().find(|reason| reason.code == code);
    found.cloned()
}

#[tokio::test]
async fn pending_row_names_its_gpu() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    tree.remap(false);
    let app = start(&cluster, settings(&cluster, &tree), "b1").await;
    cluster.member("n1", sound).await;
    tree.remap(true);
    let member = cluster.member("n1", says(REMAP)).await;
    assert_eq!(said(&member).0, Some(Verdict::Faulty));

    let peer = cluster.peer(&app);
    let found = report(&peer, false).await;
    let reason = of(&found, REMAP).unwrap();
    assert_eq!(
        (reason.entity.as_str(), reason.action),
        ("gpu.2", Action::ResetGpu)
    );
    assert!(
        reason.evidence.contains("gpu.2.remapped_rows.pending"),
        "{reason:?}"
    );
    assert_eq!(found.worst, Some(Severity::Faulty));
    assert_eq!(found.table, Table::shipped().unwrap().version);
    assert!(reason.first_seen_ms > 0 && reason.last_seen_ms >= reason.first_seen_ms);
    let again = of(&report(&peer, true).await, REMAP).unwrap();
    assert!(again.count > reason.count, "a pass was made for who asked");
    assert_eq!(again.first_seen_ms, reason.first_seen_ms);

    tree.remap(false);
    cluster.member("n1", sound).await;
    assert_eq!(of(&report(&peer, false).await, REMAP), None);
    app.stop().await;
}

#[tokio::test]
async fn clearing_requires_operator_name() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    tree.remap(true);
    let mut settings = settings(&cluster, &tree);
    settings.health.interval = Duration::from_secs(3600);
    let app = start(&cluster, settings, "b1").await;
    cluster.member("n1", says(REMAP)).await;
    let peer = cluster.peer(&app);
    tree.remap(false);
    assert_eq!(
        of(&report(&peer, true).await, REMAP),
        None,
        "read for who asked"
    );
    cluster.member("n1", sound).await;
    tree.remap(true);
    assert!(of(&report(&peer, true).await, REMAP).is_some());

    let clear = |by: Option<&str>, fresh| GetHealth {
        fresh,
        clear: Some(ClearReason {
            code: REMAP.to_owned(),
            entity: Some("gpu.2".to_owned()),
        }),
        by: by.map(str::to_owned),
    };
    let nobody = peer.call(&clear(None, false), PATIENCE).await.unwrap();
    assert!(nobody.unwrap_err().contains("must name the operator"));
    let cleared = document(&peer, clear(Some("alice"), false)).await;
    assert_eq!(cleared["cleared"], json!(1));
    assert!(!cleared["reasons"].to_string().contains(REMAP));
    cluster.member("n1", sound).await;
    // The fault was not repaired.
    let cleared = document(&peer, clear(Some("alice"), true)).await;
    assert_eq!(cleared["cleared"], json!(0));
    assert_eq!(cleared["reasons"][0]["code"], json!(REMAP));

    let other = cluster::bind(&cluster.authority, Role::Agent, "n2");
    let expect = ExpectedIdentity::exactly(Role::Agent, "n1");
    let refused = other
        .peer(app.addr(), expect)
        .call(&look(false), PATIENCE)
        .await;
    assert!(
        matches!(refused, Err(CallError::Denied { .. })),
        "{refused:?}"
    );
    app.stop().await;
}

#[tokio::test]
async fn a_driver_that_cannot_be_listened_to_is_a_note_and_no_fault() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    let mut settings = settings(&cluster, &tree);
    settings.health.gpu_events = true;
    let nowhere = tree.root.join("libnvidia-ml.so.1");
    settings.probe.host.nvml = NvmlSource::child(program(), Some(&nowhere));
    let app = start(&cluster, settings, "b1").await;
    let member = cluster.member("n1", says("xids.unheard")).await;
    assert!(sound(&member), "{:?}", said(&member));
    let shown = document(&cluster.peer(&app), look(false)).await;
    assert_eq!(shown["notes"], json!(["xids.unheard"]));
    assert_eq!(shown["worst"], json!(null));
    app.stop().await;
}

#[tokio::test]
async fn what_the_site_only_watches_is_shown_and_not_gossiped() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    tree.remap(true);
    let site = "version: site-7\nchecks: {gpu.row_remap.pending: {observe_only: true}}\n";
    let table = Table::shipped().unwrap().with_site(site).unwrap();
    let mut settings = settings(&cluster, &tree);
    settings.health.table = Some(Arc::new(table));
    let app = start(&cluster, settings, "b1").await;
    let member = cluster.member("n1", |m| said(m).0.is_some()).await;
    let peer = cluster.peer(&app);
    let found = report(&peer, true).await;
    let reason = of(&found, REMAP).unwrap();
    assert!(reason.observe_only && !reason.drains());
    assert_eq!(found.worst, None);
    assert!(found.table.ends_with("+site-7"), "{}", found.table);
    assert!(sound(&member), "{:?}", said(&member));
    app.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_clears_nothing_and_is_a_reason_of_its_own() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    tree.remap(true);
    let mut settings = settings(&cluster, &tree);
    let nvml = settings.probe.host.nvml.clone();
    settings.probe.host.nvml = nvml.with_deadline(Duration::from_millis(1500));
    let app = start(&cluster, settings, "b1").await;
    cluster.member("n1", says(REMAP)).await;
    tree.ask_driver(&Control {
        faults: vec![Fault {
            hang: true,
            ..Fault::default()
        }],
        ..Control::default()
    });
    let hung = says("probe.gpu.hung");
    let member = cluster.member("n1", &hung).await;
    let (verdict, codes) = said(&member);
    assert_eq!(verdict, Some(Verdict::Faulty));
    assert!(codes.contains(&REMAP.to_owned()), "{codes:?}");
    let peer = cluster.peer(&app);
    let shown = document(&peer, look(true)).await;
    assert_eq!(shown["probes"], json!(["probe.gpu.hung"]));
    assert_eq!(shown["blind"], json!(["probe.gpu.hung"]));
    assert_eq!(shown["reasons"][0]["code"], json!(REMAP));

    tree.ask_driver(&Control::default());
    tree.remap(false);
    cluster.member("n1", |m| !hung(m) && sound(m)).await;
    app.stop().await;
}

#[tokio::test]
async fn a_port_that_lost_its_link_is_named() {
    const CODE: &str = "nic.link_downed";
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    let app = start(&cluster, settings(&cluster, &tree), "b1").await;
    let member = cluster.member("n1", |m| said(m).0.is_some()).await;
    assert!(!says(CODE)(&member), "it lost it seven times before");
    tree.link_downed(8);
    let member = cluster.member("n1", says(CODE)).await;
    assert_eq!(said(&member).0, Some(Verdict::Degraded));
    let found = of(&report(&cluster.peer(&app), false).await, CODE).unwrap();
    assert_eq!(found.entity, "nic.2.port.1");
    assert!(found.evidence.contains("rose by 1"), "{found:?}");
    app.stop().await;
}

#[tokio::test]
async fn where_it_is_switched_off_nothing_is_looked_at() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    tree.remap(true);
    let mut settings = settings(&cluster, &tree);
    settings.health.enabled = false;
    let app = start(&cluster, settings, "b1").await;
    let member = cluster.member("n1", |m| said(m).0.is_some()).await;
    assert!(sound(&member));
    let peer = cluster.peer(&app);
    let health = document(&peer, look(true)).await;
    assert_eq!(health["enabled"], json!(false));
    assert_eq!(health["read_age_ms"], json!(null), "nothing was looked at");
    assert_eq!(health["reasons"], json!([]));
    let clear = GetHealth {
        clear: Some(ClearReason {
            code: REMAP.to_owned(),
            entity: None,
        }),
        by: Some("alice".to_owned()),
        fresh: false,
    };
    let answer = peer.call(&clear, PATIENCE).await.unwrap();
    assert!(answer.unwrap_err().contains("disabled on this node"));
    app.stop().await;
    assert!(!cluster.folder.path().join("n1/health.json").exists());
}

#[test]
fn one_look_is_judged_by_the_sites_table_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let root = tree_of("gpu101", folder.path().join("tree"));
    let tree = Tree {
        control: root.join("none"),
        root: root.clone(),
    };
    tree.remap(true);
    let look = |arguments: &[&str]| {
        std::process::Command::new(program())
            .env_clear()
            .env(DESCRIPTION_ENV, root.join("nvml.json"))
            .args(["probe", "-o", "json", "--nvml-lib"])
            .arg(library_path().unwrap())
            .arg("--root")
            .arg(&root)
            .args(arguments)
            .output()
            .unwrap()
    };
    let health = |output: &std::process::Output| {
        let document: Json = serde_json::from_slice(&output.stdout).unwrap();
        document["health"].clone()
    };
    let shipped = health(&look(&[]));
    assert_eq!(shipped["verdict"], json!("faulty"));
    assert_eq!(shipped["reasons"], json!([REMAP]));

    let file = folder.path().join("health.yaml");
    let site = "version: s1\nchecks: {gpu.row_remap.pending: {observe_only: true}}\n";
    std::fs::write(&file, site).unwrap();
    let watched = health(&look(&["--health-table", file.to_str().unwrap()]));
    assert_eq!(watched["reasons"], json!([]));
    assert!(watched["table"].as_str().unwrap().ends_with("+s1"));
    assert_eq!(watched["checks"][0]["entity"], json!("gpu.2"));
    std::fs::write(&file, "version: s1\nchecks: {gpu.rows: {}}\n").unwrap();
    let refused = look(&["--health-table", file.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("gpu.rows"));
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn every_mistake_of_the_sites_file_is_named_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("health.yaml");
    let config = folder.path().join("agent.yaml");
    let text = format!(
        "node: n1\nlisten: 127.0.0.1:0\nhealth: {{table: {}, interval_s: 30}}\n",
        table.display()
    );
    std::fs::write(&config, text).unwrap();
    let check = || {
        std::process::Command::new(program())
            .env_clear()
            .args(["--check-config", "--config"])
            .arg(&config)
            .output()
            .unwrap()
    };
    let complaint = || {
        let output = check();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(complaint().contains("health.table"), "it is not there");
    let wrong = "version: s\nchecks:\n  gpu.row_remap.pendin: {severity: inform}\n  \
                 gpu.pcie.width: {key: gpu.*.x}\n";
    std::fs::write(&table, wrong).unwrap();
    let said = complaint();
    for named in ["health.yaml", "gpu.row_remap.pendin", "gpu.pcie.width"] {
        assert!(said.contains(named), "{named} is not in {said}");
    }
    let right = "version: s\nchecks: {gpu.pcie.width: {observe_only: true}}\n";
    std::fs::write(&table, right).unwrap();
    assert!(check().status.success());
}
