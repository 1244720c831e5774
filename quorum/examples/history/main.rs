//! Cost of a long history: a member with a million ended allocations. Measures the time from the member's start to the
//! first linearizable read, its resident memory, its size on disk, and the times to read an old allocation and a page
//! of old allocations.
//!
//! `cargo build --profile dist -p lattice-quorum && cargo run --profile dist -p lattice-quorum --example history
//! [-- ALLOCATIONS]`. The history is written through `apply`, put into a backup, and restored into a data directory.
//! The member is the real binary.
#![allow(clippy::unwrap_used, reason = "an example for a terminal")]

mod generator;

use lattice_mesh::{Authority, Clock, Credentials, Mesh, MeshConfig, Role, SystemClock, Validity};
use lattice_quorum::Settings;
use lattice_quorum_client::{ClientConfig, QuorumClient};
use lattice_quorum_types::{
    AllocationId, AllocationState, Envelope,
    command::{Principal, Privilege, SCHEMA},
    view::{Answer, Query},
};
use std::{
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const CLUSTER: &str = "history";

fn main() {
    let count = std::env::args()
        .nth(1)
        .map_or(1_000_000, |n| n.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(measure(count));
}

async fn measure(count: u64) {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let past = generator::write(&folder.path().join("history.backup"), count);
    let applied = begun.elapsed();
    println!(
        "{count} allocations ended, with {} commands in {:.0} s",
        past.commands,
        applied.as_secs_f64()
    );
    let site = MeasuredMember::prepare(folder.path());
    lattice_quorum::restore(&site.settings, &past.backup, None)
        .await
        .unwrap();
    std::fs::remove_file(&past.backup).unwrap();
    let mut rows = Vec::new();
    rows.push(site.run("first start", count).await);
    // After the restart, the log has entries after the snapshot, as in normal operation.
    rows.push(site.run("after 4,000 more commands", count).await);
    let on_disk = |part: &str| mib(bytes_of(&site.settings.data_dir.join(part)));
    println!(
        "on disk: segments {:.0} MiB in {} files, snapshots {:.1} MiB, log {:.1} MiB",
        on_disk("segments"),
        std::fs::read_dir(site.settings.data_dir.join("segments"))
            .unwrap()
            .count(),
        on_disk("snapshots"),
        on_disk("log.redb"),
    );
    println!(
        "{:<28} {:>10} {:>12} {:>12} {:>12} {:>14}",
        "", "start s", "VmRSS MiB", "old read ms", "page read ms", "VmRSS after"
    );
    for row in rows {
        println!(
            "{:<28} {:>10.2} {:>12.0} {:>12.1} {:>12.1} {:>14.0}",
            row.name,
            row.serves.as_secs_f64(),
            row.rss,
            ms(row.old),
            ms(row.page),
            row.rss_after
        );
    }
}

fn ms(of: Duration) -> f64 {
    of.as_secs_f64() * 1000.0
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn bytes_of(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.map(|e| bytes_of(&e.unwrap().path())).sum(),
        Err(_) => std::fs::metadata(path).map_or(0, |m| m.len()),
    }
}

struct Row {
    name: &'static str,
    serves: Duration,
    rss: f64,
    rss_after: f64,
    /// Mean time to read one old allocation.
    old: Duration,
    /// Time to read a page of up to a thousand completed allocations, from a third of the history on.
    page: Duration,
}

struct MeasuredMember {
    root: PathBuf,
    settings: Settings,
    authority: Authority,
}

impl MeasuredMember {
    fn prepare(root: &Path) -> Self {
        let today = Validity::from_now(SystemClock.now(), Duration::from_secs(86_400));
        let authority = Authority::create(CLUSTER, today).unwrap();
        let addr = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut settings = Settings::new(CLUSTER, 1, addr, root.join("data"));
        settings.members = [(1, addr)].into();
        let site = Self {
            root: root.to_owned(),
            settings,
            authority,
        };
        let credentials = site.credentials(Role::Quorum, "1");
        credentials.save(&root.join("credentials")).unwrap();
        let root = root.display();
        let config = format!(
            "cluster: {CLUSTER}\nid: 1\nlisten: {addr}\ndata_dir: {root}/data\n\
             credentials: {root}/credentials\nmembers:\n  - {{id: 1, addr: \"{addr}\"}}\n"
        );
        std::fs::write(site.root.join("member.yaml"), config).unwrap();
        site
    }

    fn credentials(&self, role: Role, id: &str) -> Credentials {
        let day = Duration::from_secs(86_400);
        Credentials::issued_now(&self.authority, CLUSTER, role, id, day).unwrap()
    }

    fn start(&self) -> Child {
        let here = std::env::current_exe().unwrap();
        let binary = here
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("lattice-quorum");
        let log = self.root.join("member.log");
        let log = std::fs::File::options().create(true).append(true).open(log);
        let log = log.unwrap();
        Command::new(binary)
            .arg("--config")
            .arg(self.root.join("member.yaml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Starts the member, measures reads, writes commands, and kills the member.
    async fn run(&self, name: &'static str, count: u64) -> Row {
        let begun = Instant::now();
        let mut child = self.start();
        let client = self.client(self.settings.listen);
        while client.read(Query::Revision).await.is_err() {
            assert!(child.try_wait().unwrap().is_none(), "{}", self.log_text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let serves = begun.elapsed();
        let rss = rss(&child);
        let asked = Instant::now();
        let olds = 50;
        for n in 0..olds {
            // Spread over half the history, each in another segment.
            let id = AllocationId(1 + n * (count / 2 / olds));
            match client.read(Query::Allocation { id }).await.unwrap() {
                Answer::Allocation(Some(record)) => assert!(record.state.is_terminal()),
                other => panic!("{id}: {other:?}"),
            }
        }
        let old = asked.elapsed() / olds as u32;
        let asked = Instant::now();
        let page = Query::Allocations {
            after: AllocationId(count / 3),
            limit: 1000,
            states: vec![AllocationState::Completed],
            within: None,
        };
        match client.read(page).await.unwrap() {
            Answer::Allocations(found) => assert!(!found.is_empty()),
            other => panic!("{other:?}"),
        }
        let page = asked.elapsed();
        let rss_after = self::rss(&child);
        self.write(&client).await;
        child.kill().unwrap();
        child.wait().unwrap();
        Row {
            name,
            serves,
            rss,
            rss_after,
            old,
            page,
        }
    }

    fn client(&self, addr: SocketAddr) -> QuorumClient {
        let credentials = self.credentials(Role::Control, "c1");
        let any = "127.0.0.1:0".parse().unwrap();
        let mesh = Mesh::bind(any, credentials, MeshConfig::default()).unwrap();
        QuorumClient::with_config(mesh, vec![addr], ClientConfig::default())
    }

    async fn write(&self, client: &QuorumClient) {
        for batch in 0..40 {
            let commands = (0..100).map(|n| Envelope {
                schema: SCHEMA,
                principal: Principal {
                    name: "alice".to_owned(),
                    privilege: Privilege::User,
                },
                key: Some(format!("{batch}-{n}-{}", SystemClock.now().0)),
                at: SystemClock.now(),
                fence: None,
                command: generator::submit(n),
            });
            for reply in client.propose_all(commands.collect()).await.unwrap() {
                reply.unwrap();
            }
        }
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(self.root.join("member.log")).unwrap_or_default()
    }
}

/// Returns the resident memory of a process, MiB.
fn rss(child: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}
