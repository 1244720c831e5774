//! Full disk below a running rank. Needs root, to mount a small filesystem.

use crate::cluster;
use crate::cluster::{Cluster, empty_host};
use crate::support;
use crate::support::{Bench, Disk, eventually, executable, key, pid_in, runs, shell, tree_of};
use lattice_agent::App;
use lattice_agent::attempt::Hook;
use lattice_agent_rpc::{GetHistory, GetInventory, LaunchRefused, Terminate};
use lattice_conformance::history::{Cause, Entry};
use lattice_gossip::{Member, Verdict};
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Highest lease epoch on the bench's disk.
fn epoch_on_disk(bench: &Bench) -> Option<u64> {
    let text = std::fs::read(bench.settings.folder.join("epoch.json")).ok()?;
    let read: serde_json::Value = serde_json::from_slice(&text).ok()?;
    read["highest"].as_u64()
}

/// Rank that executes `what` to fill the disk, writes its process id and continues.
fn greedy(disk: &Path, what: &str, pid_file: &Path) -> String {
    format!(
        "cd {}; {what}; echo $$ > {}; while :; do sleep 0.05; done",
        disk.display(),
        pid_file.display()
    )
}

const BLOCKS: &str = "cat /dev/zero > fill 2>/dev/null; cat /dev/zero > more 2>/dev/null";
const INODES: &str = "n=0; while true > f$n; do n=$((n+1)); done 2>/dev/null";

async fn end_on_a_full_disk(options: &str, what: &str) {
    let mut bench = Bench::new();
    let at = bench.file("disk");
    let Some(disk) = Disk::mount(&at, options) else {
        return;
    };
    bench.settings.folder = disk.0.join("executor");
    let pid_file = bench.file("pid");
    let first = bench.open();
    let script = greedy(&disk.0, what, &pid_file);
    first.launch(shell(key(1), &script)).await.unwrap();
    let pid = pid_in(&pid_file).await;
    // The agent's free-space check may release space again.
    let mut rest = 0;
    eventually("no room at all", || {
        rest += 1;
        let file = disk.0.join(format!("executor/x{rest}"));
        std::fs::write(file, vec![1; 1 << 20]).err()
    })
    .await;

    // An attempt that cannot be recorded is not started, and leaves no record that could start it later.
    let refused = first.launch(shell(key(2), "true")).await.unwrap_err();
    assert!(matches!(refused, LaunchRefused::JournalFailed { .. }));
    assert!(!bench.attempt_dir(key(2)).exists());
    assert!(first.journal_fault().borrow().is_some());
    first.stop().await;

    // A new agent, and a control with a new lease epoch.
    let second = bench.open();
    let ended = Terminate {
        key: key(1),
        epoch: 2,
    };
    second.terminate(ended).await.unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    assert!(!runs(pid));
    assert_eq!(epoch_on_disk(&bench), Some(2));
    let stale = second.launch(shell(key(3), "true")).await.unwrap_err();
    assert!(matches!(stale, LaunchRefused::StaleEpoch { .. }));

    // An attempt without a record is stopped as well, permanently.
    let unseen = Terminate {
        key: key(4),
        epoch: 2,
    };
    second.terminate(unseen).await.unwrap();
    assert_eq!(bench.ledger.end(key(4)).await, RankExit::Stopped);
    let mut late = shell(key(4), "true");
    late.epoch = 2;
    let late = second.launch(late).await.unwrap();
    assert!(matches!(late.report, Some(RankReport::Ended { .. })));
    Command::new("sh")
        .args(["-c", "rm -f fill more f*"])
        .current_dir(&disk.0)
        .status()
        .unwrap();
    let exit = bench.attempt_dir(key(4)).join("exit.json");
    eventually("the end to be written", || exit.exists().then_some(())).await;
    let mut fault = second.journal_fault();
    let over = fault.wait_for(Option::is_none);
    tokio::time::timeout(support::PATIENCE, over)
        .await
        .unwrap()
        .unwrap();
    let mut next = shell(key(5), "exit 4");
    next.epoch = 2;
    second.launch(next).await.unwrap();
    assert_eq!(bench.ledger.end(key(5)).await, RankExit::Exited { code: 4 });
    second.stop().await;
}

