//! Control that receives reports, and an executor with real processes.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use futures::future::BoxFuture;
use lattice_agent::NodeGpus;
use lattice_agent::executor::{
    Accounts, AgentUser, CgroupSettings, CgroupUse, CheckpointSettings, Control, Executor,
    ExecutorSettings, Hooks, Ids, NotReported, OrphanPolicy, RunAs,
};
use lattice_agent_rpc::{AttemptKey, Launch, Report, ReportAnswer, Terminate};
use lattice_mesh::SystemClock;
use lattice_quorum_types::allocation::RankExit;
use lattice_quorum_types::command::RankReport;
use lattice_quorum_types::spec::Workload;
use lattice_quorum_types::{AllocationId, NodeId, Revision};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Unprivileged user of this machine; the rank's user if the tests run as root.
pub const NOBODY: Ids = Ids {
    uid: 65534,
    gid: 65534,
};
/// Longer than any step takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Binary that dispatches hidden subcommands first in `main`.
pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_lattice-agent").into()
}

pub fn is_root() -> bool {
    AgentUser::current().uid == 0
}

pub fn key(allocation: u64) -> AttemptKey {
    AttemptKey {
        allocation: AllocationId(allocation),
        attempt: 1,
    }
}

pub fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Launch of `argv` on node `n1`, the first of two ranks.
pub fn launch(key: AttemptKey, argv: &[&str]) -> Launch {
    Launch {
        key,
        epoch: 1,
        revision: Revision(1),
        user: "alice".to_owned(),
        project: "atlas/web".to_owned(),
        name: None,
        element: None,
        nodes: vec![node("n1"), node("n2")],
        rank: 0,
        workload: Workload {
            argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
            ..Workload::default()
        },
        walltime_ms: None,
        boot: None,
        sensitive: false,
        gpus: 0,
        checkpoint: None,
    }
}

pub fn shell(key: AttemptKey, script: &str) -> Launch {
    launch(key, &["/bin/sh", "-c", script])
}

pub fn terminate(key: AttemptKey) -> Terminate {
    Terminate { key, epoch: 1 }
}

type Answer = Box<dyn Fn(&Report, usize) -> Result<ReportAnswer, NotReported> + Send + Sync>;

/// Control that keeps every report. Its answer is a function of the report and the number of earlier ones.
pub struct Ledger {
    answer: Mutex<Answer>,
    reports: watch::Sender<Vec<Report>>,
}

impl Ledger {
    pub fn new() -> Arc<Self> {
        Self::answering(|_, _| Ok(ReportAnswer::Committed))
    }
    pub fn answering(
        answer: impl Fn(&Report, usize) -> Result<ReportAnswer, NotReported> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Box::new(answer)),
            reports: watch::Sender::new(Vec::new()),
        })
    }
    pub fn take(&self, report: Report) -> Result<ReportAnswer, NotReported> {
        let before = self.reports.borrow().len();
        let answer = (self.answer.lock().unwrap())(&report, before);
        self.reports.send_modify(|all| all.push(report));
        answer
    }
    pub fn all(&self) -> Vec<Report> {
        self.reports.borrow().clone()
    }
    /// Waits for a report.
    pub async fn wait_for(&self, wanted: impl Fn(&Report) -> bool) -> Report {
        let mut reports = self.reports.subscribe();
        let found = reports.wait_for(|all| all.iter().any(&wanted));
        let all = tokio::time::timeout(PATIENCE, found)
            .await
            .expect("in time")
            .unwrap();
        all.iter().find(|report| wanted(report)).unwrap().clone()
    }
    pub async fn started(&self, key: AttemptKey) {
        self.wait_for(|r| r.key == key && matches!(r.report, RankReport::Started { .. }))
            .await;
    }
    pub async fn end(&self, key: AttemptKey) -> RankExit {
        let is_end = |r: &Report| r.key == key && matches!(r.report, RankReport::Ended { .. });
        match self.wait_for(is_end).await.report {
            RankReport::Ended { exit, .. } => exit,
            other => unreachable!("{other:?}"),
        }
    }
}

impl Control for Ledger {
    fn report(&self, report: Report) -> BoxFuture<'_, Result<ReportAnswer, NotReported>> {
        Box::pin(async move { self.take(report) })
    }
}

/// Environment that outlives an executor.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub settings: ExecutorSettings,
    pub ledger: Arc<Ledger>,
}

