//! Node history of complete agents on copied trees: entries, causes, and content that outlives the agent.

use crate::cluster;
use crate::cluster::{Cluster, captured};
use crate::daemon::{Daemon, configure};
use crate::support;
use crate::support::{PATIENCE, eventually, is_root, tree_of};
use lattice_agent::App;
use lattice_agent_rpc::{GetHistory, GetInventory, GetPreimage, HistoryPage};
use lattice_conformance::{
    Class, Reading,
    history::{Cause, Entry, Event, EventKind, HistoryRecord, PastState, record_at},
};
use lattice_gossip::{HistoryMark, Member};
use lattice_hwprobe::{Host, Root};
use lattice_mesh::{CallError, ExpectedIdentity, Peer, Role};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Card of `mlx5_0`: two Ethernet functions precede it on the bus.
const KEY: &str = "nic.2.firmware";

/// Copy of a captured host that can be changed.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn copy(cluster: &Cluster) -> Self {
        Self {
            root: tree_of("gpu101", cluster.folder.path().join("tree")),
        }
    }

    fn host(&self) -> Host {
        let mut host = captured("gpu101");
        host.root = Root::new(&self.root);
        host
    }

    /// Flashes the first InfiniBand card; returns the previous firmware.
    fn flash(&self, firmware: &str) -> String {
        let file = self.root.join("sys/class/infiniband/mlx5_0/fw_ver");
        let before = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, format!("{firmware}\n")).unwrap();
        before.trim().to_owned()
    }
}

/// Agent on the tree with a short confirmation delay, under this boot id.
async fn agent(cluster: &Cluster, tree: &Tree, boot_id: &str) -> App {
    let mut settings = cluster.settings("n1", tree.host());
    settings.probe.confirm_after = Duration::from_millis(50);
    settings.probe.fresh_for = Duration::ZERO;
    let mut edges = cluster.edges("n1");
    edges.boot_id = boot_id.to_owned();
    let mut app = App::bind(settings, edges).await.unwrap();
    app.start().await.unwrap();
    app
}

async fn page(peer: &Peer, since: u64) -> HistoryPage {
    let wanted = GetHistory { since, most: 500 };
    peer.call(&wanted, PATIENCE).await.unwrap().unwrap()
}

async fn records(peer: &Peer) -> Vec<HistoryRecord> {
    let page = page(peer, 0).await;
    assert_eq!(page.next, page.last, "it fits one page");
    serde_json::from_slice(&page.entries).unwrap()
}

/// Changes in the history.
async fn entries(peer: &Peer) -> Vec<Entry> {
    let entry = |record| match record {
        HistoryRecord::Entry(entry) => Some(entry),
        HistoryRecord::Event(_) | HistoryRecord::Other(_) => None,
    };
    records(peer).await.into_iter().filter_map(entry).collect()
}

/// Events in the history.
async fn events(peer: &Peer) -> Vec<Event> {
    let event = |record| match record {
        HistoryRecord::Event(event) => Some(event),
        HistoryRecord::Entry(_) | HistoryRecord::Other(_) => None,
    };
    records(peer).await.into_iter().filter_map(event).collect()
}

/// Kinds of events, without findings of the checks.
fn kinds(events: &[Event]) -> Vec<&str> {
    let kinds = events.iter().map(|event| event.event.kind());
    kinds.filter(|kind| *kind != "health").collect()
}

async fn reprobe(peer: &Peer, user: &str) {
    let wanted = GetInventory {
        fresh: true,
        by: Some(user.to_owned()),
    };
    peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
}

fn mark(member: &Member) -> Option<HistoryMark> {
    member.published.history
}

/// Waits until gossip publishes this number of records on disk.
async fn entered(cluster: &Cluster, at_least: u64) -> HistoryMark {
    let member = cluster
        .member("n1", |m| mark(m).is_some_and(|mark| mark.seq >= at_least))
        .await;
    mark(&member).unwrap()
}

fn nic(entries: &[Entry]) -> Vec<&Entry> {
    let of_nic = entries.iter().filter(|entry| entry.class == Class::Nic);
    of_nic.collect()
}

