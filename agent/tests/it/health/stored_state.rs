//! Stored health state: history, disk, restarts, and the next boot.

use super::{REMAP, Tree, document, of, report, said, says, settings, sound, start};
use crate::cluster::Cluster;
use crate::daemon::{Daemon, configure};
use crate::support::{self, PATIENCE, eventually, program};
use lattice_agent_rpc::{ClearReason, GetHealth, GetHistory};
use lattice_conformance::{
    health::Action,
    history::{Event, EventKind, HistoryRecord, ReasonChange},
};
use lattice_fake_nvml::{CONTROL_ENV, Control, DESCRIPTION_ENV, GpuRef, Xid, library_path};
use lattice_gossip::{Member, Verdict};
use lattice_mesh::Peer;
use rustix::process::Signal;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes the configuration, and a program that starts the agent with the fake driver's environment.
fn installed(cluster: &Cluster, tree: &Tree, data: &Path) -> (PathBuf, PathBuf) {
    let config = configure(cluster, data, "");
    let text = std::fs::read_to_string(&config).unwrap();
    let library = library_path().unwrap();
    let lines = text.lines().map(|line| match line.starts_with("probe:") {
        true => format!(
            "probe: {{root: {}, nvml: {{library: {}}}}}\nhealth: {{interval_s: 1, xids: true}}",
            tree.root.display(),
            library.display()
        ),
        false => line.to_owned(),
    });
    let lines: Vec<String> = lines.collect();
    std::fs::write(&config, lines.join("\n")).unwrap();
    let script = format!(
        "{CONTROL_ENV}={} {DESCRIPTION_ENV}={} exec {} \"$@\"",
        tree.control.display(),
        tree.root.join("nvml.json").display(),
        program().display()
    );
    let program = support::executable(cluster.folder.path().join("agent"), &script);
    (program, config)
}

/// Whether a process listens to the fake driver's events. A listener sees later events only.
fn is_listened_to(tree: &Tree) -> Option<()> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let control = format!("{CONTROL_ENV}={}", tree.control.display());
    let is_listener = |pid: &String| {
        let of = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let has = |text: &[u8], wanted: &str| {
            text.split(|byte| *byte == 0)
                .any(|part| part == wanted.as_bytes())
        };
        has(&of("cmdline"), "__watch-gpu") && has(&of("environ"), &control)
    };
    names.any(|pid| is_listener(&pid)).then_some(())
}

