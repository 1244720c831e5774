//! Isolation of a job from the agent, its own supervisor and another user's job, with real processes of other users.
//! Needs root.

use crate::cluster::{Cluster, empty_host};
use crate::support;
use crate::support::{
    ALICE, BOB, Bench, DEVICE_GROUP, PATIENCE, eventually, folder_of, install,
    is_skipped_without_root, key, pid_in, recorded_pid, shell, status_of, terminate, two_people,
};
use lattice_agent::App;
use lattice_agent_rpc::{AttemptKey, Launch};
use lattice_quorum_types::allocation::RankExit;
use std::ffi::CStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// CAP_KILL, as `/proc/<pid>/status` prints it.
const ONLY_KILL: &str = "0000000000000020";
/// CAP_KILL and CAP_SYS_PTRACE, for hosts with a `/proc` that hides other users' processes.
const KILL_AND_SEE: &str = "0000000000080020";
const NONE: &str = "0000000000000000";

fn of(user: &str, launch: Launch) -> Launch {
    Launch {
        user: user.to_owned(),
        ..launch
    }
}

/// Agent with its key on disk, and a running job of alice.
struct Scene {
    cluster: Cluster,
    app: App,
    data: PathBuf,
    alice: i32,
    supervisor: i32,
}

const ALICES: u64 = 1;
const SECRET: &str = "alices-secret-word";

impl Scene {
    async fn begin() -> Self {
        let cluster = Cluster::start().await;
        let mut settings = cluster.settings("n1", empty_host(&cluster));
        settings.executor.run_as = None;
        let data = settings.data_dir.clone();
        let mut edges = cluster.edges("n1");
        let credentials = edges.credentials.take().unwrap();
        std::fs::create_dir(&data).unwrap();
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
        credentials.save(&data.join("identity")).unwrap();
        edges.accounts = two_people(cluster.folder.path());
        let mut app = App::bind(settings, edges).await.unwrap();
        app.start().await.unwrap();
        let home = folder_of(cluster.folder.path().join("alice"), ALICE);
        let pid_file = cluster.folder.path().join("alices-pid");
        let mut wanted = of("alice", shell(key(ALICES), ""));
        wanted.workload.argv.clear();
        wanted.workload.script = Some(format!(
            "#!/bin/sh\n# {SECRET}\numask 077\necho {SECRET}\necho $$ > {}\nchmod 644 {}\n\
             while :; do sleep 0.05; done\n",
            pid_file.display(),
            pid_file.display(),
        ));
        wanted.workload.env = [("WORD".to_owned(), SECRET.to_owned())].into();
        wanted.workload.output.stderr = Some(home.join("errors").display().to_string());
        let peer = cluster.peer(&app);
        peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
        let alice = pid_in(&pid_file).await;
        cluster.ledger.started(key(ALICES)).await;
        let attempt = data.join("executor/attempts/1.1");
        Self {
            supervisor: recorded_pid(&attempt, "supervisor.json"),
            cluster,
            app,
            data,
            alice,
        }
    }

    /// Output of a job of bob.
    async fn bob(&self, key: AttemptKey, script: &str) -> String {
        let peer = self.cluster.peer(&self.app);
        let wanted = of("bob", shell(key, script));
        peer.call(&wanted, PATIENCE).await.unwrap().unwrap();
        let end = self.cluster.ledger.end(key).await;
        let name = format!("executor/attempts/{}.{}", key.allocation, key.attempt);
        let read = |file| std::fs::read_to_string(self.data.join(&name).join(file)).unwrap();
        assert_eq!(end, RankExit::Exited { code: 0 }, "{}", read("stderr"));
        read("stdout")
    }

    async fn end(self) {
        let peer = self.cluster.peer(&self.app);
        let ended = peer.call(&terminate(key(ALICES)), PATIENCE).await;
        ended.unwrap().unwrap();
        assert_eq!(
            self.cluster.ledger.end(key(ALICES)).await,
            RankExit::Stopped
        );
        self.app.stop().await;
    }
}

