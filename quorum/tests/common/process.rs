//! Quorum members as separate processes.

use super::{authority, credentials};
use lattice_mesh::{Authority, Role};
use lattice_quorum_types::VoterId;
use std::{
    fmt::Write as _,
    fs::File,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

pub const BINARY: &str = env!("CARGO_BIN_EXE_lattice-quorum");

/// Longest wait for a member to end; a member that runs longer has failed the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files and ports of three members.
pub struct Site {
    pub folder: tempfile::TempDir,
    pub authority: Arc<Authority>,
    pub addrs: Vec<SocketAddr>,
    processes: Vec<Option<Child>>,
}

/// Range in which ports are searched: below the system's ephemeral ports. Other programs could otherwise take a port
/// between the search and a member's start, or while a member is down.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Returns ports that were free a moment ago. All are held until the search ends, so they differ. No other site of this
/// process gets the same ports.
fn free_ports(count: usize) -> Vec<SocketAddr> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Programs that run at the same time start their search elsewhere.
    let first = u16::try_from(std::process::id() % 1000).unwrap() * 21;
    let next = || {
        let nth = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        PORTS.start + nth % (PORTS.end - PORTS.start)
    };
    let sockets: Vec<_> = std::iter::repeat_with(next)
        .take(PORTS.len())
        .filter_map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .take(count)
        .collect();
    assert_eq!(sockets.len(), count, "no port of {PORTS:?} is free");
    sockets.iter().map(|s| s.local_addr().unwrap()).collect()
}

impl Site {
    /// Writes certificates and configurations; `extra` is appended to each configuration.
    pub fn prepare(extra: &str) -> Self {
        let site = Self {
            folder: tempfile::tempdir().unwrap(),
            authority: authority(),
            addrs: free_ports(3),
            processes: vec![None, None, None],
        };
        site.authority.save(&site.folder.path().join("ca")).unwrap();
        for id in 1..=3 {
            let folder = site.folder.path().join(format!("credentials-{id}"));
            credentials(&site.authority, Role::Quorum, &id.to_string())
                .save(&folder)
                .unwrap();
            std::fs::write(site.config(id), site.config_text(id, extra)).unwrap();
        }
        site
    }

    /// Prepares files and port of one more member, which joins.
    pub fn joiner(&mut self, extra: &str) -> VoterId {
        let taken = self.addrs.clone();
        let port = free_ports(4).into_iter().find(|a| !taken.contains(a));
        self.addrs.push(port.unwrap());
        self.processes.push(None);
        let id = self.addrs.len() as VoterId;
        let folder = self.folder.path().join(format!("credentials-{id}"));
        credentials(&self.authority, Role::Quorum, &id.to_string())
            .save(&folder)
            .unwrap();
        let text = self.config_text(id, &format!("join: true\n{extra}"));
        std::fs::write(self.config(id), text).unwrap();
        id
    }

    /// Rewrites every configuration with `extra` lines.
    pub fn configure(&self, extra: &str) {
        for id in 1..=3 {
            std::fs::write(self.config(id), self.config_text(id, extra)).unwrap();
        }
    }

    pub fn config(&self, id: VoterId) -> PathBuf {
        self.folder.path().join(format!("member-{id}.yaml"))
    }

    pub fn data_dir(&self, id: VoterId) -> PathBuf {
        self.folder.path().join(format!("data-{id}"))
    }

    pub fn config_text(&self, id: VoterId, extra: &str) -> String {
        let root = self.folder.path().display();
        let addr = self.addrs[id as usize - 1];
        let mut text = format!(
            "cluster: test\nid: {id}\nlisten: {addr}\ndata_dir: {root}/data-{id}\n\
             credentials: {root}/credentials-{id}\nmembers:\n"
        );
        for (i, addr) in self.addrs.iter().enumerate() {
            writeln!(text, "  - {{id: {}, addr: \"{addr}\"}}", i + 1).unwrap();
        }
        text + extra
    }

    /// Returns the command line of a member, without `LATTICE_` variables from our environment.
    pub fn command(&self, id: VoterId) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("--config").arg(self.config(id));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LATTICE_")) {
            command.env_remove(name);
        }
        command
    }

    /// Runs a member that is expected to end without a signal.
    pub fn run(&self, id: VoterId, args: &[&str]) -> Output {
        let mut child = self
            .command(id)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                let output = child.wait_with_output().unwrap();
                panic!("member {id} still runs with {args:?}: {output:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.wait_with_output().unwrap()
    }

    /// Starts a member; its output is kept next to its configuration.
    pub fn start(&mut self, id: VoterId) {
        let log = self.folder.path().join(format!("member-{id}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let child = self
            .command(id)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.processes[id as usize - 1] = Some(child);
    }

    pub fn start_all(&mut self) {
        (1..=3).for_each(|id| self.start(id));
    }

    /// Sends SIGKILL: the member flushes nothing and notifies no peer.
    pub fn kill(&mut self, id: VoterId) {
        let mut child = self.processes[id as usize - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a signal by its name.
    pub fn signal(&self, id: VoterId, name: &str) {
        let child = self.processes[id as usize - 1].as_ref().unwrap();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Sends SIGTERM and returns the exit status.
    pub fn terminate(&mut self, id: VoterId) -> std::process::ExitStatus {
        self.signal(id, "TERM");
        let mut child = self.processes[id as usize - 1].take().unwrap();
        child.wait().unwrap()
    }

    /// Returns all output of a member so far.
    pub fn printed(&self, id: VoterId) -> String {
        let log = self.folder.path().join(format!("member-{id}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.processes.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for id in 1..=self.addrs.len() as VoterId {
                eprintln!("--- member {id} printed:\n{}", self.printed(id));
            }
        }
    }
}