#[tokio::test]
async fn an_xid_outlives_the_agent_and_ends_with_the_boot() {
    const XID: &str = "gpu.xid.79";
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    let data = cluster.folder.path().join("data");
    let (program, config) = installed(&cluster, &tree, &data);
    let mut daemon = Daemon::start(&program, &config);
    cluster.member("n1", sound).await;
    eventually("a listener", || is_listened_to(&tree)).await;
    // A listener that is not ready yet would miss the event, so the test raises the event until it arrives.
    let mut raised = Control::default();
    let agent_health = says(XID);
    let hearing = cluster.member("n1", &agent_health);
    tokio::pin!(hearing);
    let member = loop {
        raised.xids.push(Xid {
            gpu: GpuRef::Index(1),
            xid: 79,
        });
        tree.ask_driver(&raised);
        tokio::select! {
            member = &mut hearing => break member,
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
    };
    assert_eq!(said(&member).0, Some(Verdict::Faulty));
    let before = of(&report(&daemon.peer(&cluster), false).await, XID).unwrap();
    assert_eq!(
        (before.entity.as_str(), before.action),
        ("gpu.1", Action::Reboot)
    );
    let found = written_xids(&daemon.peer(&cluster)).await;
    assert_eq!(found, [(XID.to_owned(), "gpu.1".to_owned(), 1)]);
    let file = data.join("health.json");
    eventually("the XID on the disk", || {
        let text = std::fs::read_to_string(&file).ok()?;
        text.contains(XID).then_some(())
    })
    .await;
    daemon.end(Signal::KILL);

    let mut daemon = Daemon::start(&program, &config);
    let after = of(&report(&daemon.peer(&cluster), true).await, XID).unwrap();
    assert_eq!(after.entity, "gpu.1");
    assert_eq!(after.first_seen_ms, before.first_seen_ms);
    assert_eq!(
        xids(&daemon.peer(&cluster)).await,
        found,
        "kept, and not told twice"
    );
    daemon.end(Signal::TERM);

    // The same folder under another boot id.
    let mut settings = settings(&cluster, &tree);
    settings.data_dir = data;
    let app = start(&cluster, settings, "another boot").await;
    let booted = |m: &Member| {
        let boot = m.published.boot.as_ref();
        boot.is_some_and(|boot| boot.boot_id == "another boot") && sound(m)
    };
    cluster.member("n1", booted).await;
    let peer = cluster.peer(&app);
    assert_eq!(of(&report(&peer, true).await, XID), None);
    let happened = history(&peer).await;
    let kinds: Vec<&str> = happened.iter().map(|event| event.event.kind()).collect();
    let boot = kinds.iter().position(|kind| *kind == "boot").unwrap();
    assert!(kinds[..boot].contains(&"xid"), "{kinds:?}");
    let ended = happened.iter().any(|event| {
        matches!(&event.event, EventKind::Health { turn: ReasonChange::Ended, code, .. } if code == XID)
    });
    assert!(ended, "the boot ended it: {happened:?}");
    app.stop().await;
}

/// Events in the node's history.
async fn history(peer: &Peer) -> Vec<Event> {
    let (mut all, unwritten) = history_and_rest(peer).await;
    all.extend(unwritten);
    all
}

/// Events in the node's history: on disk, and not yet on disk.
async fn history_and_rest(peer: &Peer) -> (Vec<Event>, Vec<Event>) {
    let wanted = GetHistory {
        since: 0,
        most: 1000,
    };
    let page = peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
    let event = |record| match record {
        HistoryRecord::Event(event) => Some(event),
        HistoryRecord::Entry(_) | HistoryRecord::Other(_) => None,
    };
    let events = |json: &[u8]| {
        let records: Vec<HistoryRecord> = serde_json::from_slice(json).unwrap();
        records.into_iter().filter_map(event).collect()
    };
    (events(&page.entries), events(&page.unwritten))
}

/// XID events: code, GPU, count.
fn xids_in(events: Vec<Event>) -> Vec<(String, String, u32)> {
    let xid = |event: Event| match event.event {
        EventKind::GpuEvent { code, gpu, .. } => Some((code, gpu, event.count)),
        _ => None,
    };
    events.into_iter().filter_map(xid).collect()
}

async fn xids(peer: &Peer) -> Vec<(String, String, u32)> {
    xids_in(history(peer).await)
}

/// XID events on disk, once there are any.
async fn written_xids(peer: &Peer) -> Vec<(String, String, u32)> {
    let written = async {
        loop {
            let found = xids_in(history_and_rest(peer).await.0);
            if !found.is_empty() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written)
        .await
        .expect("in time")
}

/// Waits until the history contains these events of the pending row.
async fn turned(peer: &Peer, wanted: &[&str]) {
    let turn = |event: Event| match event.event {
        EventKind::Health { turn, code, .. } if code == REMAP => Some(format!("{turn:?}")),
        EventKind::Cleared { by, code, .. } if code == REMAP => Some(by),
        _ => None,
    };
    let turns = async {
        loop {
            let all: Vec<String> = history(peer).await.into_iter().filter_map(turn).collect();
            if all == wanted {
                return;
            }
            assert!(all.len() <= wanted.len(), "{all:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, turns)
        .await
        .expect("in time");
}

#[tokio::test]
async fn history_records_reasons_and_clearing() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    tree.remap(false);
    let app = start(&cluster, settings(&cluster, &tree), "b1").await;
    cluster.member("n1", sound).await;
    let peer = cluster.peer(&app);
    tree.remap(true);
    cluster.member("n1", says(REMAP)).await;
    let clear = GetHealth {
        fresh: false,
        clear: Some(ClearReason {
            code: REMAP.to_owned(),
            entity: Some("gpu.2".to_owned()),
        }),
        by: Some("alice".to_owned()),
    };
    document(&peer, clear).await;
    // The fault was not repaired, so the next pass finds it again.
    turned(&peer, &["Began", "alice", "Began"]).await;
    tree.remap(false);
    turned(&peer, &["Began", "alice", "Began", "Ended"]).await;
    app.stop().await;
}

#[tokio::test]
async fn cleared_xid_stays_cleared_after_restart() {
    const XID: &str = "gpu.xid.79";
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    std::fs::create_dir(tree.root.join("dev")).unwrap();
    let log = "6,1,1000000,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n";
    std::fs::write(tree.root.join("dev/kmsg"), log).unwrap();
    let with_xids = || {
        let mut settings = settings(&cluster, &tree);
        settings.health.gpu_events = true;
        settings
    };
    let app = start(&cluster, with_xids(), "b1").await;
    cluster.member("n1", says(XID)).await;
    let peer = cluster.peer(&app);
    let found = of(&report(&peer, false).await, XID).unwrap();
    assert_eq!((found.entity.as_str(), found.count), ("gpu.1", 1));
    assert!(found.evidence.contains("fallen off the bus"), "{found:?}");
    let clear = GetHealth {
        fresh: false,
        clear: Some(ClearReason {
            code: XID.to_owned(),
            entity: None,
        }),
        by: Some("alice".to_owned()),
    };
    assert_eq!(document(&peer, clear).await["cleared"], json!(1));
    app.stop().await;

    // The log repeats the event to the next agent, with one new event.
    let more = "6,2,2000000,-;NVRM: Xid (PCI:0000:82:00): 48, DBE\n";
    std::fs::write(tree.root.join("dev/kmsg"), format!("{log}{more}")).unwrap();
    let app = start(&cluster, with_xids(), "b1").await;
    cluster.member("n1", says("gpu.xid.48")).await;
    let now = report(&cluster.peer(&app), true).await;
    assert_eq!(of(&now, "gpu.xid.48").unwrap().entity, "gpu.2");
    assert_eq!(of(&now, XID), None);
    app.stop().await;
}

/// Small filesystem for the agent's folder. Prints a note and returns `None` if it cannot be mounted.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"])
            .arg(at);
        if !support::is_root() || !mount.status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: a filesystem can only be mounted by root");
            return None;
        }
        Some(Self(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        let _ = unmount.arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn full_disk_keeps_state_in_memory() {
    let cluster = Cluster::start().await;
    let tree = Tree::copy(&cluster);
    tree.remap(false);
    let mut settings = settings(&cluster, &tree);
    settings.data_dir = cluster.folder.path().join("disk");
    let Some(disk) = Disk::mount(&settings.data_dir) else {
        return;
    };
    let app = start(&cluster, settings, "b1").await;
    // The first records take space and release some: each class, the start, the finding of the checks on this host, and
    // the health state file.
    let all = lattice_conformance::Class::ALWAYS_PUBLISHED.len() as u64 + 2;
    let has_entered = |m: &Member| m.published.history.is_some_and(|mark| mark.seq >= all);
    cluster.member("n1", |m| sound(m) && has_entered(m)).await;
    eventually("what was found at first on the disk", || {
        disk.0.join("health.json").exists().then_some(())
    })
    .await;
    let fill = disk.0.join("fill");
    assert!(std::fs::write(&fill, vec![1; 8 << 20]).is_err());
    tree.remap(true);
    let both = |m: &Member| says(REMAP)(m) && says("history.disk")(m);
    let member = cluster.member("n1", both).await;
    let disks = said(&member)
        .1
        .into_iter()
        .filter(|code| code.contains("disk"));
    assert_eq!(disks.count(), 1);
    let on_disk = || std::fs::read_to_string(disk.0.join("health.json")).unwrap_or_default();
    assert!(!on_disk().contains(REMAP));
    std::fs::remove_file(&fill).unwrap();
    eventually("what was kept in memory on the disk", || {
        on_disk().contains(REMAP).then_some(())
    })
    .await;
    app.stop().await;
}