#[tokio::test]
async fn a_rank_that_filled_the_disk_can_be_ended() {
    end_on_a_full_disk("size=512k", BLOCKS).await;
}

/// The supervisor can neither record that the job runs nor write to its own log.
#[tokio::test]
async fn a_rank_that_starts_on_a_full_disk_ends_as_it_ends() {
    let mut bench = Bench::new();
    let at = bench.file("disk");
    let Some(disk) = Disk::mount(&at, "size=512k") else {
        return;
    };
    bench.settings.folder = disk.0.join("executor");
    let fill = format!("cd {}; {BLOCKS}; true", disk.0.display());
    bench.settings.hooks.rank.prolog = Some(Hook {
        program: executable(bench.file("fills"), &fill),
        args: Vec::new(),
        timeout_ms: 20_000,
        env: BTreeMap::new(),
    });
    let executor = bench.open();
    let launched = shell(key(1), "exit 4");
    executor.launch(launched).await.unwrap();
    let ended = bench.ledger.end(key(1)).await;
    let attempt = bench.attempt_dir(key(1));
    assert!(!attempt.join("started.json").exists());
    assert_eq!(ended, RankExit::Exited { code: 4 });
    executor.stop().await;
}

#[tokio::test]
async fn a_rank_that_took_every_inode_can_be_ended() {
    end_on_a_full_disk("size=16m,nr_inodes=96", INODES).await;
}

#[tokio::test]
async fn without_any_room_the_rank_is_stopped_and_its_end_comes_with_the_room() {
    let mut bench = Bench::new();
    let at = bench.file("disk");
    let Some(disk) = Disk::mount(&at, "size=16m,nr_inodes=96") else {
        return;
    };
    bench.settings.folder = disk.0.join("executor");
    let pid_file = bench.file("pid");
    let executor = bench.open();
    let script = greedy(&disk.0, INODES, &pid_file);
    executor.launch(shell(key(1), &script)).await.unwrap();
    let pid = pid_in(&pid_file).await;
    for reserve in [
        bench.attempt_dir(key(1)).join("reserve"),
        bench.settings.folder.join("reserve"),
    ] {
        // The reserve is gone, and other files use its inode.
        let taken = disk
            .0
            .join(format!("taken{}", reserve.components().count()));
        std::fs::rename(&reserve, taken).unwrap();
    }
    let ended = Terminate {
        key: key(1),
        epoch: 2,
    };
    executor.terminate(ended).await.unwrap();
    eventually("the rank to stop", || (!runs(pid)).then_some(())).await;
    assert_eq!(epoch_on_disk(&bench), Some(1));
    let stale = executor.launch(shell(key(3), "true")).await.unwrap_err();
    assert!(matches!(stale, LaunchRefused::StaleEpoch { .. }));
    let mut later = shell(key(3), "true");
    later.epoch = 2;
    let refused = executor.launch(later).await.unwrap_err();
    assert!(matches!(refused, LaunchRefused::JournalFailed { .. }));
    Command::new("sh")
        .args(["-c", "rm -f f*"])
        .current_dir(&disk.0)
        .status()
        .unwrap();
    assert_eq!(bench.ledger.end(key(1)).await, RankExit::Stopped);
    executor.stop().await;
}

fn says(code: &'static str) -> impl Fn(&Member) -> bool {
    move |member| {
        let health = member.published.health.as_ref();
        health.is_some_and(|health| {
            health.verdict == Verdict::Faulty && health.reasons.iter().any(|r| r == code)
        })
    }
}

#[tokio::test]
async fn control_learns_of_node_without_work() {
    let cluster = Cluster::start().await;
    let mut settings = cluster.settings("n1", empty_host(&cluster));
    settings.executor.enabled = false;
    let mut app = App::bind(settings, cluster.edges("n1")).await.unwrap();
    app.start().await.unwrap();
    cluster.member("n1", says("executor.off")).await;
    app.stop().await;
}