#[tokio::test]
async fn a_job_cannot_reach_the_agent_another_job_or_its_own_supervisor() {
    if is_skipped_without_root() {
        return;
    }
    let scene = Scene::begin().await;
    let (data, alice, supervisor) = (scene.data.display(), scene.alice, scene.supervisor);
    let agent = std::process::id();
    let home = scene.cluster.folder.path().join("alice");
    let home = home.display();
    // Actions that must fail, by name.
    let attempts: Vec<(&str, String)> = vec![
        (
            "read the agent's key",
            format!("cat {data}/identity/identity.key"),
        ),
        ("list the agent's folder", format!("ls {data}")),
        ("list the attempts", format!("ls {data}/executor/attempts")),
        (
            "read alice's captured output",
            format!("cat {data}/executor/attempts/1.1/stdout"),
        ),
        (
            "read alice's launch record",
            format!("cat {data}/executor/attempts/1.1/launch.json"),
        ),
        ("read alice's output file", format!("cat {home}/errors")),
        (
            "read alice's environment",
            format!("cat /proc/{alice}/environ"),
        ),
        (
            "read alice's memory",
            format!("head -c 1 /proc/{alice}/mem"),
        ),
        ("list alice's descriptors", format!("ls /proc/{alice}/fd/")),
        (
            "open alice's script",
            format!("cat /proc/{alice}/fd/3 /proc/{alice}/fd/10"),
        ),
        ("enter alice's directory", format!("cd /proc/{alice}/cwd/")),
        ("signal alice's job", format!("kill -TERM {alice}")),
        ("signal its supervisor", "kill -TERM $PPID".to_owned()),
        ("kill its supervisor", "kill -KILL $PPID".to_owned()),
        (
            "signal alice's supervisor",
            format!("kill -KILL {supervisor}"),
        ),
        ("signal the agent", format!("kill -HUP {agent}")),
        (
            "read its supervisor's environment",
            "cat /proc/$PPID/environ".to_owned(),
        ),
        (
            "write its supervisor's memory",
            "echo x > /proc/$PPID/mem".to_owned(),
        ),
        (
            "read the agent's memory",
            format!("head -c 1 /proc/{agent}/mem"),
        ),
        (
            "list its supervisor's descriptors",
            "ls /proc/$PPID/fd/".to_owned(),
        ),
        ("write into the agent's folder", format!("touch {data}/x")),
        (
            "write an end for alice",
            format!("touch {data}/executor/attempts/1.1/exit.json"),
        ),
        (
            "write an end for itself",
            format!("touch {data}/executor/attempts/2.1/exit.json"),
        ),
        (
            "write into alice's file",
            format!("echo x >> {home}/errors"),
        ),
        ("become root by su", "su -c true".to_owned()),
        (
            "become root by setpriv",
            "setpriv --reuid 0 true".to_owned(),
        ),
        ("mount", "mount -t tmpfs none /mnt".to_owned()),
    ];
    let line = |(number, (_, command)): (usize, &(&str, String))| {
        format!("if ( {command} ) </dev/null >/dev/null 2>&1; then echo {number}; fi")
    };
    let lines: Vec<String> = attempts.iter().enumerate().map(line).collect();
    let script = lines.join("\n") + "\necho tried";
    let text = scene.bob(key(2), &script).await;
    let came_off: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(attempts[line.parse::<usize>().ok()?].0))
        .collect();
    assert!(came_off.is_empty(), "{came_off:?}");
    assert!(text.ends_with("tried\n"), "{text}");
    println!("held: {}", attempts.len());
    // All targets exist and their owner can read them, so the refusals are meaningful.
    assert!(std::fs::metadata(scene.data.join("identity/identity.key")).is_ok());
    let captured = scene.data.join("executor/attempts/1.1/stdout");
    // Written by the job's supervisor with a delay.
    eventually("what she said to be captured", || {
        let text = std::fs::read_to_string(&captured).ok()?;
        (text == format!("{SECRET}\n")).then_some(())
    })
    .await;
    let environment = std::fs::read(format!("/proc/{}/environ", scene.alice)).unwrap();
    assert!(String::from_utf8_lossy(&environment).contains(SECRET));
    // A script does not appear in the command line, which any user can read.
    let command = std::fs::read(format!("/proc/{}/cmdline", scene.alice)).unwrap();
    assert!(!String::from_utf8_lossy(&command).contains(SECRET));
    assert!(support::runs(scene.alice) && support::runs(scene.supervisor));
    scene.end().await;
}