impl Bench {
    pub fn new() -> Self {
        Self::reporting_to(Ledger::new())
    }
    pub fn reporting_to(ledger: Arc<Ledger>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        open_to_others(folder.path());
        let settings = ExecutorSettings {
            node: node("n1"),
            folder: folder.path().join("executor"),
            enabled: true,
            run_as: RunAs {
                agent: AgentUser::current(),
                fixed: is_root().then_some(NOBODY),
                allow_same_user: true,
                min_uid: 1000,
                map: None,
                accounts: Accounts::from_file("/etc/passwd"),
            },
            // The account of the tests may have no home directory.
            working_dir: Some("/".into()),
            hooks: Hooks::default(),
            // Process groups only; cgroups have separate tests.
            cgroup: CgroupSettings {
                use_of_cgroups: CgroupUse::Off,
                ..CgroupSettings::default()
            },
            orphans: OrphanPolicy::End,
            orphan_hold: lattice_agent::executor::ORPHAN_HOLD,
            output_cap_bytes: 1 << 20,
            grace: Duration::from_secs(5),
            keep_output: Duration::from_secs(3600),
            program: program(),
            gpus: NodeGpus::default(),
            checkpoints: CheckpointSettings {
                runtime_dir: folder.path().join("run"),
                poll: Duration::from_millis(20),
            },
            boot_id: "boot-1".to_owned(),
        };
        Self {
            folder,
            settings,
            ledger,
        }
    }
    /// Opens and resumes an agent's executor.
    pub fn open(&self) -> Executor {
        let clock = Arc::new(SystemClock);
        let executor = Executor::open(self.settings.clone(), self.ledger.clone(), clock).unwrap();
        executor.resume().unwrap();
        executor
    }
    pub fn attempt_dir(&self, key: AttemptKey) -> PathBuf {
        let name = format!("{}.{}", key.allocation, key.attempt);
        self.settings.folder.join("attempts").join(name)
    }
    pub fn stdout(&self, key: AttemptKey) -> String {
        std::fs::read_to_string(self.attempt_dir(key).join("stdout")).unwrap()
    }
    /// Path that ranks may write to.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Filesystem in memory, unmounted on drop.
pub struct Disk(pub PathBuf);

impl Disk {
    /// Mounts the filesystem. Prints a note and returns `None` if that is not possible.
    pub fn mount(at: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
        if !is_root() || !mount.status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: a filesystem can only be mounted by root");
            return None;
        }
        open_to_others(at);
        Some(Self(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

/// Permits any user to create files in `folder`.
pub fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
}

/// Writable copy of a captured host's tree, for changes while an agent runs on it.
pub fn tree_of(host: &str, at: PathBuf) -> PathBuf {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts");
    let mut copy = std::process::Command::new("cp");
    copy.args(["-a", "-T"]).args([&hosts.join(host), &at]);
    assert!(copy.status().unwrap().success(), "{host} was not copied");
    at
}

/// Waits until `found` returns a value.
pub async fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(value) = found() {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.unwrap_or_else(|_| panic!("{what} did not come about"))
}

/// Number in a file that a rank writes.
pub async fn pid_in(path: &Path) -> i32 {
    eventually("a file with a process id", || {
        let text = std::fs::read_to_string(path).ok()?;
        text.strip_suffix('\n')?.trim().parse().ok()
    })
    .await
}

/// Whether a process runs. A zombie does not, unless only its first thread has ended.
pub fn runs(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
    fields[1] != "Z" || fields[18].parse::<u32>().unwrap() > 1
}

/// Builds a program that writes its process id to the given file and then ends its first thread. The kernel shows the
/// process as a zombie, although it continues.
pub fn headless_program(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let (source, program) = (folder.join("headless.c"), folder.join("headless"));
    let text = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *stay(void *unused) { for (;;) pause(); return unused; }
int main(int argc, char **argv) {
  pthread_t other;
  if (argc < 2 || pthread_create(&other, NULL, stay, NULL)) return 1;
  FILE *file = fopen(argv[1], "w");
  fprintf(file, "%d\n", (int)getpid());
  fclose(file);
  pthread_exit(NULL);
}
"#;
    std::fs::write(&source, text).unwrap();
    // The linker that built this test is available.
    let mut compiler = std::process::Command::new("cc");
    let built = compiler
        .arg("-pthread")
        .arg(&source)
        .arg("-o")
        .arg(&program);
    assert!(built.status().unwrap().success());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Two users with uids that are unused on this machine.
pub const ALICE: u32 = 42_001;
pub const BOB: u32 = 42_002;
/// System group of alice, as for users of a device.
pub const DEVICE_GROUP: u32 = 44;

/// Account file with both users.
pub fn two_people(folder: &Path) -> Accounts {
    let passwd = folder.join("passwd");
    let text = format!(
        "root:x:0:0::/root:/bin/sh\nalice:x:{ALICE}:{ALICE}::/:/bin/sh\nbob:x:{BOB}:{BOB}::/:/bin/sh\n"
    );
    std::fs::write(&passwd, text).unwrap();
    let groups = format!("root:x:0:alice\nvideo:x:{DEVICE_GROUP}:alice\n");
    std::fs::write(folder.join("group"), groups).unwrap();
    Accounts::from_file(passwd)
}

/// Skips a test that needs several users, with a note, unless it runs as root.
pub fn is_skipped_without_root() -> bool {
    if !is_root() {
        eprintln!("SKIPPED: only root can become other users");
    }
    !is_root()
}

/// Folder that only this user can access.
pub fn folder_of(path: PathBuf, uid: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
    path
}

/// Executable script.
pub fn executable(path: PathBuf, text: &str) -> PathBuf {
    let source = path.with_extension("text");
    std::fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
    install(&source, &path);
    path
}

/// Copies a program with another process. A child that this process forks at the same time would hold the copy open for
/// writing, and the copy could not be executed.
pub fn install(from: &Path, to: &Path) {
    let mut install = std::process::Command::new("install");
    let done = install.args(["-m", "755"]).arg(from).arg(to).status();
    assert!(done.unwrap().success());
}

/// Process id in a record of the attempt.
pub fn recorded_pid(attempt: &Path, record: &str) -> i32 {
    let text = std::fs::read(attempt.join(record)).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
    i32::try_from(read["pid"].as_i64().unwrap()).unwrap()
}

/// A line of `/proc/<pid>/status`, split into words, without its name.
pub fn status_of(pid: i32, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let words = line.unwrap().trim_start_matches(':').split_whitespace();
    words.map(str::to_owned).collect()
}

/// Threads of a process. `/proc` has a folder for each thread, even if the listing hides it.
pub fn threads(pid: i32) -> Vec<i32> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    listed.filter_map(|entry| number(entry.unwrap())).collect()
}