const ALL: u64 = Class::ALWAYS_PUBLISHED.len() as u64;
/// Each class, the agent's start, and the one finding of the checks on this host.
const FIRST: u64 = ALL + 2;

#[tokio::test]
async fn flashed_card_entry_names_requester() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    let app = agent(&cluster, &tree, "boot-1").await;
    let peer = cluster.peer(&app);
    entered(&cluster, FIRST).await;
    let old = tree.flash("28.99.1000");
    reprobe(&peer, "alice@site").await;
    entered(&cluster, FIRST + 1).await;
    let all = entries(&peer).await;
    let [first, changed] = nic(&all)[..] else {
        panic!("{all:?}");
    };
    assert_eq!(first.cause, Cause::First);
    let user = "alice@site".to_owned();
    assert_eq!(changed.cause, Cause::Operator { who: user });
    assert_eq!((changed.seq, changed.from), (FIRST + 1, Some(first.to)));
    assert_eq!(changed.boot_id, "boot-1");
    let [change] = changed.changes.as_slice() else {
        panic!("{:?}", changed.changes);
    };
    assert_eq!(change.key, KEY);
    assert_eq!(change.from, Reading::Present(old.as_str().into()));
    assert_eq!(change.to, Reading::Present("28.99.1000".into()));

    // Both records are available, so the former state of the node is known.
    let mut preimages = BTreeMap::new();
    for entry in [first, changed] {
        let digest = entry.to.digest().unwrap();
        let wanted = GetPreimage { digest: digest.0 };
        let bytes = peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
        preimages.insert(digest, bytes.to_vec());
    }
    let past = record_at(&all, Class::Nic, changed.at - 1, |digest| {
        preimages.get(digest).cloned()
    });
    let PastState::Complete { record, .. } = past else {
        panic!("{past:?}");
    };
    assert_eq!(record.get(KEY), Reading::Present(old.as_str().into()));
    app.stop().await;
}

#[tokio::test]
async fn history_separates_start_from_boot() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    let app = agent(&cluster, &tree, "boot-1").await;
    entered(&cluster, FIRST).await;
    app.stop().await;

    // Nothing changed: only the previous stop and the start are recorded.
    let app = agent(&cluster, &tree, "boot-1").await;
    let peer = cluster.peer(&app);
    entered(&cluster, FIRST + 2).await;
    cluster
        .member("n1", |m| m.published.identity.is_some())
        .await;
    assert_eq!(entries(&peer).await.len() as u64, ALL);
    let written_events = events(&peer).await;
    assert_eq!(kinds(&written_events), ["agent", "agent", "agent"]);
    let ends = |event: &&Event| matches!(event.event, EventKind::Stopped { .. });
    let ends: Vec<_> = written_events.iter().filter(ends).collect();
    assert_eq!(
        ends.len(),
        1,
        "the one before, and not the one that runs: {written_events:?}"
    );
    app.stop().await;

    // A reboot without changes.
    let app = agent(&cluster, &tree, "boot-2").await;
    let is_read = |m: &Member| {
        let boot = m.published.boot.as_ref();
        boot.is_some_and(|boot| boot.boot_id == "boot-2") && m.published.identity.is_some()
    };
    cluster.member("n1", is_read).await;
    // The stop, the boot, the start, the end of the finding and its return.
    entered(&cluster, FIRST + 7).await;
    let peer = cluster.peer(&app);
    assert_eq!(entries(&peer).await.len() as u64, ALL);
    let written_events = events(&peer).await;
    let expected = ["agent", "agent", "agent", "agent", "boot", "agent"];
    assert_eq!(kinds(&written_events), expected);
    let boot = written_events
        .iter()
        .find(|event| event.event.kind() == "boot");
    let boot = boot.unwrap();
    let EventKind::Boot { before, .. } = &boot.event else {
        panic!("{written_events:?}");
    };
    assert_eq!(before.as_deref(), Some("boot-1"));
    assert_eq!(boot.boot_id, "boot-2");
    app.stop().await;

    // Flashed while no agent ran, under the same boot id.
    tree.flash("28.99.1000");
    let app = agent(&cluster, &tree, "boot-2").await;
    entered(&cluster, FIRST + 10).await;
    app.stop().await;

    // Flashed across a reboot.
    tree.flash("28.99.2000");
    let app = agent(&cluster, &tree, "boot-3").await;
    entered(&cluster, FIRST + 16).await;
    let all = entries(&cluster.peer(&app)).await;
    let causes: Vec<&Cause> = nic(&all).iter().map(|entry| &entry.cause).collect();
    assert_eq!(causes, [&Cause::First, &Cause::AgentStart, &Cause::Boot]);
    let numbers: Vec<u64> = records(&cluster.peer(&app))
        .await
        .iter()
        .filter_map(HistoryRecord::seq)
        .collect();
    assert_eq!(numbers, (1..=FIRST + 16).collect::<Vec<_>>());
    let last = nic(&all)[2];
    assert_eq!(last.boot_id, "boot-3");
    assert_eq!(
        last.changes[0].from,
        Reading::Present("28.99.1000".into()),
        "what it was is still known"
    );
    // The record of an earlier agent is still served.
    let digest = nic(&all)[0].to.digest().unwrap();
    let wanted = GetPreimage { digest: digest.0 };
    let peer = cluster.peer(&app);
    let bytes = peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
    assert!(lattice_conformance::verify(&digest, &bytes).is_ok());
    app.stop().await;
}

