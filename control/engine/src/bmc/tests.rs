#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::history::{History, HistoryEntry, HistoryFilter, PastClassState, Source};
use lattice_conformance::{
    Class, ClassMark, Identity, LimitState, Milliwatts, Reading, health::Severity, history::Cause,
};
use lattice_fake_bmc::{FakeBmc, Fault, Tree};
use lattice_mesh::SystemClock;
use lattice_quorum_types::NodeId;
use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

mod access;
mod events;
mod power;
mod slow;
mod supervision;

/// Timeout of requests for a reading.
const LONG: Duration = Duration::from_secs(60);

const BMC_VERSION: &str = "/redfish/v1/UpdateService/FirmwareInventory/BMC";

fn tree(name: &str) -> Tree {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures/redfish");
    Tree::load(&folder.join(format!("{name}.tar.gz"))).unwrap()
}

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// A folder with a password file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    fs::write(&password, "lattice-bmc\n").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    folder
}

/// Opens the history of the folder. A cancelled read of the previous run may hold it open for a moment.
async fn kept_in(folder: &Path) -> History {
    let until = Instant::now() + LONG;
    loop {
        match History::open(Some(folder)) {
            Ok(history) => return history,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Writes a BMC file with entries that have these lines in addition to account and password file.
fn file(folder: &Path, entries: &[String]) -> PathBuf {
    let mut text = "power_interval_s: 1\ninterval_s: 2\nconfirm_after_s: 1\nbmcs:\n".to_owned();
    for entry in entries {
        let password = folder.join("password");
        writeln!(
            text,
            "  - {{user: admin, password_file: {}, {entry}}}",
            password.display()
        )
        .unwrap();
    }
    let path = folder.join("bmcs.yaml");
    fs::write(&path, text).unwrap();
    path
}

/// Identity of a node with this hardware.
fn cray() -> Host {
    Host::from(Identity {
        vendor: Reading::Present("HPE".to_owned()),
        product: Reading::Present("HPE Cray EX235n".to_owned()),
        ..Identity::default()
    })
}

struct BmcFixture {
    readings: Readings,
    history: History,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl BmcFixture {
    fn start(plan: BmcPlan) -> Self {
        Self::with(plan, History::open(None).unwrap())
    }

    fn with(plan: BmcPlan, history: History) -> Self {
        let hosts = Arc::new(|node: &NodeId| (node.as_str() == "gpu777").then(cray));
        Self::beside(plan, history, hosts)
    }

    fn beside(plan: BmcPlan, history: History, hosts: host::Hosts) -> Self {
        let (readings, stop) = (Readings::default(), CancellationToken::new());
        let edges = Edges {
            clock: Arc::new(SystemClock),
            readings: readings.clone(),
            history: history.clone(),
            hosts,
            stop: stop.clone(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(run(Arc::new(plan), edges)));
        Self {
            readings,
            history,
            stop,
            task,
        }
    }

    /// Stops the workers and returns the history.
    async fn end(self) -> History {
        self.stop.cancel();
        self.task.await.unwrap();
        self.history
    }

    /// Stored changes of class `bmc`, oldest first.
    async fn entries(&self, node: &str) -> Vec<HistoryEntry> {
        let wanted = HistoryFilter {
            class: Some(Class::Bmc),
            ..HistoryFilter::default()
        };
        let found = self.history.of_node(node.to_owned(), wanted, 100).await;
        let mut found = found.unwrap();
        found.reverse();
        found
    }

    async fn until_entries(&self, node: &str, count: usize) -> Vec<HistoryEntry> {
        let ends_at = Instant::now() + Duration::from_secs(60);
        loop {
            let entries = self.entries(node).await;
            if entries.len() >= count {
                return entries;
            }
            assert!(Instant::now() < ends_at, "{count} entries: {entries:#?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until<T>(&self, what: &str, look: impl Fn(&Readings) -> Option<T>) -> T {
        let ends_at = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = look(&self.readings) {
                return found;
            }
            assert!(Instant::now() < ends_at, "{what}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn firmware(readings: &Readings, node: &str) -> Option<Reading<String>> {
        let parts = readings.parts(&id(node))?;
        let reading = parts.records.get(&Class::Bmc)?.get("bmc.firmware");
        Some(reading.map(|value| value.to_string()))
    }
}

#[tokio::test]
async fn one_bmc_serves_two_nodes() {
    let bmc = FakeBmc::builder(tree("cray-ex235n-a100")).steady();
    let bmc = bmc.tls().unwrap().start().await.unwrap();
    let folder = folder();
    let entry = format!(
        "url: '{}', certificate: '{}', nodes: {{gpu101: Node0, gpu102: Node1}}",
        bmc.url(),
        bmc.pin().unwrap()
    );
    let plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    let fixture = BmcFixture::start(plan);
    let firmware = fixture.until("firmware", |r| {
        let both = (
            BmcFixture::firmware(r, "gpu101")?,
            BmcFixture::firmware(r, "gpu102")?,
        );
        (both.0.is_known() && both.1.is_known()).then_some(both)
    });
    let (first, second) = firmware.await;
    assert!(matches!(&first, Reading::Present(_)), "{first:?}");
    assert_eq!(first, second);
    let power = fixture.readings.power(&id("gpu101")).unwrap();
    assert_eq!(power.power.draw, Reading::Present(Milliwatts(467_000)));
    assert_eq!(power.power.limit_state, LimitState::Absent);
    // Power draw and limit are read periodically, with few requests.
    let again = fixture.until("another reading", |r| {
        let now = r.power(&id("gpu101"))?;
        (now.read_at > power.read_at).then_some(now)
    });
    again.await;

    // The firmware is flashed: it is read twice before it counts.
    let version = serde_json::json!("nc.9.9.9");
    assert!(bmc.set(BMC_VERSION, "/Version", version));
    let flashed = Reading::Present("nc.9.9.9".to_owned());
    fixture
        .until("the new version", |r| {
            (BmcFixture::firmware(r, "gpu102")? == flashed).then_some(())
        })
        .await;
    assert!(bmc.counters().in_flight_max <= 1);
    assert!(bmc.counters().sessions_max <= 1);
    fixture.end().await;
    assert_eq!(bmc.counters().sessions, 0);
}

/// The firmware in a history entry: before and after the change.
fn change(history_entry: &HistoryEntry) -> (String, String) {
    let mut changes = history_entry.entry.changes.iter();
    let change = changes.find(|change| change.key == "bmc.firmware").unwrap();
    (change.from.to_string(), change.to.to_string())
}

fn firmware_of(then: &PastClassState) -> String {
    match then {
        PastClassState::Known { record, .. } => record.get("bmc.firmware").to_string(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn firmware_flash_survives_restart_and_bmc_outage() {
    let bmc = FakeBmc::builder(tree("cray-ex235n-a100")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: {{gpu101: Node0}}", bmc.url());
    let path = file(folder.path(), &[entry]);
    let plan = || BmcPlan::load(&path).unwrap();
    let kept = || kept_in(folder.path());
    let flash = |version: &str| assert!(bmc.set(BMC_VERSION, "/Version", version.into()));

    let fixture = BmcFixture::with(plan(), kept().await);
    let first = fixture.until_entries("gpu101", 1).await.remove(0);
    assert_eq!(
        (first.source, &first.entry.cause),
        (Source::Bmc, &Cause::First)
    );
    assert_eq!(first.entry.from, None);
    flash("nc.9.9.9");
    let second = fixture.until_entries("gpu101", 2).await.remove(1);
    assert_eq!(second.entry.cause, Cause::Periodic);
    let (before, after) = change(&second);
    assert!(before.starts_with("nc.1.6"), "{before}");
    assert_eq!(after, "nc.9.9.9");
    assert_eq!(second.entry.changes.len(), 2, "the inventory's entry too");
    assert!(second.number > first.number && second.when >= first.when);
    // The earlier record is stored with all its keys.
    let then = fixture
        .history
        .at("gpu101".into(), Class::Bmc, first.when)
        .await;
    assert_eq!(firmware_of(&then.unwrap()), before);
    let since = fixture
        .history
        .since("gpu101".into(), Class::Bmc, "bmc.firmware".into());
    let since = since.await.unwrap().unwrap();
    assert_eq!((since.at, since.at_least), (second.when, false));
    drop(fixture.end().await);

    // A restart reads the same values and adds no entry.
    let fixture = BmcFixture::with(plan(), kept().await);
    fixture
        .until("what it was", |r| {
            BmcFixture::firmware(r, "gpu101").filter(Reading::is_known)
        })
        .await;
    assert_eq!(fixture.entries("gpu101").await.len(), 2);
    drop(fixture.end().await);

    // Flashed while no control was running: detected, and read twice.
    flash("nc.9.9.10");
    let fixture = BmcFixture::with(plan(), kept().await);
    let third = fixture.until_entries("gpu101", 3).await.remove(2);
    assert_eq!(
        change(&third),
        ("nc.9.9.9".to_owned(), "nc.9.9.10".to_owned())
    );
    assert_eq!(third.entry.cause, Cause::Periodic);
    // Silence is recorded, and available from a control that has only its disk.
    bmc.break_path("*", Fault::Reset);
    let fourth = fixture.until_entries("gpu101", 4).await.remove(3);
    assert_eq!(fourth.entry.to, ClassMark::Incomplete);
    drop(fixture.end().await);
    let history = kept().await;
    let all = history.of_node("gpu101".into(), HistoryFilter::default(), 100);
    let all = all.await.unwrap();
    assert!(all.windows(2).all(|pair| pair[0].number > pair[1].number));
    let firmwares: Vec<_> = all.iter().filter(|t| t.entry.class == Class::Bmc).collect();
    assert_eq!(firmwares.len(), 4);
    let then = history.at("gpu101".into(), Class::Bmc, third.when).await;
    assert_eq!(firmware_of(&then.unwrap()), "nc.9.9.10");
    // A key's time is that of its last change, not of its last readable value.
    let since = history.since("gpu101".into(), Class::Bmc, "bmc.firmware".into());
    assert_eq!(since.await.unwrap().unwrap().at, third.when);
}

#[tokio::test]
async fn what_an_operator_asks_for_is_read_at_once_and_put_down_to_them() {
    let bmc = FakeBmc::builder(tree("cray-ex235n-a100")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!(
        "url: '{}', nodes: {{gpu101: Node0, gpu102: Node1}}",
        bmc.url()
    );
    let path = file(folder.path(), &[entry]);
    let seldom = fs::read_to_string(&path).unwrap();
    let seldom = seldom.replace("interval_s: 2\n", "interval_s: 3600\n");
    fs::write(
        &path,
        seldom.replace("power_interval_s: 3600", "power_interval_s: 1"),
    )
    .unwrap();
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    fixture.until_entries("gpu101", 1).await;
    let look = |node: &str| {
        let (readings, node) = (fixture.readings.clone(), id(node));
        async move { readings.look(&node, "ada", LONG).await }
    };
    let same = RequestedReading::Read { differs: vec![] };
    assert_eq!(look("gpu101").await, Some(same));
    assert_eq!(look("gpu999").await, None, "nobody reads its BMC");

    assert!(bmc.set(BMC_VERSION, "/Version", "nc.9.9.9".into()));
    let differs = vec![Class::Bmc];
    assert_eq!(
        look("gpu101").await,
        Some(RequestedReading::Read { differs })
    );
    // Read a second time before it counts, and attributed to the principal that saw it first; also for the BMC's other
    // node.
    for node in ["gpu101", "gpu102"] {
        let second = fixture.until_entries(node, 2).await.remove(1);
        let who = "ada".to_owned();
        assert_eq!(second.entry.cause, Cause::Operator { who });
    }
    bmc.break_path("*", Fault::Reset);
    let Some(RequestedReading::Silent { why }) = look("gpu101").await else {
        panic!("it says nothing");
    };
    assert!(!why.is_empty());
}

#[tokio::test]
async fn bmc_fault_is_reason_until_cleared() {
    const SYSTEM: &str = "/redfish/v1/Systems/1";
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: gpu001", bmc.url());
    let plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    let fixture = BmcFixture::start(plan);
    let codes = |r: &Readings| -> Option<Vec<String>> {
        let parts = r.parts(&id("gpu001"))?;
        Some(
            parts
                .reasons
                .iter()
                .map(|reason| reason.code.clone())
                .collect(),
        )
    };
    let is_read = |r: &Readings| BmcFixture::firmware(r, "gpu001").filter(Reading::is_known);
    fixture.until("a reading", is_read).await;
    assert_eq!(codes(&fixture.readings), Some(vec![]));
    // A power supply failed: the machine is healthy, one of its parts is not.
    assert!(bmc.set(SYSTEM, "/Status/HealthRollup", "Critical".into()));
    let failed = |r: &Readings| (codes(r)? == ["bmc.part_critical"]).then_some(());
    fixture.until("the failed part", failed).await;
    let first = fixture.readings.parts(&id("gpu001")).unwrap().reasons[0].clone();
    assert!(first.evidence.contains("Critical"), "{first:?}");
    // Silence clears no fault, and is a fault itself from its beginning.
    bmc.break_path("*", Fault::Reset);
    let silent = |r: &Readings| codes(r)?.contains(&"bmc.silent".to_owned()).then_some(());
    fixture.until("silence", silent).await;
    let mut both = codes(&fixture.readings).unwrap();
    both.sort();
    assert_eq!(both, ["bmc.part_critical", "bmc.silent"]);
    let since = fixture.until_entries("gpu001", 2).await.remove(1).when;
    let parts = fixture.readings.parts(&id("gpu001")).unwrap();
    let silent = parts
        .reasons
        .iter()
        .find(|r| r.code == "bmc.silent")
        .unwrap();
    assert_eq!(silent.first_seen_ms, since);
    assert!(!silent.evidence.is_empty());
    // The BMC answers again, and the part was replaced.
    bmc.clear_faults();
    assert!(bmc.set(SYSTEM, "/Status/HealthRollup", "OK".into()));
    fixture
        .until("all well", |r| codes(r)?.is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn silent_bmc_makes_class_unknown() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    bmc.break_path(
        "*",
        Fault::Status {
            code: 500,
            retry_after_s: None,
        },
    );
    let folder = folder();
    let entry = format!("url: '{}', nodes: gpu001", bmc.url());
    let plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    let fixture = BmcFixture::start(plan);
    let states = |readings: &Readings| {
        let parts = readings.parts(&id("gpu001"))?;
        let is_known = |class| parts.records[&class].state().digest().is_some();
        Some([is_known(Class::Bmc), is_known(Class::Bios)])
    };
    let why = fixture.until("a reason of the BMC's own", |r| match BmcFixture::firmware(
        r, "gpu001",
    )? {
        Reading::Failed { why } => (!why.contains("not read yet")).then_some(why),
        _ => None,
    });
    why.await;
    assert_eq!(states(&fixture.readings), Some([false, false]));
    let power = fixture.readings.power(&id("gpu001")).unwrap();
    assert!(!power.power.draw.is_known(), "{power:?}");
    assert_eq!(power.power.limit_state, LimitState::Unknown);
    assert_eq!(power.read_at, None);
    // The BMC answers, is silent again, and answers as before. Unknown counts both times, and known values return at
    // once.
    let settled = |wanted| move |r: &Readings| (states(r)? == wanted).then_some(());
    bmc.clear_faults();
    fixture.until("an answer", settled([true, true])).await;
    bmc.break_path("*", Fault::Reset);
    fixture.until("silence", settled([false, false])).await;
    bmc.clear_faults();
    fixture
        .until("an answer as before", settled([true, true]))
        .await;
}

fn wrong(entries: &[&str], part: &str) {
    let folder = folder();
    let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
    let error = BmcPlan::load(&file(folder.path(), &entries)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(part), "{text}");
    assert!(!text.contains("lattice-bmc"), "{text}");
}

#[test]
fn a_file_of_bmcs_is_checked_whole() {
    wrong(
        &[
            "url: ftp://x, nodes: gpu001",
            "url: 'https://b', nodes: 'gpu['",
        ],
        "bmcs.0: url: ",
    );
    wrong(
        &[
            "url: ftp://x, nodes: gpu001",
            "url: 'https://b', nodes: 'gpu['",
        ],
        "bmcs.1: nodes: ",
    );
    wrong(
        &["url: 'https://b', nodes: 'gpu[1-2]'"],
        "needs the Redfish system id of each node",
    );
    wrong(
        &["url: 'https://b', nodes: gpu001, certificat: '12'"],
        "bmcs.0.certificat: unknown key; did you mean bmcs.0.certificate?",
    );
    wrong(
        &["url: 'https://b', nodes: [gpu001]"],
        "bmcs.0.nodes: must be a hostlist, or keys and values from node to Redfish system id",
    );
    wrong(
        &["url: 'https://b', node: gpu001"],
        "That key is required and missing",
    );
    wrong(
        &[
            "url: 'https://b', nodes: gpu001",
            "url: 'https://c', nodes: gpu001",
        ],
        "node gpu001 is listed twice",
    );
    wrong(
        &["url: 'https://b', nodes: gpu001, certificate: '12'"],
        "certificate: ",
    );
    wrong(
        &["url: 'https://b', nodes: gpu001, insecure: true, ca_file: /x"],
        "give one of certificate, ca_file, insecure",
    );
    wrong(
        &["url: 'https://b', nodes: gpu001, ca_file: /nowhere/ca.pem"],
        "bmcs.0: ca_file: /nowhere/ca.pem: cannot read certificate authorities",
    );
    wrong(
        &["url: 'https://{node}', nodes: 'gpu[1-2]', ca_file: /dev/null"],
        "bmcs.0: ca_file: /dev/null: cannot read certificate authorities",
    );
}

#[test]
fn a_sites_table_is_read_with_the_file_and_checked() {
    let folder = folder();
    let path = file(folder.path(), &["url: 'https://b', nodes: a".to_owned()]);
    let table = folder.path().join("table");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("table: {}\n{text}", table.display())).unwrap();
    let refused = || BmcPlan::load(&path).unwrap_err().to_string();
    assert!(refused().contains("table: "), "{}", refused());
    let changes = |line: &str| fs::write(&table, format!("version: s\nchecks: {{{line}}}\n"));
    changes("bmc.sytem_critical: {severity: faulty}").unwrap();
    assert!(refused().contains("bmc.sytem_critical"), "{}", refused());
    let wrong = "bmc.sytem_critical: {severity: faulty}, bmc.manager_critical: {severity: fault}, \
                 bmc.system_critical: {for_s: soon, actoin: update}";
    changes(wrong).unwrap();
    for part in [
        "checks.bmc.sytem_critical: unknown check",
        "checks.bmc.manager_critical.severity: must be one of inform, degraded, faulty, not \"fault\"",
        "checks.bmc.system_critical.for_s: must be a whole number, 0 or more, not the text \"soon\"",
        "checks.bmc.system_critical.actoin: unknown key; did you mean \
         checks.bmc.system_critical.action?",
    ] {
        let part = format!("table: {}: {part}", table.display());
        assert!(refused().contains(&part), "{part}\n{}", refused());
    }
    changes("bmc.system_critical: {severity: faulty}").unwrap();
    let checks = BmcPlan::load(&path).unwrap().table.checks;
    assert_eq!(checks["bmc.system_critical"].severity, Severity::Faulty);
    assert_eq!(checks["bmc.manager_critical"].severity, Severity::Degraded);
}

#[test]
fn a_password_that_others_can_read_is_refused() {
    let folder = folder();
    let password = folder.path().join("password");
    fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
    let path = file(folder.path(), &["url: 'https://b', nodes: a".to_owned()]);
    let text = BmcPlan::load(&path).unwrap_err().to_string();
    assert!(text.contains("chmod 600"), "{text}");
}

#[test]
fn many_bmcs_are_one_line() {
    let folder = folder();
    let entry = "url: 'https://{node}-bmc.mgmt', nodes: 'gpu[001-512]'".to_owned();
    let plan = BmcPlan::load(&file(folder.path(), &[entry])).unwrap();
    assert_eq!(plan.targets.len(), 512);
    let last = plan.targets.last().unwrap();
    assert_eq!(last.endpoint.0.address(), "https://gpu512-bmc.mgmt");
    assert_eq!(last.nodes[0].0, id("gpu512"));
}

#[tokio::test]
async fn power_readings_reveal_silence() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: gpu001", bmc.url());
    let path = file(folder.path(), &[entry]);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replace("\ninterval_s: 2\n", "\ninterval_s: 3600\n"),
    )
    .unwrap();
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    let known = |r: &Readings| BmcFixture::firmware(r, "gpu001").filter(Reading::is_known);
    fixture.until("a reading", known).await;
    let whole = fixture.readings.power(&id("gpu001")).unwrap().read_at;
    let alone = |r: &Readings| (r.power(&id("gpu001"))?.read_at > whole).then_some(());
    fixture.until("a reading of power alone", alone).await;
    bmc.break_path("*", Fault::Reset);
    let unknown = |r: &Readings| BmcFixture::firmware(r, "gpu001").filter(|read| !read.is_known());
    fixture.until("silence", unknown).await;
    assert!(
        !fixture
            .readings
            .power(&id("gpu001"))
            .unwrap()
            .power
            .draw
            .is_known()
    );
    bmc.clear_faults();
    fixture.until("the same reading", known).await;
}

#[tokio::test]
async fn what_is_asked_again_within_seconds_confirms_nothing() {
    let bmc = FakeBmc::builder(tree("cray-ex235n-a100")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let nodes = "{gpu101: Node0, gpu102: Node1}";
    let entry = format!("url: '{}', nodes: {nodes}", bmc.url());
    let path = file(folder.path(), &[entry]);
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("\ninterval_s: 2\n", "\ninterval_s: 3600\n");
    let text = text.replace("confirm_after_s: 1\n", "confirm_after_s: 15\n");
    fs::write(&path, text).unwrap();
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    for node in ["gpu101", "gpu102"] {
        fixture.until_entries(node, 1).await;
    }
    // Values of a BMC during its flash, requested for one node after the other.
    assert!(bmc.set(BMC_VERSION, "/Version", "0.0.0-garbage".into()));
    for node in ["gpu101", "gpu102", "gpu101"] {
        let looked = fixture.readings.look(&id(node), "ada", LONG).await;
        let differs = vec![Class::Bmc];
        assert_eq!(looked, Some(RequestedReading::Read { differs }), "{node}");
    }
    // A fault counts at once.
    let system = "/redfish/v1/Systems/Node1";
    assert!(bmc.set(system, "/Status/Health", "Critical".into()));
    let named = |fixture: &BmcFixture, node: &str| {
        let reasons = fixture.readings.parts(&id(node)).unwrap().reasons.clone();
        reasons
            .into_iter()
            .map(|reason| reason.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&fixture, "gpu102"), Vec::<String>::new());
    fixture.readings.look(&id("gpu101"), "ada", LONG).await;
    assert_eq!(named(&fixture, "gpu102"), ["bmc.system_critical"]);
    assert_eq!(named(&fixture, "gpu101"), Vec::<String>::new());
    assert!(bmc.set(BMC_VERSION, "/Version", "nc.9.9.9".into()));
    for node in ["gpu101", "gpu102"] {
        let second = fixture.until_entries(node, 2).await.remove(1);
        assert_eq!(change(&second).1, "nc.9.9.9", "{node}");
        let who = "ada".to_owned();
        assert_eq!(second.entry.cause, Cause::Operator { who });
    }
}
