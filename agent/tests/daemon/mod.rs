//! Agent as a separate process, started and stopped as by an operator.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use crate::cluster::Cluster;
use crate::support::is_root;
use lattice_mesh::{ExpectedIdentity, Peer, Role};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Agent as a separate process.
pub struct Daemon {
    process: Child,
    addr: SocketAddr,
}

impl Daemon {
    pub fn start(program: &Path, config: &Path) -> Self {
        let mut process = Command::new(program)
            .arg("--config")
            .arg(config)
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let addr = first.rsplit_once(' ').unwrap().1.parse().unwrap();
        Self { process, addr }
    }
    pub fn peer(&self, cluster: &Cluster) -> Peer {
        cluster
            .control
            .peer(self.addr, ExpectedIdentity::exactly(Role::Agent, "n1"))
    }
    pub fn inode(&self) -> u64 {
        let exe = format!("/proc/{}/exe", self.process.id());
        std::fs::metadata(exe).unwrap().ino()
    }
    pub fn end(&mut self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes the configuration of an agent that is enrolled as `n1`; `work` adds keys to `executor`.
pub fn configure(cluster: &Cluster, data: &Path, work: &str) -> PathBuf {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(data).unwrap();
    cluster
        .credentials("n1")
        .save(&data.join("identity"))
        .unwrap();
    let run_as = match is_root() {
        true => "run_as: {uid: 65534, gid: 65534}, working_dir: /",
        false => "allow_same_user: true",
    };
    let path = cluster.folder.path().join("agent.yaml");
    let text = format!(
        "node: n1\nlisten: 127.0.0.1:0\ndata_dir: {}\ncontrol: ['{}']\n\
         gossip: {{cell: c0, interval_ms: 200}}\n\
         probe: {{root: {}/no-host, nvml: {{source: disabled}}}}\n\
         executor: {{{run_as}, grace_s: 10{work}}}\n",
        data.display(),
        cluster.control.local_addr(),
        cluster.folder.path().display()
    );
    std::fs::write(&path, text).unwrap();
    path
}