#[tokio::test]
async fn only_control_reads_it_and_a_new_folder_has_another_name() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    let app = agent(&cluster, &tree, "boot-1").await;
    let first = entered(&cluster, FIRST).await;
    let other = cluster::bind(&cluster.authority, Role::Agent, "n2");
    let expect = ExpectedIdentity::exactly(Role::Agent, "n1");
    let wanted = GetHistory { since: 0, most: 1 };
    let refused = other.peer(app.addr(), expect).call(&wanted, PATIENCE).await;
    assert!(
        matches!(refused, Err(CallError::Denied { .. })),
        "{refused:?}"
    );
    app.stop().await;
    std::fs::remove_dir_all(cluster.folder.path().join("n1/history")).unwrap();
    let app = agent(&cluster, &tree, "boot-1").await;
    let member = cluster
        .member("n1", |m| {
            mark(m).is_some_and(|mark| mark.journal != first.journal)
        })
        .await;
    assert!(mark(&member).unwrap().seq <= FIRST);
    app.stop().await;
}

/// Number of complete lines in the journal.
fn whole_lines(segment: &Path) -> usize {
    let bytes = std::fs::read(segment).unwrap_or_default();
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

#[tokio::test]
async fn killed_while_it_writes_the_agent_goes_on_where_it_was() {
    let cluster = Cluster::start().await;
    let data = cluster.folder.path().join("data");
    let config = configure(&cluster, &data, "");
    let segment = data.join("history/0000000001.jsonl");
    for round in 0..6 {
        let mut daemon = Daemon::start(&support::program(), &config);
        // As early as possible: some of the lines exist, or none.
        let wanted = round.min(2);
        eventually("lines of the journal", || {
            (whole_lines(&segment) >= wanted).then_some(())
        })
        .await;
        daemon.end(Signal::KILL);
    }
    let mut daemon = Daemon::start(&support::program(), &config);
    let all = all_entries(&daemon.peer(&cluster)).await;
    let written_records = records(&daemon.peer(&cluster)).await;
    let numbers: Vec<u64> = written_records
        .iter()
        .filter_map(HistoryRecord::seq)
        .collect();
    let expected = 1..=written_records.len() as u64;
    assert_eq!(numbers, expected.collect::<Vec<_>>(), "none lost or twice");
    daemon.end(Signal::KILL);

    // A partial line, as left by a kill or a power failure during a write.
    let text = std::fs::read_to_string(&segment).unwrap();
    let last = text.rfind("{\"entry\":").unwrap();
    std::fs::write(&segment, &text[..last + 20]).unwrap();
    let mut daemon = Daemon::start(&support::program(), &config);
    let again = all_entries(&daemon.peer(&cluster)).await;
    let kept = usize::try_from(ALL).unwrap() - 1;
    assert_eq!(again[..kept], all[..kept]);
    assert_eq!(
        again[kept].to, all[kept].to,
        "what was cut off is entered again"
    );
    daemon.end(Signal::TERM);
}

/// First entry of every class, once all are on disk.
async fn all_entries(peer: &Peer) -> Vec<Entry> {
    let wait = async {
        loop {
            let all = entries(peer).await;
            if all.len() as u64 >= ALL {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("in time")
}

/// Skips a test that needs the kernel's devices, with a note, if they are not available.
fn is_skipped(why: &str, unless: bool) -> bool {
    if unless {
        return false;
    }
    let required = std::env::var("LATTICE_REQUIRE_PEERS").is_ok_and(|value| value == "1");
    assert!(!required, "{why}");
    eprintln!("SKIPPED: {why}");
    true
}

/// Set in the copy of this program that runs in its own network namespace.
const IN_NAMESPACE: &str = "LATTICE_TEST_IN_NAMESPACE";

#[tokio::test]
async fn hears_kernel_in_namespace_without_virtual_devices() {
    const NAME: &str = "history::hears_kernel_in_namespace_without_virtual_devices";
    if std::env::var_os(IN_NAMESPACE).is_some() {
        return hear_a_veth().await;
    }
    let made = std::process::Command::new("unshare")
        .args(["--net", "ip", "link", "add", "v0", "type", "veth"])
        .output();
    let can = made.is_ok_and(|made| made.status.success());
    if is_skipped(
        "a network namespace with devices needs root, unshare and ip",
        can,
    ) {
        return;
    }
    let within = std::process::Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(IN_NAMESPACE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&within.stdout);
    assert!(within.status.success(), "{said}");
    assert!(said.contains("heard: add v0"), "{said}");
}

async fn hear_a_veth() {
    let events = lattice_agent::node::DeviceEvents::open().unwrap();
    let ip = |args: &str| {
        let done = std::process::Command::new("ip")
            .args(args.split(' '))
            .status();
        assert!(done.unwrap().success());
    };
    ip("link add v0 type veth peer name v1");
    ip("link del v0");
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let notice = tokio::time::timeout(PATIENCE, events.next()).await;
        let lattice_agent::node::KernelNotice::Event(event) = notice.unwrap().unwrap() else {
            panic!("four events are not too many");
        };
        if event.subsystem == "net" {
            assert_eq!(event.cause(), None, "{event:?}");
            println!("heard: {} {}", event.action, event.name());
            seen.push((event.action.clone(), event.name()));
        }
    }
    let expect_notice = |action: &str, name: &str| {
        let wanted = (action.to_owned(), name.to_owned());
        assert!(seen.contains(&wanted), "{seen:?}");
    };
    expect_notice("add", "v0");
    expect_notice("remove", "v1");
}

#[tokio::test]
async fn device_event_triggers_reading() {
    let file = first_pci_device();
    let can = is_root()
        && file
            .as_ref()
            .is_some_and(|file| std::fs::OpenOptions::new().write(true).open(file).is_ok());
    if is_skipped("a kernel event of a device needs root and a PCI bus", can) {
        return;
    }
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    let mut settings = cluster.settings("n1", tree.host());
    settings.probe.confirm_after = Duration::from_millis(50);
    settings.probe.device_events = true;
    let mut app = App::bind(settings, cluster.edges("n1")).await.unwrap();
    app.start().await.unwrap();
    entered(&cluster, FIRST).await;
    tree.flash("28.99.1000");
    // The kernel announces a change of the device; the device itself stays as it is.
    std::fs::write(file.unwrap(), "change").unwrap();
    let peer = cluster.peer(&app);
    // Other devices of this machine may send events meanwhile.
    let entered = async {
        loop {
            let all = entries(&peer).await;
            if let [_, changed] = nic(&all)[..] {
                return changed.cause.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let cause = tokio::time::timeout(PATIENCE, entered).await;
    let cause = cause.expect("in time");
    assert!(matches!(cause, Cause::DeviceEvent { .. }), "{cause:?}");
    let written_events = events(&peer).await;
    assert!(
        kinds(&written_events).contains(&"device"),
        "{written_events:?}"
    );
    app.stop().await;
}

fn first_pci_device() -> Option<PathBuf> {
    let mut devices = std::fs::read_dir("/sys/bus/pci/devices").ok()?;
    Some(devices.next()?.ok()?.path().join("uevent"))
}