#[tokio::test]
async fn supervisor_capabilities_are_minimal() {
    if is_skipped_without_root() {
        return;
    }
    let scene = Scene::begin().await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let needed = match mounts.contains("hidepid=") {
        true => KILL_AND_SEE,
        false => ONLY_KILL,
    };
    // Each thread has its own capabilities. The ids come from the folders of both processes.
    let threads = support::threads(scene.supervisor);
    println!("threads of a supervisor: {}", threads.len());
    let supervisors = threads.into_iter().map(|thread| (thread, needed));
    for (pid, kept) in supervisors.chain([(scene.alice, NONE)]) {
        assert_eq!(status_of(pid, "CapEff"), [kept], "{pid}");
        assert_eq!(status_of(pid, "CapPrm"), [kept], "{pid}");
        assert_eq!(status_of(pid, "CapBnd"), [NONE], "{pid}");
        assert_eq!(status_of(pid, "CapInh"), [NONE], "{pid}");
        assert_eq!(status_of(pid, "CapAmb"), [NONE], "{pid}");
        assert_eq!(status_of(pid, "NoNewPrivs"), ["1"], "{pid}");
    }
    let (alice, device) = (ALICE.to_string(), DEVICE_GROUP.to_string());
    assert_eq!(status_of(scene.supervisor, "Uid"), ["0"; 4]);
    assert_eq!(status_of(scene.alice, "Uid"), [alice.as_str(); 4]);
    assert_eq!(status_of(scene.alice, "Gid"), [alice.as_str(); 4]);
    // Root's group, which the account file lists for alice, is not passed on.
    assert_eq!(status_of(scene.alice, "Groups"), [device]);

    let descriptors = scene.bob(key(2), "ls /proc/$$/fd").await;
    assert_eq!(descriptors, "0\n1\n2\n");
    let groups = scene.bob(key(3), "id -u; id -g; id -G").await;
    assert_eq!(groups, format!("{BOB}\n{BOB}\n{BOB}\n"));

    let tool = scene.cluster.folder.path().join("id");
    install(Path::new("/usr/bin/id"), &tool);
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let anybody = Command::new(&tool)
        .arg("-u")
        .uid(BOB)
        .gid(BOB)
        .output()
        .unwrap();
    let euid = String::from_utf8(anybody.stdout).unwrap();
    assert_eq!(euid, "0\n", "the set-uid program works for others");
    let euid = scene.bob(key(4), &format!("{} -u", tool.display())).await;
    assert_eq!(euid, format!("{BOB}\n"));
    scene.end().await;
}

/// Executor for alice and bob.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.settings.run_as.fixed = None;
    bench.settings.run_as.accounts = two_people(bench.folder.path());
    bench
}

async fn with_output(bench: &Bench, number: u64, stdout: &str, dir: Option<&Path>) -> RankExit {
    let executor = bench.open();
    let mut wanted = of("alice", shell(key(number), "echo out; echo err >&2; id -u"));
    wanted.workload.output.stdout = Some(stdout.to_owned());
    wanted.workload.working_dir = dir.map(|dir| dir.display().to_string());
    executor.launch(wanted).await.unwrap();
    let end = bench.ledger.end(key(number)).await;
    executor.stop().await;
    end
}

/// Adds a key to this process's session keyring, as a service manager or an administrator's login does. Prints a note
/// and returns `None` if the kernel has no keyrings.
#[expect(unsafe_code, reason = "keyrings have no wrapper")]
fn agents_key(name: &CStr) -> Option<libc::c_long> {
    const SESSION: libc::c_long = -3;
    let own = std::ptr::null::<libc::c_char>();
    let join = libc::c_long::from(libc::KEYCTL_JOIN_SESSION_KEYRING);
    // SAFETY: a null name; then two texts that end with a zero, and three bytes with their count. This thread and its
    // children get a session keyring of their own.
    let (joined, key) = unsafe {
        let joined = libc::syscall(libc::SYS_keyctl, join, own);
        let (kind, secret) = (c"user".as_ptr(), c"abc".as_ptr());
        let key = libc::syscall(
            libc::SYS_add_key,
            kind,
            name.as_ptr(),
            secret,
            3_usize,
            SESSION,
        );
        (joined, key)
    };
    if joined < 0 || key < 0 {
        let error = std::io::Error::last_os_error();
        eprintln!("SKIPPED: this kernel holds no keys: {error}");
        return None;
    }
    Some(key)
}