#[tokio::test]
async fn control_learns_of_full_disk_and_recovery() {
    let cluster = Cluster::start().await;
    let mut settings = cluster.settings("n1", empty_host(&cluster));
    settings.data_dir = cluster.folder.path().join("disk");
    let Some(disk) = Disk::mount(&settings.data_dir, "size=512k") else {
        return;
    };
    // Accessible to the agent's user only, as its folder must be.
    std::fs::set_permissions(&disk.0, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut app = App::bind(settings, cluster.edges("n1")).await.unwrap();
    app.start().await.unwrap();
    // The first history records take space and release some: each class, and the agent's start.
    let all = lattice_conformance::Class::ALWAYS_PUBLISHED.len() as u64 + 1;
    let has_entered = |m: &Member| m.published.history.is_some_and(|mark| mark.seq >= all);
    cluster.member("n1", has_entered).await;
    let fill = disk.0.join("fill");
    assert!(std::fs::write(&fill, vec![1; 1 << 20]).is_err());
    let refused = cluster
        .peer(&app)
        .call(&shell(key(1), "true"), support::PATIENCE)
        .await
        .unwrap();
    assert!(
        matches!(refused, Err(LaunchRefused::JournalFailed { .. })),
        "{refused:?}"
    );
    cluster.member("n1", says("executor.journal")).await;
    std::fs::remove_file(&fill).unwrap();
    let says = says("executor.journal");
    cluster
        .member("n1", |m| m.published.health.is_some() && !says(m))
        .await;
    app.stop().await;
}

/// A complete agent on a host with a card that is flashed while the disk is full.
#[tokio::test]
async fn full_disk_delays_history_entry_only() {
    let cluster = Cluster::start().await;
    let tree = tree_of("gpu101", cluster.folder.path().join("tree"));
    let mut host = cluster::captured("gpu101");
    host.root = lattice_hwprobe::Root::new(&tree);
    let mut settings = cluster.settings("n1", host);
    settings.probe.confirm_after = std::time::Duration::from_millis(50);
    settings.data_dir = cluster.folder.path().join("disk");
    let Some(disk) = Disk::mount(&settings.data_dir, "size=4m") else {
        return;
    };
    std::fs::set_permissions(&disk.0, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut app = App::bind(settings, cluster.edges("n1")).await.unwrap();
    app.start().await.unwrap();
    // Each class, the agent's start, and the finding of the checks on this host.
    let all = lattice_conformance::Class::ALWAYS_PUBLISHED.len() as u64 + 2;
    let seq = |m: &Member| m.published.history.map_or(0, |mark| mark.seq);
    let is_read = |m: &Member| seq(m) >= all && m.published.identity.is_some();
    let before = cluster.member("n1", is_read).await;
    let old = before.published.fingerprints["nic"].clone();

    let fill = disk.0.join("fill");
    assert!(std::fs::write(&fill, vec![1; 8 << 20]).is_err());
    let firmware = tree.join("sys/class/infiniband/mlx5_0/fw_ver");
    std::fs::write(firmware, "28.99.1000\n").unwrap();
    let peer = cluster.peer(&app);
    let wanted = GetInventory {
        fresh: true,
        by: Some("alice".to_owned()),
    };
    peer.call(&wanted, support::PATIENCE)
        .await
        .unwrap()
        .unwrap();
    let reason = |m: &Member| {
        let health = m.published.health.as_ref();
        health.is_some_and(|health| health.reasons.iter().any(|code| code == "history.disk"))
    };
    let said = cluster
        .member("n1", |m| {
            m.published.fingerprints["nic"] != old && reason(m)
        })
        .await;
    assert!(said.published.health.as_ref().unwrap().verdict >= Verdict::Degraded);
    assert_eq!(seq(&said), all, "what is not on the disk is not numbered");
    let asked = GetHistory {
        since: all,
        most: 9,
    };
    let page = peer.call(&asked, support::PATIENCE).await.unwrap().unwrap();
    assert_eq!((page.last, &page.entries[..]), (all, &b"[]"[..]));
    let shown: Vec<Entry> = serde_json::from_slice(&page.unwritten).unwrap();
    assert_eq!(shown[0].changes[0].key, "nic.2.firmware");

    std::fs::remove_file(&fill).unwrap();
    cluster
        .member("n1", |m| seq(m) == all + 1 && !reason(m))
        .await;
    let page = peer.call(&asked, support::PATIENCE).await.unwrap().unwrap();
    let entered: Vec<Entry> = serde_json::from_slice(&page.entries).unwrap();
    assert_eq!(entered, shown);
    let who = "alice".to_owned();
    assert_eq!(entered[0].cause, Cause::Operator { who });
    app.stop().await;
}