/// Builds a program that prints a key's bytes, given its number: `0` and the bytes, or the errno.
fn key_reader(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("key.c"), folder.join("key"));
    let text = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
  char bytes[8] = "";
  long read = syscall(SYS_keyctl, 11 /* KEYCTL_READ */, atol(argv[1]), bytes, 7);
  printf("%d %s\n", read < 0 ? errno : 0, bytes);
}
"#;
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let built = compiler.arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[tokio::test]
async fn a_job_has_no_key_of_the_agents_session() {
    if is_skipped_without_root() {
        return;
    }
    let Some(held) = agents_key(c"lattice-test-key") else {
        return;
    };
    let bench = bench();
    let reader = key_reader(bench.folder.path());
    let command = format!("{} {held}", reader.display());
    // Without a countermeasure, every child of the agent has the key, whatever its user.
    let mut anybody = Command::new(&reader);
    let anybody = anybody.arg(held.to_string()).uid(BOB).gid(BOB).output();
    let said = String::from_utf8(anybody.unwrap().stdout).unwrap();
    assert_eq!(said, "0 abc\n", "the key can be read by others");

    let executor = bench.open();
    let script = format!("{command}; cat /proc/keys; grep -c lattice-test-key /proc/keys");
    executor
        .launch(of("bob", shell(key(1), &script)))
        .await
        .unwrap();
    bench.ledger.end(key(1)).await;
    let said = bench.stdout(key(1));
    println!("{said}");
    let denied = rustix::io::Errno::ACCESS.raw_os_error();
    assert!(said.starts_with(&format!("{denied} \n")), "{said}");
    assert!(said.ends_with("\n0\n"), "{said}");
    // The job has a keyring of its own, owned by its user.
    let own = format!(" {BOB} {BOB} keyring   _ses: empty");
    assert!(said.contains(&own), "{said}");
    executor.stop().await;
}

#[tokio::test]
async fn output_goes_where_the_user_may_write_and_is_added_to() {
    if is_skipped_without_root() {
        return;
    }
    let bench = bench();
    let home = folder_of(bench.file("home"), ALICE);
    let done = RankExit::Exited { code: 0 };
    assert_eq!(
        with_output(&bench, 1, "%j-%r-%n.out", Some(&home)).await,
        done
    );
    let path = home.join("1-0-n1.out");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("out\n{ALICE}\n"));
    let owner = std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap());
    assert_eq!(
        (owner, path.metadata().unwrap().permissions().mode() & 0o777),
        (ALICE, 0o644)
    );
    // The captured output names the file; the other stream was captured.
    let note = format!("[lattice: this output is in {} on n1]\n", path.display());
    assert_eq!(bench.stdout(key(1)), note);
    let errors = std::fs::read_to_string(bench.attempt_dir(key(1)).join("stderr")).unwrap();
    assert_eq!(errors, "err\n");
    let again = path.display().to_string();
    assert_eq!(with_output(&bench, 2, &again, None).await, done);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("out\n{ALICE}\n").repeat(2));
    assert_eq!(with_output(&bench, 3, "/dev/null", None).await, done);
}

#[tokio::test]
async fn unwritable_output_fails_only_that_job() {
    if is_skipped_without_root() {
        return;
    }
    let bench = bench();
    let home = folder_of(bench.file("home"), ALICE);
    let others = folder_of(bench.file("others"), BOB);
    let link = home.join("link");
    std::os::unix::fs::symlink(home.join("behind"), &link).unwrap();
    let pipe = home.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    std::os::unix::fs::chown(&pipe, Some(ALICE), Some(ALICE)).unwrap();
    let root_only = bench.file("root-only");
    std::fs::write(&root_only, "kept").unwrap();
    std::fs::set_permissions(&root_only, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = |path: &Path| path.display().to_string();
    let cases = [
        (1, text(&others.join("out")), None, "Permission denied"),
        (2, text(&root_only), None, "Permission denied"),
        (3, text(&link), None, "it is a symbolic link"),
        (4, text(&pipe), None, "neither a file nor a device"),
        (5, text(&home.join("no/out")), None, "No such file"),
        (6, "%q".to_owned(), None, "not 'q'"),
        (
            7,
            "out".to_owned(),
            Some(others.as_path()),
            "working directory",
        ),
    ];
    for (number, path, dir, why) in cases {
        match with_output(&bench, number, &path, dir).await {
            RankExit::SpawnFailed { reason } => {
                println!("{reason}");
                assert!(reason.contains(why), "{path}: {reason}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    assert_eq!(std::fs::read_to_string(&root_only).unwrap(), "kept");
    assert!(!home.join("behind").exists());
}
